/** The store that is examined: raw commands with raw answers, and decisions. The REST protocol is one way to it; others fit the same port. */
import type { Config } from '../../config/compile.ts'
import { createRestConnection, type RestAnswer, type RestCommand, RestError } from '../../store/rest.ts'
import type { Store } from '../../store/store.ts'
import { upstashStore } from '../../store/upstash.ts'
import { type Finding, FindingError, fault } from './checks.ts'

export type Command = RestCommand
/** Errors of single commands are answers, and no exceptions. */
export type Answer = RestAnswer

export interface ExaminedStore {
  /** Sends commands in one trip, at least one. @throws whatever keeps all of them from being answered */
  send(commands: readonly Command[], isTransaction?: boolean): Promise<readonly Answer[]>
  /** In the key space of the examination. */
  decisions: Store
  /** Sends commands with another token. Absent: the store has no tokens. */
  sendWith?(token: string, ...args: Parameters<ExaminedStore['send']>): Promise<readonly Answer[]>
}

/** What the checks of a store work on. */
export interface Bed extends Pick<ExaminedStore, 'send' | 'decisions'> {
  config: Config
  /** The key of a check. It is removed at the end, as the keys of decisions are. */
  key(name: string): string
  /** Stores the records of callers, by their keys. */
  writeRecords(of: readonly { records: readonly (readonly [key: string, text: string])[] }[]): Promise<void>
  isStopped(): boolean
}

/** Of each request. Longer than the deadline of decisions, because a slow answer is also a finding. */
const DEADLINE_MS = 5000

/** @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid */
export function examinedRestStore(
  { url, token }: { url: string; token: string },
  { keyLocking, cluster }: Pick<Config, 'keyLocking' | 'cluster'>,
  environment: string,
): ExaminedStore {
  const sendBy =
    (connection: ReturnType<typeof createRestConnection>): ExaminedStore['send'] =>
    async (commands, isTransaction) => {
      try {
        return await connection(commands, AbortSignal.timeout(DEADLINE_MS), isTransaction)
      } catch (error) {
        if (!(error instanceof RestError)) throw error
        const refusal = refusalOf(error)
        if (commands.length === 1 && !isTransaction && error.status === 400 && !refusal)
          return [{ error: error.message }]
        throw new FindingError(
          refusal ??
            fault`The store refuses the request (HTTP ${error.status}). → Check the URL and the token.`,
        )
      }
    }
  return {
    decisions: upstashStore({ url, token, deadlineMs: DEADLINE_MS, keyLocking, cluster, environment }),
    send: sendBy(createRestConnection(url, token)),
    sendWith: (other, ...args) => sendBy(createRestConnection(url, other))(...args),
  }
}

/** Names the errors that Upstash documents, those of the bridge, and those of servers in between. */
function refusalOf({ status, message }: RestError): Finding | undefined {
  if (/max request size/i.test(message) || status === 413)
    return fault`The store refuses a request as too large. → Use fewer rules, or raise its limit for the size of requests.`
  if (/max (daily |monthly )?requests? limit|max bandwidth/i.test(message))
    return fault`The quota of the database is used up. → Choose a larger plan, or wait until the quota starts again.`
  if (/rate limit|too many requests|throttled/i.test(message) || status === 429)
    return fault`The store limits the rate of requests. → Choose a plan with more commands a second, and run this again.`
  if (/^(WRONGPASS|NOAUTH)/.test(message) || status === 401)
    return fault`The store does not accept the token. → Copy the token again, from the REST tab of the database or from the bridge.`
  if (/^ERR Redis (cannot be reached|did not answer)/.test(message))
    return fault`The bridge answers, but its Redis does not. → Check the Redis of the bridge: redis-cli -u redis://… PING`
  if (status >= 300 && status < 400)
    return fault`The URL redirects (HTTP ${status}), and redirections are not followed. → Use the URL that it redirects to.`
  if (status === 403 || status === 404 || status === 405)
    return fault`The URL is not that of a REST API for Redis (HTTP ${status}). → Copy UPSTASH_REDIS_REST_URL again: it has no path.`
  if (status >= 500)
    return fault`The store, or a proxy in front of it, fails (HTTP ${status}). → Look at its log or its status page, and run this again.`
  return undefined
}
