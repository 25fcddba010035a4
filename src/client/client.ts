/** A `fetch` that keeps to the limits of the APIs it calls. */
import { NEVER } from './budget.ts'
import { createLanes, type Lanes, unlessAborted } from './lanes.ts'
import { LimitError } from './limit-error.ts'

type Fetch = typeof fetch
type Input = Parameters<Fetch>[0]
type Init = Parameters<Fetch>[1]
type Identity = Readonly<Record<string, string | number>>

interface Units {
  allowed: boolean
  retryAfterMs: number
  release(): void
}

/** What the client uses of a limiter, such as that of `createLimiter`. */
export interface ClientLimiter {
  /** Rejects with the reason of the signal, and then keeps no place and no units. */
  acquire(
    name: string,
    identity?: Identity,
    options?: { timeoutMs?: number; signal?: AbortSignal },
  ): Promise<Units>
  /** Stops a limit in all processes. */
  pause?(name: string, identity: Identity, pause: { forMs: number }): Promise<unknown>
}

export interface ClientOptions {
  /** A call waits at most this long in all (ms); otherwise it is rejected with a `LimitError`. Default: 30 s. */
  maxWaitMs?: number
  /**
   * Which refused requests are repeated: `safe`, the default, are GET, HEAD and OPTIONS, and those with an `Idempotency-Key`. A body
   * that is a stream is never repeated. The reply to any other refused request is returned.
   */
  retry?: 'safe' | 'all'
  /** How often a request is repeated at most. Default: 5. */
  maxRetries?: number
  /** Names calls to one origin that have limits of their own, such as those of another account. Default: all calls share them. */
  partition?: string
  /** A limiter that each call asks first, and the name and the identity of its limit. */
  limiter?: ClientLimiter
  limit?: string
  identity?: Identity
  /** What sends the requests. Default: the `fetch` of the platform, of which only the call is needed: that of Bun also has members. */
  fetch?: (input: Input, init?: Init) => Promise<Response>
}

/** The longest timer of the platforms (ms). */
const MAX_TIMER_MS = 2 ** 31 - 1

/** All clients of a process share what they know. */
const SHARED = createLanes({
  polls: (globalThis as { navigator?: { userAgent?: string } }).navigator?.userAgent === 'Cloudflare-Workers',
  now: () => performance.now(),
  wall: Date.now,
  timer(ms, run) {
    const timer = setTimeout(run, ms)
    return () => clearTimeout(timer)
  },
  random: Math.random,
})

/**
 * Makes a `fetch` that spreads its calls over what an API allows, waits, and repeats what was refused. It reads `RateLimit`,
 * `RateLimit-Policy`, `X-RateLimit-*` and `Retry-After`.
 *
 *     const fetch = createClient()
 *     const reply = await fetch('https://api.example.com/orders')
 *
 * The function that it returns rejects with a `LimitError` instead of waiting longer than `maxWaitMs`.
 * @throws TypeError for an unknown option
 */
export function createClient(options: ClientOptions = {}): Fetch {
  const unknown = Object.keys(options).find(option => !OPTIONS.includes(option))
  if (unknown !== undefined)
    throw new TypeError(`createClient has no option '${unknown}'. Options: ${OPTIONS.join(', ')}.`)
  return clientOn(SHARED, options)
}

const OPTIONS = [
  ...['maxWaitMs', 'retry', 'maxRetries', 'partition'],
  ...['limiter', 'limit', 'identity', 'fetch'],
]

/** @internal A client with lanes of its own, for tests. */
export function clientOn(lanes: Lanes, options: ClientOptions): Fetch {
  const { retry, maxRetries = 5, partition = '', limiter, limit = '', identity = {} } = options
  const maxWaitMs = Math.min(options.maxWaitMs ?? 30_000, MAX_TIMER_MS)

  async function limitedFetch(input: Input, init?: Init): Promise<Response> {
    // Of a text and of a URL, all are absent.
    const request = input as Partial<Request>
    // In browsers, an address can be relative to the page.
    const { location } = globalThis as { location?: { href: string } }
    const url = new URL(request.url ?? `${input}`, location?.href)
    const signal = init?.signal === undefined ? request.signal : init.signal
    const deadline = lanes.now() + maxWaitMs
    const isSafe = canRepeat(request, init, retry)
    for (let retries = 0; ; retries++) {
      const isRepeated = isSafe && retries < maxRetries
      const call = await lanes.enter(url, partition, isRepeated, deadline, signal)
      let acquired: Promise<Units> | undefined
      let response: Response
      try {
        acquired = limiter?.acquire(limit, identity, {
          timeoutMs: Math.max(0, deadline - lanes.now()),
          ...(signal && { signal }),
        })
        const units = acquired && (await unlessAborted(acquired, signal))
        if (units && !units.allowed)
          throw new LimitError(units.retryAfterMs < 0 ? NEVER : units.retryAfterMs, url.origin, limit)
        response = await (options.fetch ?? fetch)(input, init)
      } catch (error) {
        lanes.fail(call)
        throw error
      } finally {
        // Also if the call was aborted before the units were there.
        acquired?.then(units => units.release()).catch(() => {})
      }
      const refusal = lanes.settle(call, response, partition)
      if (!refusal) return response
      const [pauseMs, isNamed, policy] = refusal
      // It waits for its turn again, which the deadline ends.
      if (!pauseMs) retries--
      // If the limiter fails, this process pauses in any case.
      const pause = pauseMs && limiter?.pause?.(limit, identity, { forMs: pauseMs }).catch(() => {})
      if (pause) await unlessAborted(pause, signal)
      const isTooLong = lanes.now() + pauseMs >= deadline
      if (!isSafe || retries >= maxRetries || (isTooLong && !isNamed)) return response
      // Frees the connection. The body may have failed already.
      response.body?.cancel().catch(() => {})
      if (isTooLong) throw new LimitError(pauseMs, url.origin, policy)
    }
  }
  return limitedFetch as Fetch
}

/** Whether a request can be sent again: it has no effect if it is repeated, and its body can be read again. */
function canRepeat(request: Partial<Request>, init: Init, retry: ClientOptions['retry']): boolean {
  if (/^(get|head|options)$/i.test(init?.method ?? request.method ?? 'GET')) return true
  const body = Object(init?.body ?? request.body)
  const isStream = Symbol.asyncIterator in body || 'getReader' in body
  return (
    !isStream && (retry === 'all' || new Headers(init?.headers ?? request.headers).has('idempotency-key'))
  )
}
