/**
 * The store for administration: the same REST protocol and client as the gateway's, and the keys of one environment. Each command,
 * pipeline or transaction is one HTTP request. Keys that change together are in one hash slot.
 */
import { errors, Redis } from '@upstash/redis'
import type { Config } from '../config/compile.ts'
import { apiKeyStart } from '../credentials/api-key.ts'
import type { KeySecret } from '../credentials/key-signature.ts'
import { gatewayRuleSet, limitRuleSet } from '../script/compiled.ts'
import { inEnvironment } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { NO_PERMISSION, upstashStore } from '../store/upstash.ts'
import { AdminError } from './admin-error.ts'

const DEADLINE_MS = 5000

/** The most commands in one request, so that it stays far below Upstash's limit of 10 MB. */
const MAX_AT_ONCE = 1000

export interface AdminStoreOptions {
  url: string
  token: string
  environment?: string | undefined
  /** Prefix of API keys (`credentials.apiKeys.prefix`). Default: `slk`. */
  keyPrefix?: string
  /** The secret that signs new API keys. Absent: they are not signed. */
  keySecret?: KeySecret | undefined
  keyLocking?: boolean
  cluster?: boolean
}

type Pipeline = ReturnType<Redis['pipeline']>

export interface AdminStore {
  environment: string | undefined
  keyPrefix: string
  /** The first characters of every API key of this environment. */
  keyStart: string
  /** The secret that signs new API keys. */
  keySecret: KeySecret | undefined
  /** The store that decides, for peeking at limits and resetting them. */
  decisions: Store
  /** What to do about an error of `decisions`: by default, how to test whether the store answers. */
  nextStepFor(message: string): string
  /** Adds the environment to a key of src/store/keys.ts. */
  at(key: string): string
  /** Runs commands. @throws AdminError `store` */
  run<T>(commands: (redis: Redis) => Promise<T>): Promise<T>
  /** Runs one command for each item, in as few HTTP requests as possible. Not a transaction. @throws AdminError `store` */
  runEach<T, R>(items: readonly T[], add: (pipeline: Pipeline, item: T) => void): Promise<R[]>
  /**
   * Changes the text of a key by compare-and-set, so that concurrent changes are not lost.
   * @param change returns the new text, or undefined to delete the key. It is called again if another writer was faster.
   * @throws AdminError `refused` if other writers are always faster; `store`
   */
  change(key: string, change: (text: string | undefined) => NewText | undefined): Promise<void>
}

export interface NewText {
  text: string
  /** Absent: the expiry stays as it is. */
  expiry?: 'never' | Date
}

/**
 * Has a single key, so that it works on a cluster. ARGV: the old text, then the arguments that SET has after its key. Without
 * them, the key is deleted.
 */
const COMPARE_AND_SET = `
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if #ARGV == 1 then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], unpack(ARGV, 2)) end
return 1`

const ATTEMPTS = 10

export function createAdminStore(options: AdminStoreOptions): AdminStore {
  const {
    url,
    token,
    environment,
    keyPrefix = 'slk',
    keyLocking = true,
    cluster = false,
    keySecret,
  } = options
  const redis = new Redis({
    url,
    token,
    retry: { retries: 0 },
    signal: () => AbortSignal.timeout(DEADLINE_MS),
    enableAutoPipelining: false,
    // A digest can consist of digits only, and must stay text.
    automaticDeserialization: false,
    enableTelemetry: false,
  })

  const store: AdminStore = {
    environment,
    nextStepFor: message => fixFor(message) ?? howToTest(url),
    keyPrefix,
    keyStart: apiKeyStart(keyPrefix, environment),
    keySecret,
    decisions: upstashStore({ url, token, deadlineMs: DEADLINE_MS, keyLocking, cluster, environment }),
    at: key => inEnvironment(key, environment),

    async run(commands) {
      try {
        return await commands(redis)
      } catch (error) {
        const [what, nextStep] = describeFailure(error, howToTest(url))
        throw new AdminError('store', `The store at ${new URL(url).host} ${what}`, nextStep)
      }
    },

    async runEach<T, R>(items: readonly T[], add: (pipeline: Pipeline, item: T) => void) {
      const replies: R[] = []
      for (let from = 0; from < items.length; from += MAX_AT_ONCE) {
        const pipeline = redis.pipeline()
        for (const item of items.slice(from, from + MAX_AT_ONCE)) add(pipeline, item)
        replies.push(...(await store.run(() => pipeline.exec<R[]>())))
      }
      return replies
    },

    async change(key, change) {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        const before = await store.run(redis => redis.get<string>(store.at(key)))
        const after = change(before ?? undefined)
        const args = [before ?? '', ...(after ? [after.text, ...expiryOf(after)] : [])]
        const isDone = await store.run(redis => redis.eval(COMPARE_AND_SET, [store.at(key)], args))
        if (Number(isDone) === 1) return
      }
      throw new AdminError(
        'refused',
        'Another process is changing the same record at this moment. Nothing was changed. Try again.',
      )
    },
  }
  return store
}

function expiryOf({ expiry }: NewText): string[] {
  if (expiry === undefined) return ['KEEPTTL']
  return expiry === 'never' ? [] : ['PXAT', String(expiry.getTime())]
}

/** Loads the scripts of a config, so that not even the first decision, or the first refund on a cluster, has to send its script. */
export async function loadScriptsIntoRedis(
  store: AdminStore,
  config: Pick<Config, 'rules' | 'plans' | 'limits' | 'keyLocking'>,
): Promise<void> {
  const { keyLocking, limits } = config
  const ruleSets = [gatewayRuleSet(config), ...[...limits.values()].map(limitRuleSet)]
  for (const script of ruleSets
    .flatMap(({ decide, refund, settle }) => [decide, refund, settle ?? []])
    .flat()) {
    const { source } = keyLocking ? script.keyLocking : script.plain
    await store.run(redis => redis.scriptLoad(source))
  }
}

/**
 * Describes a failed call. The client's own messages quote the command and any reply that is not JSON.
 * @param test how to test the store
 * @returns `what` is the second half of a sentence that begins with the store
 */
function describeFailure(error: unknown, test: string): [what: string, nextStep?: string | undefined] {
  const isOther = 'does not answer as an Upstash REST API does.'
  if (error instanceof errors.UpstashJSONParseError) return [isOther, test]
  if (error instanceof errors.UpstashError) {
    const errorText = shortened(error.message.split(', command was:')[0]!)
    // The client writes this for an HTTP error whose body has no `error` field.
    if (/^(undefined|null|\[object Object\])$/.test(errorText)) return [isOther, test]
    if (BRIDGE_ERROR.test(errorText)) return ['is the bridge, and its Redis does not answer.', TEST_OF_REDIS]
    const isToken = /^(WRONGPASS|NOAUTH)/.test(errorText)
    const nextStep = isToken ? TEST_OF_TOKEN : fixFor(errorText)
    return [`answered with an error: ${errorText}`, nextStep]
  }
  if (!(error instanceof Error)) return [LOST, test]
  if (/^(Timeout|Abort)Error$/.test(error.name)) {
    const limit = `${DEADLINE_MS / 1000} s`
    return [
      `did not answer within ${limit}. If this was a change, it may have been made: check before you repeat it.`,
      test,
    ]
  }
  // A failed connection is a TypeError too, and has a cause on Node only.
  if (error instanceof TypeError && FOREIGN_REPLY.test(error.message)) return [isOther, test]
  return [isUnreachable(error.cause) ? 'cannot be reached.' : LOST, test]
}

/** The first sentence of an error of Redis, which says what is wrong. Scripts add their digest after it. */
const shortened = (text: string) => (/^.{1,200}?\.(?=\s|$)/s.exec(text)?.[0] ?? text).slice(0, 200)

/** Redis answers, but refuses all changes, or what its user may not do. */
function fixFor(message: string): string | undefined {
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
function howToTest(url: string): string {
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

/** Messages of the client for JSON that is not an Upstash reply: from its own check, or from reading a missing property. */
const FOREIGN_REPLY =
  /^Request did not return a result|^Cannot (read|destructure)|is not (a function|iterable)/

const LOST =
  'broke the connection before it answered. If this was a change, it may have been made: check before you repeat it.'

/** Whether no connection was made, so that nothing was sent. Only Node reports it; on other platforms the connection counts as lost. */
function isUnreachable(cause: unknown): boolean {
  const { code, message } = (cause ?? {}) as { code?: unknown; message?: unknown }
  // Fetch refuses to connect to some ports.
  if (message === 'bad port') return true
  return /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/.test(
    String(code),
  )
}
