/**
 * Redis over HTTP, by the real @upstash/redis client: the Upstash service, or the REST bridge in front of any
 * Redis. One delivery per call: a script that spends is never sent again because an answer was not seen.
 */
import { errors, Redis } from '@upstash/redis/cloudflare'
import { GatewayError } from '../errors.ts'
import { startDeadline, timedOut } from './deadline.ts'
import { inEnvironment } from './keys.ts'
import type { PlainCall, ScriptCall, Store, StoreCall } from './store.ts'

export interface UpstashOptions {
  url: string
  token: string
  /** For the whole of one call, a second delivery after NOSCRIPT included; see deadline.ts. */
  deadlineMs: number
  keyLocking: boolean
  cluster?: boolean
  /** The store sees only the keys of this environment. */
  environment?: string | undefined
}

export function upstashStore(options: UpstashOptions): Store {
  const { url, token, deadlineMs, keyLocking, cluster, environment } = options

  /** With the flag, Upstash refuses keys that are not declared; without, it locks the database for the call. */
  const scriptFor = ({ script, hasHiddenKeys }: ScriptCall) =>
    keyLocking && !hasHiddenKeys ? script.keyLocking : script.plain

  /** Set while a call is being sent, and at no other time: nothing of one request is kept for another. */
  let sending: AbortSignal | undefined

  // One for the isolate, as it keeps nothing of a call: a client has 200 functions of its own, and made for each call it took
  // 25 µs on Workers.
  const redis = clientOf({
    url,
    token,
    // retries: 0 and not `retry: false`, which still sends twice.
    retry: { retries: 0 },
    // A function: with a bare signal, an aborted call resolves with a made-up reply. The client calls it before its first await.
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
    const deadline = startDeadline(deadlineMs)
    // The reason comes from the deadline and not from the error: workerd passes on a copy of what a signal was aborted with.
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

  /** One pipeline; calls whose script was missing are sent again with its text, in a second one. */
  async function runAll(
    send: Send,
    calls: readonly StoreCall[],
    toStoreError: ToStoreError,
  ): Promise<unknown[]> {
    const hashed = redis.pipeline()
    for (const call of calls) {
      if (isPlain(call)) addPlain(hashed, call)
      else hashed.evalsha(scriptFor(call).sha1, [...call.keys], [...call.args])
    }
    const answers: Answer[] = await send(() => hashed.exec({ keepErrors: true }))

    const missing = [...calls.entries()].flatMap(([i, call]) =>
      !isPlain(call) && answers[i]?.error?.startsWith('NOSCRIPT') ? [{ i, call }] : [],
    )
    if (missing.length > 0) {
      const whole = redis.pipeline()
      for (const { call } of missing) whole.eval(scriptFor(call).source, [...call.keys], [...call.args])
      // The replies of the first pipeline stand, also when the second one fails.
      const late: Answer[] = await send(() => whole.exec({ keepErrors: true })).catch(error =>
        missing.map(() => ({ failure: toStoreError(error) })),
      )
      for (const [n, { i }] of missing.entries()) answers[i] = late[n]!
    }
    return answers.map(
      ({ result, error, failure }) =>
        failure ?? (error === undefined ? result : storeError(new errors.UpstashError(error))),
    )
  }

  return {
    isCluster: cluster ?? false,

    async run(asked) {
      const calls = asked.map(call => placed(call, environment))
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

/** @throws GatewayError without the URL, which may hold a password: the client's own message quotes it */
function clientOf(settings: ConstructorParameters<typeof Redis>[0]): Redis {
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

function placed(call: StoreCall, environment: string | undefined): StoreCall {
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

/** Messages of the client quote the whole command, keys included, so none of their text is passed on. */
function storeError(error: unknown): GatewayError {
  // Before UpstashError, which it extends.
  if (error instanceof errors.UpstashJSONParseError) {
    return new GatewayError('ERR_STORE_REPLY_INVALID', "The store's reply is not valid JSON.")
  }
  if (error instanceof errors.UpstashError) {
    // The words of the bridge for a Redis that is gone or slow: the client does not pass on the HTTP status.
    if (error.message.startsWith('ERR Redis cannot be reached')) return unreachable()
    if (error.message.startsWith('ERR Redis did not answer in time')) return timedOut()
    if (QUOTA.test(error.message)) {
      return new GatewayError(
        'ERR_STORE_QUOTA',
        'The store refused the call, because its plan allows no more requests.',
      )
    }
    const kind = /^[A-Z]{2,20}/.exec(error.message)?.[0] ?? 'an error'
    return new GatewayError('ERR_STORE_REFUSED', `The store answered ${kind}.`)
  }
  // The client throws a TypeError of its own for a pipeline's reply that is not a list. A failed connection is one, too.
  if (error instanceof TypeError && STUMBLED.test(error.message)) {
    return new GatewayError('ERR_STORE_REPLY_INVALID', "The store's reply is not a list of results.")
  }
  return unreachable()
}

/**
 * What Upstash answers when an account has reached the limits of its plan, or is throttled. That is not an outage.
 * (Its documentation has `ERR max daily request limit exceeded` and `ERR max requests limit exceeded`; the others are
 * messages that gateways send with a 429.)
 */
const QUOTA =
  /^(ERR )?(max (daily |monthly )?requests? limit|max bandwidth|too many requests|rate limit|throttled)/i

/** In the words of V8, which Workers and Node have. */
const STUMBLED = /^Cannot (read|destructure)|is not (a function|iterable)/

const unreachable = () => new GatewayError('ERR_STORE_UNREACHABLE', 'The store could not be reached.')
