/** Timers of an isolate that is busy. */
import { expect, it } from 'vitest'
import { afterReading, isolateTimer } from '../../src/store/lag.ts'

/** Makes all timers that are set due at once, as in a flood. */
function block(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

it('what a timer runs waits for the other timers that are due, after which Node reads from its sockets', async () => {
  const events: string[] = []
  const ended = new Promise<void>(resolve =>
    isolateTimer(1, () => {
      events.push('deadline')
      resolve()
    }),
  )
  setTimeout(() => events.push('other timer'), 2)
  block(10)
  await ended
  expect(events).toEqual(['other timer', 'deadline'])
})

it('a timer that is cancelled after it was due does not run', async () => {
  const events: string[] = []
  const cancel = isolateTimer(1, () => events.push('deadline'))
  setTimeout(cancel, 2)
  block(10)
  await new Promise(resolve => setTimeout(resolve, 5))
  expect(events).toEqual([])
})

it('runs what a timer runs although `setImmediate` cannot be called: the Edge runtime of Next.js', () => {
  let runs = 0
  const unsupported = () => {
    throw new Error('A Node.js API is used (setImmediate) which is not supported in the Edge Runtime.')
  }
  afterReading(() => runs++, unsupported)
  expect(runs).toBe(1)
})
