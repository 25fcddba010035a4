/**
 * Redis over HTTP, with the @upstash/redis client: the Upstash service, or the REST bridge in front of any Redis. A script that
 * spends is not sent again if its reply was lost.
 */
import { errors, Redis } from '@upstash/redis/cloudflare'
import { GatewayError } from '../errors.ts'
import { type DeadlineClock, startDeadline, timeoutError } from './deadline.ts'
import { inEnvironment } from './keys.ts'
import type { PlainCall, ScriptCall, Store, StoreCall } from './store.ts'

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
 * @throws GatewayError ERR_CONFIG_INVALID if the client rejects the URL
 */
export function upstashStore(options: UpstashOptions, clock?: DeadlineClock): Store {
  const { url, token, deadlineMs, keyLocking, cluster, environment } = options

  /** With the flag, Upstash rejects access to undeclared keys. Without it, Upstash locks the whole database for the call. */
  const scriptFor = ({ script, hasHiddenKeys }: ScriptCall) =>
    keyLocking && !hasHiddenKeys ? script.keyLocking : script.plain

  /** The signal of the call that is being sent. It is unset at all other times, so nothing is kept from one request to another. */
  let sending: AbortSignal | undefined

  // One client for the isolate, because it keeps nothing of a call. A client has 200 functions; creating one for each call took
  // 25 µs on Workers.
  const redis = createClient({
    url,
    token,
    // Not `retry: false`, which still sends twice.
    retry: { retries: 0 },
    // A function, because with a plain signal an aborted call resolves with a made-up reply. The client calls it before its first await.
    signal: () => {
      if (!sending) throw new TypeError('A call to the store has no deadline.')
      return sending
    },
    enableAutoPipelining: false,
    automaticDeserialization: false,
    responseEncoding: false,
    readYourWrites: false,
    enableTelemetry: false,
  })

  async function withinDeadline<T>(work: (send: Send, toStoreError: ToStoreError) => Promise<T>): Promise<T> {
    const deadline = startDeadline(deadlineMs, clock)
    // The reason is read from the deadline and not from the error, because workerd passes on a copy of the abort reason.
    const toStoreError: ToStoreError = error => deadline.failure() ?? storeError(error)
    try {
      return await work(call => {
        sending = deadline.signal
        try {
          return call()
        } finally {
          sending = undefined
        }
      }, toStoreError)
    } catch (error) {
      throw toStoreError(error)
    } finally {
      deadline.end()
    }
  }

  async function runOne(send: Send, call: ScriptCall): Promise<unknown> {
    const { keys, args } = call
    const script = scriptFor(call)
    try {
      return await send(() => redis.evalsha(script.sha1, [...keys], [...args]))
    } catch (error) {
      // The script was not run, so sending it again cannot spend twice.
      if (!isNoScript(error)) throw error
    }
    return await send(() => redis.eval(script.source, [...keys], [...args]))
  }

  /** Runs the calls in one pipeline. Calls whose script is missing in Redis are sent again with its source, in a second one. */
  async function runAll(
    send: Send,
    calls: readonly StoreCall[],
    toStoreError: ToStoreError,
  ): Promise<unknown[]> {
    const byHash = redis.pipeline()
    for (const call of calls) {
      if (isPlain(call)) addPlain(byHash, call)
      else byHash.evalsha(scriptFor(call).sha1, [...call.keys], [...call.args])
    }
    const answers: Answer[] = await send(() => byHash.exec({ keepErrors: true }))

    const missing = [...calls.entries()].flatMap(([i, call]) =>
      !isPlain(call) && answers[i]?.error?.startsWith('NOSCRIPT') ? [{ i, call }] : [],
    )
    if (missing.length > 0) {
      const bySource = redis.pipeline()
      for (const { call } of missing) bySource.eval(scriptFor(call).source, [...call.keys], [...call.args])
      // If the second pipeline fails, the replies of the first one remain valid.
      const repeated: Answer[] = await send(() => bySource.exec({ keepErrors: true })).catch(error =>
        missing.map(() => ({ failure: toStoreError(error) })),
      )
      for (const [n, { i }] of missing.entries()) answers[i] = repeated[n]!
    }
    return answers.map(
      ({ result, error, failure }) =>
        failure ?? (error === undefined ? result : storeError(new errors.UpstashError(error))),
    )
  }

  return {
    isCluster: cluster ?? false,

    async run(storeCalls) {
      const calls = storeCalls.map(call => prefixKeys(call, environment))
      const [only] = calls
      return await withinDeadline(async (send, toStoreError) =>
        calls.length === 1 && !isPlain(only!)
          ? [await runOne(send, only!)]
          : await runAll(send, calls, toStoreError),
      )
    },

    async ping() {
      await withinDeadline(send => send(() => redis.ping()))
    },
  }
}

/** @throws GatewayError without the URL, which may contain a password. The client's own message quotes it */
function createClient(settings: ConstructorParameters<typeof Redis>[0]): Redis {
  try {
    return new Redis(settings)
  } catch {
    throw new GatewayError(
      'ERR_CONFIG_INVALID',
      'The URL of the store is not valid. Use the http or https URL of its REST API.',
    )
  }
}

const isPlain = (call: StoreCall): call is PlainCall => 'command' in call

function addPlain(pipeline: ReturnType<Redis['pipeline']>, call: PlainCall): void {
  switch (call.command) {
    case 'GET':
      return void pipeline.get(call.key)
    case 'HINCRBY':
      return void pipeline.hincrby(call.key, call.field, call.by)
    case 'EXPIRE':
      return void pipeline.expire(call.key, call.seconds)
  }
}

function prefixKeys(call: StoreCall, environment: string | undefined): StoreCall {
  if (isPlain(call)) return { ...call, key: inEnvironment(call.key, environment) }
  return { ...call, keys: call.keys.map(key => inEnvironment(key, environment)) }
}

/** Sends a call of the client under the deadline. */
type Send = <T>(call: () => Promise<T>) => Promise<T>

type ToStoreError = (error: unknown) => GatewayError

interface Answer {
  result?: unknown
  error?: string
  failure?: GatewayError
}

function isNoScript(error: unknown): boolean {
  return error instanceof errors.UpstashError && error.message.startsWith('NOSCRIPT')
}

/** The GatewayError for an error of the client. Messages of the client quote the whole command, including keys, so they are not passed on. */
function storeError(error: unknown): GatewayError {
  // UpstashJSONParseError extends UpstashError, so it is checked first.
  if (error instanceof errors.UpstashJSONParseError) {
    return new GatewayError('ERR_STORE_REPLY_INVALID', "The store's reply is not valid JSON.")
  }
  if (error instanceof errors.UpstashError) {
    // The bridge's messages for a Redis that is down or slow. The client does not pass on the HTTP status.
    if (error.message.startsWith('ERR Redis cannot be reached'))
      return unreachableError('The bridge cannot reach its Redis.')
    if (error.message.startsWith('ERR Redis did not answer in time')) return timeoutError()
    if (QUOTA.test(error.message)) {
      return new GatewayError(
        'ERR_STORE_QUOTA',
        'The store refused the call, because its plan allows no more requests.',
      )
    }
    const kind = /^[A-Z]{2,20}/.exec(error.message)?.[0] ?? 'an error'
    const fix = TOKEN_ERROR.test(kind) ? ' Check UPSTASH_REDIS_REST_TOKEN.' : ''
    return new GatewayError('ERR_STORE_REFUSED', `The store answered ${kind}.${fix}`)
  }
  // The client throws a TypeError if the reply of a pipeline is not a list. A failed connection is a TypeError, too.
  if (error instanceof TypeError && CLIENT_CRASH.test(error.message)) {
    return new GatewayError('ERR_STORE_REPLY_INVALID', "The store's reply is not a list of results.")
  }
  // Cloudflare bounds the calls of one request: 50 with Workers Free.
  if (error instanceof Error && /too many subrequests/i.test(error.message)) {
    return new GatewayError('ERR_STORE_CALLS_EXHAUSTED', 'The platform allows this request no more calls.')
  }
  return unreachableError(`The store could not be reached${codeText(error)}.`)
}

/**
 * Error messages of Upstash if an account has reached the limits of its plan, or is throttled. This is not an outage. The
 * documentation of Upstash has `ERR max daily request limit exceeded` and `ERR max requests limit exceeded`. The others are common
 * messages of gateways with status 429.
 */
const QUOTA =
  /^(ERR )?(max (daily |monthly )?requests? limit|max bandwidth|too many requests|rate limit|throttled)/i

/** Messages of V8, the engine of Workers and Node, for a TypeError inside the client. */
const CLIENT_CRASH = /^Cannot (read|destructure)|is not (a function|iterable)/

/** A 401, as Upstash and the bridge answer it. */
const TOKEN_ERROR = /^(WRONGPASS|NOAUTH)$/

/** ` (ECONNREFUSED)`. Only the code, because messages can quote the URL. Workers report no code. */
function codeText(error: unknown): string {
  const { cause, code } = error as { cause?: { code?: unknown }; code?: unknown }
  const text = String(cause?.code ?? code)
  return /^[A-Z][A-Z_\d]+$/.test(text) ? ` (${text})` : ''
}

const unreachableError = (message: string) => new GatewayError('ERR_STORE_UNREACHABLE', message)
