/** The store that is examined: raw commands with raw answers, and decisions. It is reached over the REST protocol, or directly. */
import type { Config } from '../../config/compile.ts'
import { randomBase62 } from '../../credentials/api-key.ts'
import { GatewayError } from '../../errors.ts'
import { createRestConnection, RestError } from '../../store/rest.ts'
import type { Store } from '../../store/store.ts'
import { upstashStore } from '../../store/upstash.ts'
import { errorWith, fault, findIn } from './checks.ts'
import type { KeySpace, Send } from './key-space.ts'

/** Without a token: of a Redis that is reached directly (redis-url.ts). */
export interface StoreAddress {
  url: string
  token?: string
}

/** What the checks of a store work on. */
export interface Bed {
  config: Config
  space: KeySpace
  /** Of its servers, for their names and their TLS. */
  urls: readonly string[]
  send: Send
  /** Over REST with a wrong token. Absent: the store is reached directly. */
  sendUnauthorized?: Send
  /** In the key space of the examination. */
  decisions: Store
  close?(): Promise<void>
}

/** Of each request. Longer than the deadline of decisions, because a slow answer is also a finding. */
const DEADLINE_MS = 5000

/** @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid */
export async function openExamined(
  { url, token }: StoreAddress,
  config: Config,
  space: KeySpace,
): Promise<Bed> {
  const { environment } = space
  if (token === undefined) {
    // Imported here, because a store over REST needs none of it.
    const { connectRedisStore } = await import('../redis-store/redis-store.ts')
    const { parseRedisUrl } = await import('../redis-store/redis-url.ts')
    const options = { url, environment, deadlineMs: DEADLINE_MS, connectMs: DEADLINE_MS }
    const { store, send, close } = await connectRedisStore(options)
    return { config, space, urls: parseRedisUrl(url).urls, decisions: space.recorded(store), send, close }
  }
  const sendBy = (token: string): Send => {
    const connection = createRestConnection(url, token)
    return (commands, isTransaction) =>
      connection(commands, AbortSignal.timeout(DEADLINE_MS), isTransaction).catch(error => {
        if (error instanceof GatewayError) throw errorWith(NOT_JSON)
        if (!(error instanceof RestError)) throw error
        const refusal = refusalOf(error)
        const isOfCommand = error.status === 400 && commands.length === 1 && !isTransaction
        if (isOfCommand && !refusal) return [{ error: error.message }]
        const rest = fault`The store refuses the request (HTTP ${error.status}). → Check the URL and the token.`
        throw errorWith(refusal ?? rest)
      })
  }
  const { keyLocking, cluster } = config
  const store = upstashStore({ url, token, deadlineMs: DEADLINE_MS, keyLocking, cluster, environment })
  const [send, sendUnauthorized] = [sendBy(token), sendBy(randomBase62(32))]
  return { config, space, urls: [url], decisions: space.recorded(store), send, sendUnauthorized }
}

const NOT_JSON = fault`The URL answers with a web page or another text, and not with replies in JSON. → Copy UPSTASH_REDIS_REST_URL again. A proxy or a login page in front of the store must pass on its replies.`

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
