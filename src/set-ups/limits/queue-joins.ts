/**
 * How much longer the calls of `acquire` make the queues of an identity (`leaky-bucket`). A place in a queue cannot be given back. So a call
 * with a timeout looks first how long the queue is, and needs to know what others add between its look and its turn. Calls can belong to
 * different requests, so this is plain data.
 */
export interface QueueJoins {
  /** Call this before a look. The result returns how much longer the queue can be than the look has seen (ms). */
  watch(): () => number
  /** Counts a call that may join while it asks. @param ms by which it makes the queue longer */
  join<T>(ms: number, ask: () => Promise<T>): Promise<T>
}

export function createQueueJoins(): QueueJoins {
  let begunMs = 0
  let endedMs = 0
  return {
    watch() {
      const seenMs = endedMs
      return () => begunMs - seenMs
    },
    async join(ms, ask) {
      begunMs += ms
      try {
        return await ask()
      } finally {
        endedMs += ms
      }
    },
  }
}
