/**
 * Redis over HTTP: the Upstash service, or the REST bridge in front of any Redis. A script that spends is not sent again if its reply
 * was lost.
 */
import { GatewayError } from '../errors.ts'
import { type Deadline, type DeadlineClock, startDeadline, timeoutError } from './deadline.ts'
import { inEnvironment } from './keys.ts'
import { createRestConnection, type RestAnswer, type RestCommand, RestError } from './rest.ts'
import type { Store, StoreCall } from './store.ts'

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
  const { url, token, deadlineMs, keyLocking, cluster, environment } = options
  const connection = createRestConnection(url, token)

  const at = (key: string) => inEnvironment(key, environment)

  function commandFor(call: StoreCall | Ping, textBy: 'sha1' | 'source'): RestCommand {
    if ('script' in call) {
      const { script, hasHiddenKeys, keys, args } = call
      // With the flag, Upstash rejects access to undeclared keys. Without it, Upstash locks the whole database for the call.
      const text = keyLocking && !hasHiddenKeys ? script.keyLocking : script.plain
      const name = textBy === 'sha1' ? 'EVALSHA' : 'EVAL'
      return [name, text[textBy], keys.length, ...keys.map(at), ...args]
    }
    return 'key' in call ? [call.command, at(call.key)] : [call.command]
  }

  /** @throws GatewayError */
  async function send(commands: readonly RestCommand[], deadline: Deadline): Promise<RestAnswer[]> {
    try {
      return await connection(commands, deadline.signal)
    } catch (error) {
      // A single command that fails is answered with an error for the whole request.
      if (commands.length === 1 && error instanceof RestError && error.status === 400)
        return [{ error: error.message }]
      // The reason is read from the deadline and not from the error, because workerd passes on a copy of the abort reason.
      throw deadline.failure() ?? failureOf(error)
    }
  }

  /** Runs the calls in one HTTP request. Calls whose script is missing in Redis are sent again in a second one, which has the script. */
  async function run(calls: readonly (StoreCall | Ping)[]): Promise<unknown[]> {
    const deadline = startDeadline(deadlineMs, clock)
    try {
      const bySha1 = calls.map(call => commandFor(call, 'sha1'))
      const answers = await send(bySha1, deadline)
      const replies = answers.map(replyOf)
      // These scripts were not run, so sending them again cannot spend twice.
      const missing = [...calls.keys()].filter(i => answers[i]!.error?.startsWith('NOSCRIPT'))
      if (missing.length > 0) {
        // The first call of each script has its source, because a source can have 650 kB, and a request at most 10 MB. The nodes of a
        // cluster do not share their scripts, so there each call has the source.
        const sent = new Set<unknown>()
        const bySource = missing.map(i => {
          const [, sha1] = bySha1[i]!
          if (sent.has(sha1) && !cluster) return bySha1[i]!
          sent.add(sha1)
          return commandFor(calls[i]!, 'source')
        })
        // If the second request fails, the replies of the first one remain valid.
        const repeated = await send(bySource, deadline).then(
          answers => answers.map(replyOf),
          failure => missing.map(() => failure),
        )
        for (const [n, i] of missing.entries()) replies[i] = repeated[n]
      }
      if (replies.length === 1 && replies[0] instanceof GatewayError) throw replies[0]
      return replies
    } finally {
      deadline.end()
    }
  }

  return {
    isCluster: cluster ?? false,
    run: calls => run(calls),
    ping: async () => void (await run([{ command: 'PING' }])),
  }
}

interface Ping {
  command: 'PING'
}

const replyOf = ({ result, error }: RestAnswer) => (typeof error === 'string' ? refusal(error) : result)

/** The GatewayError for whatever ends a request. Messages of the store can quote keys, and those of `fetch` the URL, so neither is passed on. */
function failureOf(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error
  if (error instanceof RestError) return refusal(error.message, error.status)
  // Cloudflare bounds the calls of one request: 50 with Workers Free.
  if (error instanceof Error && /too many subrequests/i.test(error.message)) {
    return new GatewayError('ERR_STORE_CALLS_EXHAUSTED', 'The platform allows this request no more calls.')
  }
  return unreachableError(`The store could not be reached${codeText(error)}.`)
}

/** The GatewayError for an error that the store has answered. @param status of HTTP, if the whole request was refused */
function refusal(message: string, status = 200): GatewayError {
  // The bridge's messages for a Redis that is down or slow.
  if (message.startsWith('ERR Redis cannot be reached'))
    return unreachableError('The bridge cannot reach its Redis.')
  if (message.startsWith('ERR Redis did not answer in time')) return timeoutError()
  if (status === 429 || QUOTA.test(message)) {
    return new GatewayError(
      'ERR_STORE_QUOTA',
      'The store refused the call, because its plan allows no more requests.',
    )
  }
  // Something between here and Redis has failed, perhaps after the call has run.
  if (status >= 500) return unreachableError(`The store could not be reached (HTTP ${status}).`)
  // Redirections are not followed.
  if (status >= 300 && status < 400) {
    return new GatewayError(
      'ERR_STORE_REFUSED',
      `The store answered with a redirection (HTTP ${status}). Check UPSTASH_REDIS_REST_URL.`,
    )
  }
  if (NO_PERMISSION.test(message))
    return new GatewayError(
      'ERR_STORE_REFUSED',
      'The store answered NOPERM: its token is read-only, or its Redis user lacks a permission (docs/deploy.md#your-own-redis).',
    )
  const kind = /^[A-Z]{2,20}/.exec(message)?.[0] ?? (status > 400 ? `HTTP ${status}` : 'an error')
  const fix = TOKEN_ERROR.test(kind) || status === 401 ? ' Check UPSTASH_REDIS_REST_TOKEN.' : ''
  return new GatewayError('ERR_STORE_REFUSED', `The store answered ${kind}.${fix}`)
}

/**
 * Error messages of Upstash if an account has reached the limits of its plan, or is throttled. This is not an outage. The
 * documentation of Upstash has `ERR max daily request limit exceeded` and `ERR max requests limit exceeded`, and no status for them. The
 * others are common messages of gateways.
 */
const QUOTA =
  /^(ERR )?(max (daily |monthly )?requests? limit|max bandwidth|too many requests|rate limit|throttled)/i

/** The user of Redis may not run a command, or not use a key. For a command in a script, the words depend on the version of Redis. */
export const NO_PERMISSION =
  /\bNOPERM\b|^(ERR )?(ACL failure in script|The user executing the script can't)\b/

/** A 401, as Upstash and the bridge answer it. */
const TOKEN_ERROR = /^(WRONGPASS|NOAUTH)$/

/** ` (ECONNREFUSED)`. Only the code, because messages can quote the URL. Workers report no code. */
function codeText(error: unknown): string {
  const { cause, code } = error as { cause?: { code?: unknown }; code?: unknown }
  const text = String(cause?.code ?? code)
  return /^[A-Z][A-Z_\d]+$/.test(text) ? ` (${text})` : ''
}

const unreachableError = (message: string) => new GatewayError('ERR_STORE_UNREACHABLE', message)
