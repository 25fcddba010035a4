/** The examination of a store. Whatever happens, its keys are removed at the end. */
import type { Config } from '../../config/compile.ts'
import { randomBase62 } from '../../credentials/api-key.ts'
import { GatewayError } from '../../errors.ts'
import { ReplyTooLarge, readTextUpTo, sizeText } from '../../ops/bounded-reply.ts'
import { timeoutError } from '../../store/deadline.ts'
import { inEnvironment } from '../../store/keys.ts'
import type { Store } from '../../store/store.ts'
import { upstashStore } from '../../store/upstash.ts'
import { RestError, upstashClient } from '../../store/upstash-client.ts'
import { connectRedisStore } from '../redis-store/redis-store.ts'
import { parseRedisUrl } from '../redis-store/redis-url.ts'
import { type Bed, type Examination, runChecks } from './checks.ts'
import { checkAlgorithms, checkRules } from './decisions.ts'
import { errorWith, type Finding, fault, findIn, isLate, ok } from './findings.ts'
import { checkLatency, type Load } from './load.ts'
import { checkPermissions, checkProtocol, scriptChecks } from './protocol.ts'
import { reachChecks } from './reach.ts'
import { serverChecks } from './server.ts'

/** Without a token: of a Redis that is reached directly (redis-url.ts). */
export type StoreAddress = { url: string; token?: string }

/** @param more `deadlineMs`: of each request, longer than that of decisions, because a slow answer is also a finding */
export async function examineStore(
  at: StoreAddress,
  config: Config,
  examination: Examination,
  { load, deadlineMs = 5000 }: { load?: Load | undefined; deadlineMs?: number | undefined } = {},
): Promise<void> {
  const space = new KeySpace()
  const { urls, close, ...opened } = await open(at, config, space.environment, deadlineMs)
  const bed: Bed = { ...opened, config, decisions: space.recorded(opened.store), key: space.key }
  // What makes others meaningless comes first.
  const checks = {
    ...reachChecks('store', urls),
    protocol: () => checkProtocol(bed),
    permissions: () => checkPermissions(bed),
    ...serverChecks(bed),
    ...scriptChecks(bed),
    algorithms: () => checkAlgorithms(bed),
    rules: () => checkRules(bed),
    latency: () => checkLatency(bed, examination.isStopped),
    ...(load && { load: () => checkLatency(bed, examination.isStopped, load) }),
  }
  try {
    await runChecks(checks, examination)
  } finally {
    examination.note({ name: 'removal', ...(await space.remove(bed.send)) })
    await close?.()
  }
}

/** An environment with a random name. So no key of a user can be meant, and each key that a call names can be removed. */
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

  key = (name: string): string => this.at(`sluice:{doctor}:${name}`)

  /** A store in this environment. The keys of its calls are removed at the end. */
  recorded = (store: Store): Store => ({
    ...store,
    run: (calls, listener) => {
      for (const call of calls) for (const key of 'key' in call ? [call.key] : call.keys) this.at(key)
      return store.run(calls, listener)
    },
  })

  /** Removes all keys. Never rejects. Either answer shows that a key is gone: a replica that lags could answer EXISTS, and one refuses DEL. */
  async remove(send: Bed['send']): Promise<Finding> {
    const keys = [...this.#used]
    if (keys.length === 0) return ok`No key was made, so none is left.`
    for (let attempt = 0; attempt < 3; attempt++) {
      const commands = keys.flatMap(key => [['DEL', key] as const, ['EXISTS', key] as const])
      const answers = await send(commands).catch(error => (isLate(error) ? undefined : []))
      if (!answers) break
      const isGone = (i: number) => [answers[2 * i], answers[2 * i + 1]].some(each => each?.result === 0)
      if (keys.every((_, i) => isGone(i)))
        return ok`The ${keys.length} keys of this examination are removed: none is left.`
    }
    return fault`Keys of this examination may be left: the store did not confirm that they are removed. They begin with ${this.prefix} → Remove them when the store answers: redis-cli --scan --pattern '${this.prefix}*' | xargs redis-cli DEL. Otherwise they expire, at the latest after the longest period of your rules.`
  }
}

/** @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid */
async function open({ url, token }: StoreAddress, config: Config, environment: string, deadlineMs: number) {
  if (token === undefined) {
    const connected = await connectRedisStore({ url, environment, deadlineMs, connectMs: deadlineMs })
    return { ...connected, urls: parseRedisUrl(url).urls, isRest: false }
  }
  const sendOnce = upstashClient({ url, token })
  let first: Promise<void> | undefined
  const send: Bed['send'] = async (commands, isTransaction) => {
    first ??= checkStatus(url, token, deadlineMs).catch(error => {
      first = undefined
      throw error
    })
    await first
    return await sendOnce(commands, AbortSignal.timeout(deadlineMs), isTransaction).catch(error => {
      if (error instanceof GatewayError) throw errorWith(NOT_JSON)
      if (!(error instanceof RestError)) throw error
      if (error.message === '') throw errorWith(NOT_JSON)
      if (/^ERR Redis did not answer/.test(error.message)) throw timeoutError()
      const refusal = refusalOf(error.message)
      if (refusal) throw errorWith(refusal)
      if (commands.length === 1 && !isTransaction) return [{ error: error.message }]
      throw errorWith(fault`The store refuses requests. → Check the URL and the token.`)
    })
  }
  const store = upstashStore({ ...config, url, token, deadlineMs, environment })
  return { urls: [url], isRest: true, send, store, close: undefined }
}

/**
 * Sends a PING by itself, because the client of the store keeps the HTTP status to itself and follows redirections.
 * @throws with a Finding, if the status says what is wrong
 */
async function checkStatus(url: string, token: string, deadlineMs: number): Promise<void> {
  const response = await fetch(url, {
    ...{ method: 'POST', redirect: 'manual', body: '["PING"]', signal: AbortSignal.timeout(deadlineMs) },
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
  })
  const text = await readTextUpTo(MAX_REPLY_TO_PING, response).catch(error => {
    throw error instanceof ReplyTooLarge ? errorWith(TOO_LARGE) : error
  })
  if (response.ok) return
  const message = messageIn(text)
  if (/^ERR Redis did not answer/.test(message)) throw timeoutError()
  const refusal = refusalOf(message, response.status)
  if (refusal) throw errorWith(refusal)
}

/** Bytes. */
const MAX_REPLY_TO_PING = 100_000

const messageIn = (text: string): string => /"error":\s*"([^"]*)/.exec(text)?.[1] ?? ''

const TOO_LARGE = fault`The URL of the store answers a PING with more than ${sizeText(MAX_REPLY_TO_PING)}. → Copy UPSTASH_REDIS_REST_URL again.`

const NOT_JSON = fault`The URL answers with a web page or another text, and not with replies in JSON. → Copy UPSTASH_REDIS_REST_URL again. A proxy or a login page in front of the store must pass on its replies.`

/** Names the errors that Upstash documents, those of the bridge, and those of servers in between. */
const refusalOf = (message: string, status = 400) =>
  findIn(`${status} ${message}`, {
    'max request size|^413': fault`The store refuses a request as too large. → Use fewer rules, or raise its limit for the size of requests.`,
    'max (daily |monthly )?requests? limit|max bandwidth': fault`The quota of the database is used up. → Choose a larger plan, or wait until the quota starts again.`,
    'rate limit|too many requests|throttled|^429': fault`The store limits the rate of requests. → Choose a plan with more commands a second, and run this again.`,
    '^... (WRONGPASS|NOAUTH)|^401': fault`The store does not accept the token. → Copy the token again, from the REST tab of the database or from the bridge.`,
    '^... ERR Redis cannot be reached': fault`The bridge answers, but its Redis does not. → Check the Redis of the bridge: redis-cli -u redis://… PING`,
    '^3': fault`The URL redirects (HTTP ${status}), so each call would be sent twice, and with 301 to 303 without its commands. → Use the URL that it redirects to.`,
    '^40[345]': fault`The URL is not that of a REST API for Redis (HTTP ${status}). → Copy UPSTASH_REDIS_REST_URL again: it has no path.`,
    '^5': fault`The store, or a proxy in front of it, fails (HTTP ${status}). → Look at its log or its status page, and run this again.`,
  })
