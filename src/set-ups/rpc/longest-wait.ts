/** Bounds the waits of `acquire` over a service binding. */
import type { AcquireOptions } from '../limits/limiter-shape.ts'

/** Options of `acquire`. A signal cannot cross a service binding. */
export type RpcAcquireOptions = Omit<AcquireOptions, 'signal'>

/** The longest wait (ms): if the caller gives up, the wait goes on. */
const MAX_WAIT_MS = 30_000

/** Other wrong options stay as they are: the limiter says what is wrong. @throws TypeError for a signal */
export function withinLongestWait(options: RpcAcquireOptions): RpcAcquireOptions {
  if (typeof options !== 'object' || options === null) return options
  if ('signal' in options && options.signal !== undefined)
    throw new TypeError('A signal cannot cross a service binding. Use timeoutMs, up to 30000.')
  const { timeoutMs = MAX_WAIT_MS } = options
  return { ...options, timeoutMs: timeoutMs > MAX_WAIT_MS ? MAX_WAIT_MS : timeoutMs }
}
