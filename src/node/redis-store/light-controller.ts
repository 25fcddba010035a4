/** An AbortController with one listener. That of Node takes several times as long, for each trip. */
import type { DeadlineController } from '../../store/deadline.ts'

export function createLightController(): DeadlineController {
  let listener = () => {}
  const signal = {
    addEventListener(_: 'abort', listen: () => void) {
      listener = listen
    },
  }
  return { signal: signal as unknown as AbortSignal, abort: () => listener() }
}
