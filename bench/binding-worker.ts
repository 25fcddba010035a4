/**
 * A Worker that calls its rate limiting bindings on schedule, without waiting for earlier calls, as measurements/hot-callers.ts does with
 * other limiters.
 */
export interface BindingLoad {
  /** Name of the binding. */
  binding: string
  /** The beginning of the callers' keys. */
  prefix: string
  callers: number
  /** When each call is due, in ms after the start. */
  dueMs: readonly number[]
}

export interface BindingCall {
  waitMs: number
  isAdmitted: boolean
  /** When the reply came, by Date.now(). */
  repliedAt: number
}

type Environment = Record<string, { limit(options: { key: string }): Promise<{ success: boolean }> }>

export default {
  async fetch(request: Request, env: Environment): Promise<Response> {
    const { binding, prefix, callers, dueMs } = (await request.json()) as BindingLoad
    const limiter = env[binding]!
    const callOne = async (i: number): Promise<BindingCall> => {
      const startedAt = performance.now()
      const { success } = await limiter.limit({ key: `${prefix}${i % callers}` })
      return { waitMs: performance.now() - startedAt, isAdmitted: success, repliedAt: Date.now() }
    }
    const startedAt = performance.now()
    const calls: Promise<BindingCall>[] = []
    while (calls.length < dueMs.length) {
      const elapsed = performance.now() - startedAt
      while (calls.length < dueMs.length && dueMs[calls.length]! <= elapsed) calls.push(callOne(calls.length))
      // In workerd, clocks stand still until something is awaited.
      await new Promise(resolve => setTimeout(resolve, 1))
    }
    return Response.json(await Promise.all(calls))
  },
}
