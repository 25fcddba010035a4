/** What administration says about a store that fails: what is wrong, and what to do. No message has a key, a token or a command. */
import { GatewayError } from '../errors.ts'
import { NO_PERMISSION, unreachableError } from '../store/refusal.ts'
import { RestError } from '../store/upstash-client.ts'

/**
 * Describes a failed request.
 * @param how.test how to test the store
 * @returns `what` is the second half of a sentence that begins with the store
 */
export function describeFailure(
  error: unknown,
  { deadlineMs, test }: { deadlineMs: number; test: string },
): [what: string, nextStep?: string | undefined] {
  // Such as the web page of a server in front of the store.
  if (error instanceof GatewayError || (error instanceof RestError && error.message === ''))
    return ['does not answer as an Upstash REST API does.', test]
  if (error instanceof RestError) return describeErrorOfRedis(error.message)
  if (!(error instanceof Error)) return [LOST, test]
  if (/^(Timeout|Abort)Error$/.test(error.name)) {
    return [lateText(deadlineMs), test]
  }
  return [isUnreachable(error.cause) ? UNREACHABLE : LOST, test]
}

const MAY_BE_MADE = 'If this was a change, it may have been made: check before you repeat it.'

export const lateText = (deadlineMs: number) => `did not answer within ${deadlineMs / 1000} s. ${MAY_BE_MADE}`

/**
 * @param message of Redis, of Upstash or of the bridge
 * @param testOfCredentials what to do if they are wrong
 */
export function describeErrorOfRedis(
  message: string,
  testOfCredentials = TEST_OF_TOKEN,
): [what: string, nextStep?: string | undefined] {
  const text = shortened(message)
  if (BRIDGE_ERROR.test(text)) return ['is the bridge, and its Redis does not answer.', TEST_OF_REDIS]
  const isRefused = /^(WRONGPASS|NOAUTH)/.test(text)
  return [`answered with an error: ${text}`, isRefused ? testOfCredentials : fixFor(text)]
}

/** What to do about an error of the store at a URL. */
export const nextStepFor = (message: string, url: string): string => fixFor(message) ?? howToTest(url)

/** The first sentence of an error of Redis, which says what is wrong. Scripts add their digest after it. */
const shortened = (text: string) => (/^.{1,200}?\.(?=\s|$)/s.exec(text)?.[0] ?? text).slice(0, 200)

/** Redis answers, but refuses all changes, or what its user may not do. */
export function fixFor(message: string): string | undefined {
  const [code] = /\b(?:MISCONF|OOM)\b/.exec(message) ?? []
  if (NO_PERMISSION.test(message))
    return 'Its token is read-only, or its Redis user lacks a permission. docs/deploy.md#your-own-redis lists those that Sluice needs.'
  if (code === 'MISCONF')
    return 'Its Redis cannot write to its disk, so it refuses all changes. Find the cause in the log of Redis, such as a full disk, and run redis-cli BGSAVE after the repair.'
  return (
    code &&
    'Its Redis has no memory left, so it refuses all changes. Raise maxmemory of Redis, or choose a larger database.'
  )
}

/** The bridge's messages for a Redis that is down or slow (src/node/rest-bridge/redis-server.ts). */
const BRIDGE_ERROR = /^ERR Redis (cannot be reached|did not answer in time)/

const CURL =
  'curl "$UPSTASH_REDIS_REST_URL" -H "Authorization: Bearer $UPSTASH_REDIS_REST_TOKEN" -d \'["PING"]\''

const TEST_OF_TOKEN = `Check the token, from --token or UPSTASH_REDIS_REST_TOKEN. To test the variables:\n    ${CURL}`

const TEST_OF_REDIS =
  "Check the Redis of the bridge: its URL is in the bridge's --redis or REDIS_URL. To test it:\n    redis-cli -u redis://… PING"

/** How to test the store, and how to start one if it is on this machine. Repeats neither the URL nor the token, which may be secrets. */
export function howToTest(url: string): string {
  const test = `Check its URL, from --url or UPSTASH_REDIS_REST_URL. To test the variables:\n    ${CURL}`
  return isOnThisMachine(url) ? `${test}\n${LOCAL_STORE}` : test
}

/** @param url `http(s)://`, `redis(s)://` or `unix://` */
export function isOnThisMachine(url: string): boolean {
  const { protocol, hostname } = new URL(url)
  return protocol === 'unix:' || /^(localhost|127\.[\d.]+|\[::1\])$/i.test(hostname)
}

const LOCAL_STORE =
  'To start a local store, run npm start (npx sluicegate start): it prints both variables. To use a Redis of your own, run npx sluicegate bridge.'

export const LOST = `broke the connection before it answered. ${MAY_BE_MADE}`

/** Describes a store that no request has reached. */
export const UNREACHABLE = 'cannot be reached.'

/** The failure of a request that was not sent, without the address of the store. @param what describeFailure's description */
export const failureIfNotSent = (what: string): GatewayError | undefined =>
  what === UNREACHABLE ? unreachableError('', { fate: 'not-sent' }) : undefined

/** Whether no connection was made, so that nothing was sent. Only Node reports it; on other platforms the connection counts as lost. */
function isUnreachable(cause: unknown): boolean {
  const { code, message } = (cause ?? {}) as { code?: unknown; message?: unknown }
  // Fetch refuses to connect to some ports.
  if (message === 'bad port') return true
  return /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/.test(
    String(code),
  )
}
