/**
 * The store, as those who administer use it: the same REST protocol and client as the gateway, and the keys of one
 * environment. Each step is one HTTP request, and what must not come apart lies in one slot of a cluster.
 */
import { errors, Redis } from '@upstash/redis'
import type { Config } from '../config/compile.ts'
import { apiKeyStart } from '../credentials/api-key.ts'
import { gatewayPolicy, limitPolicy } from '../script/compiled.ts'
import { inEnvironment } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { upstashStore } from '../store/upstash.ts'
import { AdminError } from './admin-error.ts'

const DEADLINE_MS = 5000

/** So many commands go into one request: far below its 10 MB. */
const MOST_AT_ONCE = 1000

export interface AdminStoreOptions {
  url: string
  token: string
  environment?: string | undefined
  /** What API keys begin with (`credentials.apiKeys.prefix`); default `slk`. */
  keyPrefix?: string
  keyLocking?: boolean
  cluster?: boolean
}

type Pipeline = ReturnType<Redis['pipeline']>

export interface AdminStore {
  environment: string | undefined
  keyPrefix: string
  /** What every API key of this environment begins with. */
  keyStart: string
  /** For decisions: what is left of a limit, and resetting it. */
  decisions: Store
  /** A key of src/store/keys.ts as it is in this environment. */
  at(key: string): string
  /** @throws AdminError `store` */
  ask<T>(ask: (redis: Redis) => Promise<T>): Promise<T>
  /** One command for each, in as few requests as it takes; it is no transaction. */
  askEach<T, R>(items: readonly T[], add: (pipeline: Pipeline, item: T) => void): Promise<R[]>
  /**
   * Changes a text by what it was, so that two who change it at once do not lose each other's.
   * @param change gives the text and how long it lives, or undefined to remove it; called again when another writer was faster
   */
  change(key: string, change: (text: string | undefined) => Changed | undefined): Promise<void>
}

export interface Changed {
  text: string
  /** Absent: as before. */
  expiry?: 'never' | Date
}

/** One key, so it runs wherever that lies. ARGV: what it was, and the arguments of SET after the key, or nothing. */
const COMPARE_AND_SET = `
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if #ARGV == 1 then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], unpack(ARGV, 2)) end
return 1`

const ATTEMPTS = 10

export function adminStore(options: AdminStoreOptions): AdminStore {
  const { url, token, environment, keyPrefix = 'slk', keyLocking = true, cluster = false } = options
  const redis = new Redis({
    url,
    token,
    retry: { retries: 0 },
    signal: () => AbortSignal.timeout(DEADLINE_MS),
    enableAutoPipelining: false,
    // Digests can be all digits, and are text.
    automaticDeserialization: false,
    enableTelemetry: false,
  })

  const store: AdminStore = {
    environment,
    keyPrefix,
    keyStart: apiKeyStart(keyPrefix, environment),
    decisions: upstashStore({ url, token, deadlineMs: DEADLINE_MS, keyLocking, cluster, environment }),
    at: key => inEnvironment(key, environment),

    async ask(ask) {
      try {
        return await ask(redis)
      } catch (error) {
        throw new AdminError('store', `The store at ${new URL(url).host} ${saidBy(error)}`)
      }
    },

    async askEach<T, R>(items: readonly T[], add: (pipeline: Pipeline, item: T) => void) {
      const replies: R[] = []
      for (let from = 0; from < items.length; from += MOST_AT_ONCE) {
        const pipeline = redis.pipeline()
        for (const item of items.slice(from, from + MOST_AT_ONCE)) add(pipeline, item)
        replies.push(...(await store.ask(() => pipeline.exec<R[]>())))
      }
      return replies
    },

    async change(key, change) {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        const before = await store.ask(redis => redis.get<string>(store.at(key)))
        const after = change(before ?? undefined)
        const args = [before ?? '', ...(after ? [after.text, ...expiryOf(after)] : [])]
        const isDone = await store.ask(redis => redis.eval(COMPARE_AND_SET, [store.at(key)], args))
        if (Number(isDone) === 1) return
      }
      throw new AdminError(
        'refused',
        'Other processes change the same record at this moment. Nothing was changed. Try again.',
      )
    },
  }
  return store
}

function expiryOf({ expiry }: Changed): string[] {
  if (expiry === undefined) return ['KEEPTTL']
  return expiry === 'never' ? [] : ['PXAT', String(expiry.getTime())]
}

/** Loads the scripts of a config, so that not even the first decision, or the first refund on a cluster, has to send one. */
export async function loadScripts(
  store: AdminStore,
  config: Pick<Config, 'rules' | 'plans' | 'limits' | 'keyLocking'>,
): Promise<void> {
  const { keyLocking, limits } = config
  const policies = [gatewayPolicy(config), ...[...limits.values()].map(limitPolicy)]
  for (const script of policies.flatMap(({ decide, refund }) => [decide, refund])) {
    const { source } = keyLocking ? script.keyLocking : script.plain
    await store.ask(redis => redis.scriptLoad(source))
  }
}

/** The client's messages quote the whole command, and whatever came that is no JSON. */
function saidBy(error: unknown): string {
  const isOther = 'does not answer as an Upstash REST API does. Check its URL.'
  if (error instanceof errors.UpstashJSONParseError) return isOther
  if (error instanceof errors.UpstashError) {
    const said = error.message.split(', command was:')[0]!.slice(0, 200)
    // What the client makes of an error reply without an error in it.
    return /^(undefined|null|\[object Object\])$/.test(said) ? isOther : `answered with an error: ${said}`
  }
  if (!(error instanceof Error)) return LOST
  if (/^(Timeout|Abort)Error$/.test(error.name))
    return `did not answer within ${DEADLINE_MS / 1000} s. A change may have been made: check before you repeat it.`
  // A failed connection is a TypeError too, and has a cause on Node only.
  if (error instanceof TypeError && FOREIGN_REPLY.test(error.message)) return isOther
  return isUnreachable(error.cause) ? 'cannot be reached. Check its URL.' : LOST
}

/** How the client fails on JSON of another form: by its own check, or by reading what is not there. */
const FOREIGN_REPLY =
  /^Request did not return a result|^Cannot (read|destructure)|is not (a function|iterable)/

const LOST =
  'broke the connection before it answered. A change may have been made: check before you repeat it.'

/** No connection was made, so nothing was sent. Only Node says so; elsewhere the message is that of a lost connection. */
function isUnreachable(cause: unknown): boolean {
  const { code, message } = (cause ?? {}) as { code?: unknown; message?: unknown }
  // A port that fetch refuses to connect to.
  if (message === 'bad port') return true
  return /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/.test(
    String(code),
  )
}
