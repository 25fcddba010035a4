/**
 * Redis over HTTP: the Upstash service, or the REST bridge in front of any Redis. A script that spends is not sent again if its reply
 * was lost.
 */
import { GatewayError } from '../errors.ts'
import { type DeadlineClock, startDeadline, timeoutError } from './deadline.ts'
import { inEnvironment } from './keys.ts'
import { createRestConnection, type RestAnswer, type RestCommand, RestError } from './rest.ts'
import type { ScriptCall, ScriptText, Store, StoreCall } from './store.ts'

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

  /** With the flag, Upstash rejects access to undeclared keys. Without it, Upstash locks the whole database for the call. */
  const textFor = ({ script, hasHiddenKeys }: ScriptCall): ScriptText =>
    keyLocking && !hasHiddenKeys ? script.keyLocking : script.plain

  const at = (key: string) => inEnvironment(key, environment)

  const scriptCommand = (name: string, script: string, { keys, args }: ScriptCall): RestCommand => [
    ...([name, script, keys.length] as const),
    ...keys.map(at),
    ...args,
  ]

  function commandFor(call: StoreCall): RestCommand {
    if (!('command' in call)) return scriptCommand('EVALSHA', textFor(call).sha1, call)
    switch (call.command) {
      case 'GET':
        return ['GET', at(call.key)]
      case 'HINCRBY':
        return ['HINCRBY', at(call.key), call.field, call.by]
      case 'EXPIRE':
        return ['EXPIRE', at(call.key), call.seconds]
    }
  }

  async function withinDeadline<T>(work: (send: Send, toStoreError: ToStoreError) => Promise<T>): Promise<T> {
    const deadline = startDeadline(deadlineMs, clock)
    // The reason is read from the deadline and not from the error, because workerd passes on a copy of the abort reason.
    const toStoreError: ToStoreError = error => deadline.failure() ?? failureOf(error)
    try {
      return await work(commands => connection(commands, deadline.signal), toStoreError)
    } catch (error) {
      throw toStoreError(error)
    } finally {
      deadline.end()
    }
  }

  /** Runs the calls in one HTTP request. Calls whose script is missing in Redis are sent again with its source, in a second one. */
  async function runAll(
    send: Send,
    calls: readonly StoreCall[],
    toStoreError: ToStoreError,
  ): Promise<unknown[]> {
    const answers: Answer[] = await sendKeepingErrors(send, calls.map(commandFor))
    // These scripts were not run, so sending them again cannot spend twice.
    const missing = [...calls.entries()].flatMap(([i, call]) =>
      'script' in call && answers[i]!.error?.startsWith('NOSCRIPT') ? [{ i, call }] : [],
    )
    if (missing.length > 0) {
      const bySource = missing.map(({ call }) => scriptCommand('EVAL', textFor(call).source, call))
      // If the second request fails, the replies of the first one remain valid.
      const repeated: Answer[] = await sendKeepingErrors(send, bySource).catch(error =>
        missing.map(() => ({ failure: toStoreError(error) })),
      )
      for (const [n, { i }] of missing.entries()) answers[i] = repeated[n]!
    }
    const replies = answers.map(
      ({ result, error, failure }) => failure ?? (error === undefined ? result : refusal(error)),
    )
    if (replies.length === 1 && replies[0] instanceof GatewayError) throw replies[0]
    return replies
  }

  return {
    isCluster: cluster ?? false,
    run: calls => withinDeadline((send, toStoreError) => runAll(send, calls, toStoreError)),
    ping: () => withinDeadline(async send => void (await send([['PING']]))),
  }
}

/** Sends commands under the deadline. */
type Send = (commands: readonly RestCommand[]) => Promise<RestAnswer[]>

type ToStoreError = (error: unknown) => GatewayError

interface Answer extends RestAnswer {
  failure?: GatewayError
}

/** A single command that fails is answered with an error for the whole request. */
async function sendKeepingErrors(send: Send, commands: readonly RestCommand[]): Promise<Answer[]> {
  try {
    return await send(commands)
  } catch (error) {
    if (commands.length === 1 && error instanceof RestError && error.status === 400)
      return [{ error: error.message }]
    throw error
  }
}

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
  const kind = /^[A-Z]{2,20}/.exec(message)?.[0] ?? 'an error'
  const fix = TOKEN_ERROR.test(kind) ? ' Check UPSTASH_REDIS_REST_TOKEN.' : ''
  return new GatewayError('ERR_STORE_REFUSED', `The store answered ${kind}.${fix}`)
}

/**
 * Error messages of Upstash if an account has reached the limits of its plan, or is throttled. This is not an outage. The
 * documentation of Upstash has `ERR max daily request limit exceeded` and `ERR max requests limit exceeded`, and no status for them. The
 * others are common messages of gateways.
 */
const QUOTA =
  /^(ERR )?(max (daily |monthly )?requests? limit|max bandwidth|too many requests|rate limit|throttled)/i

/** A 401, as Upstash and the bridge answer it. */
const TOKEN_ERROR = /^(WRONGPASS|NOAUTH)$/

/** ` (ECONNREFUSED)`. Only the code, because messages can quote the URL. Workers report no code. */
function codeText(error: unknown): string {
  const { cause, code } = error as { cause?: { code?: unknown }; code?: unknown }
  const text = String(cause?.code ?? code)
  return /^[A-Z][A-Z_\d]+$/.test(text) ? ` (${text})` : ''
}

const unreachableError = (message: string) => new GatewayError('ERR_STORE_UNREACHABLE', message)
