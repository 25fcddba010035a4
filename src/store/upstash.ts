/**
 * Redis over HTTP: the Upstash service, or the REST bridge in front of any Redis. A script that spends is not sent again if its reply
 * was lost.
 */
import { GatewayError } from '../errors.ts'
import { type Deadline, type DeadlineClock, timeoutError } from './deadline.ts'
import { codeText, refusal, unreachableError } from './refusal.ts'
import type { Store } from './store.ts'
import { storeOn } from './store-on.ts'
import { type RestAnswer, type RestCommand, RestError, upstashClient } from './upstash-client.ts'

export interface UpstashOptions {
  url: string
  token: string
  /** The deadline of one call, including the second delivery after NOSCRIPT (deadline.ts). */
  deadlineMs: number
  /** Whether to run scripts with `flags=allow-key-locking` (Upstash only). */
  keyLocking: boolean
  /** Whether the store is a Redis Cluster. Default: false. */
  cluster?: boolean
  /** The environment whose keys the store accesses. */
  environment?: string | undefined
}

/**
 * Creates the store.
 * @param clock of the deadlines; tests pass their own
 * @throws GatewayError ERR_CONFIG_INVALID if the URL is not valid
 */
export function upstashStore(options: UpstashOptions, clock?: DeadlineClock): Store {
  const { url, token, keyLocking } = options
  const sendOnce = upstashClient({ url, token })

  async function send(commands: readonly RestCommand[], deadline: Deadline): Promise<RestAnswer[]> {
    try {
      return await sendOnce(commands, deadline.signal)
    } catch (error) {
      // A single command that fails is answered with an error for the whole request.
      if (commands.length === 1 && error instanceof RestError && error.message !== '')
        return [{ error: error.message }]
      // The reason is read from the deadline and not from the error, because workerd passes on a copy of the abort reason.
      throw deadline.failure() ?? failureOf(error)
    }
  }

  return storeOn({
    ...options,
    send,
    refusal: refusalOf,
    // With the flag, Upstash rejects access to undeclared keys. Without it, Upstash locks the whole database for the call.
    textOf: ({ script, hasHiddenKeys }) => (keyLocking && !hasHiddenKeys ? script.keyLocking : script.plain),
    clock,
  })
}

/** The GatewayError for whatever ends a request. Messages of the store can quote keys, and those of `fetch` the URL, so neither is passed on. */
export function failureOf(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error
  if (error instanceof RestError) return refusalOf(error.message, error.isOfSome)
  // Cloudflare bounds the calls of one request: 50 with Workers Free.
  if (error instanceof Error && /too many subrequests/i.test(error.message)) {
    return new GatewayError('ERR_STORE_CALLS_EXHAUSTED', 'The platform allows this request no more calls.')
  }
  return (error as Error).name === 'TimeoutError' ? timeoutError() : unreachableError(codeText(error))
}

/** The GatewayError for an error that the store has answered. @param isOfSome whether other commands of the request were answered */
function refusalOf(message: string, isOfSome = false): GatewayError {
  // The bridge's messages for a Redis that is down or slow.
  if (message.startsWith('ERR Redis cannot be reached'))
    return new GatewayError('ERR_STORE_UNREACHABLE', 'The bridge cannot reach its Redis.')
  if (message.startsWith('ERR Redis did not answer in time')) return timeoutError()
  if (QUOTA.test(message)) {
    return new GatewayError(
      'ERR_STORE_QUOTA',
      'The store refused the call, because its plan allows no more requests.',
    )
  }
  // An error of Redis begins with its code. Any other answer is of a server between here and Redis, perhaps after the call has run.
  if (OF_SERVER.test(message) || !/^([A-Z]{2,20}\b|Unauthorized)/.test(message))
    return unreachableError(' (the answer is not one of Redis)')
  return refusal(message, REMEDIES, isOfSome)
}

/** Errors of a server between here and Redis that look like one of Redis. */
const OF_SERVER = /^ERR (internal|bad gateway|service unavailable|gateway timeout)/i

const REMEDIES = {
  credentials: 'Check UPSTASH_REDIS_REST_TOKEN.',
  permission: 'its token is read-only, or its Redis user lacks a permission',
}

/**
 * Error messages of Upstash if an account has reached the limits of its plan, or is throttled. This is not an outage. The
 * documentation of Upstash has `ERR max daily request limit exceeded` and `ERR max requests limit exceeded`, and no status for them. The
 * others are common messages of gateways.
 */
const QUOTA =
  /^(ERR )?(max (daily |monthly )?requests? limit|max bandwidth|too many requests|rate limit|throttled)/i
