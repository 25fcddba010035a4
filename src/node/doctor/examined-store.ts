/** The store that is examined: raw commands with raw answers, and decisions. It is reached over the REST protocol, or directly. */
import type { Config } from '../../config/compile.ts'
import { randomBase62 } from '../../credentials/api-key.ts'
import { inEnvironment } from '../../store/keys.ts'
import { createRestConnection, type RestAnswer, type RestCommand, RestError } from '../../store/rest.ts'
import type { Store } from '../../store/store.ts'
import { upstashStore } from '../../store/upstash.ts'
import { errorWith, type Finding, fault, findIn, ok } from './checks.ts'

export type Command = RestCommand

/** Errors of single commands are answers, and no exceptions. */
export type Answer = RestAnswer

/** Without a token: of a Redis that is reached directly (redis-url.ts). */
export interface StoreAddress {
  url: string
  token?: string
}

export interface ExaminedStore {
  /** Of its servers, for their names and their TLS. */
  urls: readonly string[]
  /** Sends commands in one trip, at least one. @throws whatever keeps all of them from being answered */
  send(commands: readonly Command[], isTransaction?: boolean): Promise<readonly Answer[]>
  /** In the key space of the examination. */
  decisions: Store
  /** Sends commands over REST with another token. Absent: the store is reached directly. */
  sendWith?(token: string, ...args: Parameters<ExaminedStore['send']>): Promise<readonly Answer[]>
  close?(): Promise<void>
}

/** What the checks of a store work on. */
export interface Bed extends ExaminedStore {
  config: Config
  key(name: string): string
  /** Stores the records of callers, by their keys. */
  writeRecords(of: readonly { records: readonly (readonly [key: string, text: string])[] }[]): Promise<void>
  isStopped(): boolean
}

/** Of each request. Longer than the deadline of decisions, because a slow answer is also a finding. */
const DEADLINE_MS = 5000

/** @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid */
export async function openExamined(
  { url, token }: StoreAddress,
  { keyLocking, cluster }: Config,
  environment: string,
): Promise<ExaminedStore> {
  if (token === undefined) return await openRedis(url, environment)
  const sendBy =
    (connection: ReturnType<typeof createRestConnection>): ExaminedStore['send'] =>
    (commands, isTransaction) =>
      connection(commands, AbortSignal.timeout(DEADLINE_MS), isTransaction).catch(error => {
        if (!(error instanceof RestError)) throw error
        const refusal = refusalOf(error)
        const isOfCommand = error.status === 400 && commands.length === 1 && !isTransaction
        if (isOfCommand && !refusal) return [{ error: error.message }]
        const rest = fault`The store refuses the request (HTTP ${error.status}). → Check the URL and the token.`
        throw errorWith(refusal ?? rest)
      })
  return {
    urls: [url],
    decisions: upstashStore({ url, token, deadlineMs: DEADLINE_MS, keyLocking, cluster, environment }),
    send: sendBy(createRestConnection(url, token)),
    sendWith: (other, ...args) => sendBy(createRestConnection(url, other))(...args),
  }
}

/** Names the errors that Upstash documents, those of the bridge, and those of servers in between. */
const refusalOf = ({ status, message }: RestError) =>
  findIn(`${status} ${message}`, {
    'max request size|^413': fault`The store refuses a request as too large. → Use fewer rules, or raise its limit for the size of requests.`,
    'max (daily |monthly )?requests? limit|max bandwidth': fault`The quota of the database is used up. → Choose a larger plan, or wait until the quota starts again.`,
    'rate limit|too many requests|throttled|^429': fault`The store limits the rate of requests. → Choose a plan with more commands a second, and run this again.`,
    '^... (WRONGPASS|NOAUTH)|^401': fault`The store does not accept the token. → Copy the token again, from the REST tab of the database or from the bridge.`,
    '^... ERR Redis (cannot be reached|did not answer)': fault`The bridge answers, but its Redis does not. → Check the Redis of the bridge: redis-cli -u redis://… PING`,
    '^3': fault`The URL redirects (HTTP ${status}), and redirections are not followed. → Use the URL that it redirects to.`,
    '^40[345]': fault`The URL is not that of a REST API for Redis (HTTP ${status}). → Copy UPSTASH_REDIS_REST_URL again: it has no path.`,
    '^5': fault`The store, or a proxy in front of it, fails (HTTP ${status}). → Look at its log or its status page, and run this again.`,
  })

async function openRedis(url: string, environment: string): Promise<ExaminedStore> {
  // Imported here, because a store over REST needs none of it.
  const { connectRedisStore } = await import('../redis-store/redis-store.ts')
  const { parseRedisUrl } = await import('../redis-store/redis-url.ts')
  const { ErrorReply } = await import('../rest-bridge/redis-server.ts')
  const target = parseRedisUrl(url)
  const options = { url, environment, deadlineMs: DEADLINE_MS, connectMs: DEADLINE_MS }
  const { store, send, transact, close } = await connectRedisStore(options)
  const answerTo = async (command: Command): Promise<Answer> => {
    try {
      return { result: await send(command) }
    } catch (error) {
      if (error instanceof ErrorReply) return { error: error.message }
      throw error
    }
  }
  return {
    urls: 'url' in target ? [target.url] : 'urls' in target ? target.urls : target.sentinels,
    ...{ decisions: store, close },
    send: async (commands, isTransaction) =>
      isTransaction
        ? (await transact(commands)).map(result => ({ result }))
        : await Promise.all(commands.map(answerTo)),
  }
}

const AT_ONCE = 500
/** How long keys of checks live if they cannot be removed (s). The states of rules live as long as their periods. */
export const KEY_SECONDS = 900

/**
 * The keys of one examination: an environment of its own with a random name. So no key of a user can be meant, and each key that a call
 * names is known, can be removed, and can be looked for afterwards.
 */
export class KeySpace {
  readonly environment = `doctor${randomBase62(10).toLowerCase()}`
  readonly prefix = `sluice:${this.environment}:`
  readonly #used = new Set<string>()

  /** A key of src/store/keys.ts, in this space. It is removed at the end. */
  at(key: string): string {
    const own = inEnvironment(key, this.environment)
    if (!own.startsWith(this.prefix)) throw new Error('A key of the doctor is outside of its key space.')
    this.#used.add(own)
    return own
  }

  /** Of a check. All of them are in one slot of a cluster. */
  key = (name: string): string => this.at(`sluice:{doctor}:${name}`)

  /** A store in this environment. The keys of its calls are removed at the end. */
  recorded(store: Store): Store {
    return {
      ...store,
      run: (calls, listener) => {
        for (const call of calls) for (const key of 'key' in call ? [call.key] : call.keys) this.at(key)
        return store.run(calls, listener)
      },
    }
  }

  /** Removes all keys, and proves it. Never rejects. */
  async remove(send: ExaminedStore['send']): Promise<Finding> {
    const keys = [...this.#used]
    const onEach = async (name: string) => {
      const answers: Answer[] = []
      for (let from = 0; from < keys.length; from += AT_ONCE)
        answers.push(...(await send(keys.slice(from, from + AT_ONCE).map(key => [name, key]))))
      return answers
    }
    const tryToRemove = async () => {
      if ((await onEach('UNLINK')).some(({ error }) => error)) await onEach('DEL')
      return (await onEach('EXISTS')).every(({ result }) => result === 0)
    }
    for (let attempt = 0; attempt < 3; attempt++)
      if (await tryToRemove().catch(() => false))
        return ok`The ${keys.length} keys of this examination are removed: none is left.`
    return fault`The keys of this examination could not be removed. They begin with ${this.prefix} → Remove them: redis-cli --scan --pattern '${this.prefix}*' | xargs redis-cli UNLINK. Otherwise they expire, at the latest after the longest period of your rules.`
  }
}
