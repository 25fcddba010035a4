/** Whether a deployed gateway answers as it is documented: its health, its clock, its fields and problem bodies. */
import type { Config } from '../../config/compile.ts'
import { checkBurst, checkForgery } from './budgets.ts'
import { type Checks, type Finding, fault, findings, limit, ok, unknown } from './checks.ts'
import { reachChecks } from './reach.ts'
import { type AskCounted, ask, isProblem, limitsOf } from './replies.ts'
import { describeOffset } from './server.ts'

/** `path` and `headers` are those of the requests that are counted. */
export interface GatewayToExamine extends Readonly<Record<'url' | 'path', string>> {
  headers: Readonly<Record<string, string>>
  /** Is then tried without the gateway. */
  origin?: string | undefined
  config: Config
}

export function gatewayChecks({ path, headers, origin, config, ...gateway }: GatewayToExamine): Checks {
  const url = gateway.url.replace(/\/+$/, '')
  const counted: AskCounted = more => ask(url + path, { ...headers, ...more })
  return {
    ...reachChecks('gateway', [url]),
    health: () => checkHealth(url, config),
    'gateway-clock': () => checkClock(url),
    problems: () => checkProblem(url),
    fields: () => checkFields(counted),
    'forged-address': () => checkForgery(counted),
    ...(origin !== undefined && { origin: () => checkOrigin(origin, path) }),
    burst: () => checkBurst(counted),
  }
}

async function checkHealth(url: string, { storeDeadlineMs }: Config): Promise<Finding> {
  const { status, body, ms } = await ask(`${url}/_sluice/health`)
  const { live, ready, store } = body
  if (status >= 300 && status < 400)
    return fault`The URL redirects (HTTP ${status}), and redirections are not followed. → Use the URL that it redirects to. If that is a login page, exempt the gateway from it.`
  if (live !== true)
    return fault`There is no Sluice at this URL: /_sluice/health answers something else (HTTP ${status}). → Use the address that wrangler deploy has printed. The URL of the store is --store.`
  if (ready !== true)
    return fault`The gateway does not reach its store. → Check its UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN, or REDIS_URL, and run this without --url.`
  const latencyMs = Number(Object(store).latencyMs)
  const found = findings({ store_ms: latencyMs, trip_ms: ms })
  return latencyMs > storeDeadlineMs / 2
    ? found.limit`A trip from the Worker to its store takes ${latencyMs} ms, of the ${storeDeadlineMs} ms of store.deadline. → Set the region of the database in [placement] of wrangler.toml.`
    : found.ok`The Worker runs, and a trip from there to its store takes ${latencyMs} ms.`
}

async function checkClock(url: string): Promise<Finding> {
  const { headers, sentAt, ms } = await ask(`${url}/_sluice/health`)
  const date = Date.parse(headers.get('date') ?? '')
  if (Number.isNaN(date)) return unknown`The replies have no Date. → You can leave it.`
  // Date has whole seconds, so it is half a second late on average.
  return describeOffset('gateway', date + 500 - (sentAt + ms / 2), 500 + ms / 2)
}

async function checkProblem(url: string): Promise<Finding> {
  const reply = await ask(`${url}/_sluice/none`)
  return isProblem(reply) && reply.status === 404
    ? ok`Replies of the gateway itself arrive as they are documented (application/problem+json).`
    : fault`Replies of the gateway itself do not arrive: /_sluice/none answers something else (HTTP ${reply.status}). → A proxy or CDN in front of the gateway must pass them on.`
}

async function checkFields(counted: AskCounted): Promise<Finding> {
  const reply = await counted()
  const { status, headers } = reply
  const id = headers.get('x-request-id')
  if (headers.has('sluice-degraded'))
    return fault`The gateway has decided without its store (Sluice-Degraded). → Run this with the store, without --url.`
  if (status === 401)
    return unknown`A request needs a valid credential here (HTTP 401). → Name a key with --key, or a token with --header.`
  if (!headers.has('ratelimit') || !headers.has('ratelimit-policy'))
    return limit`The reply has no RateLimit or no RateLimit-Policy: a proxy in front of the gateway removes it, or no rule is for this request. → Let the proxy pass both on, or name a path that has rules with --path.`
  if (id === null)
    return limit`The reply has no X-Request-Id: a proxy in front of the gateway removes it. → Let the proxy pass it on.`
  if ((await counted()).headers.get('x-request-id') === id)
    return fault`A cache in front of the gateway answers: two requests get the same reply. It passes on replies to others, and no limit counts them. → Turn off the cache for this gateway.`
  const limits = limitsOf(reply)
  return limits.length > 0
    ? ok`RateLimit and RateLimit-Policy are valid (limits: ${limits.length}).`
    : fault`RateLimit or RateLimit-Policy is not valid. → Neither a proxy nor the origin may change them.`
}

async function checkOrigin(origin: string, path: string): Promise<Finding> {
  const reply = await ask(origin.replace(/\/+$/, '') + path).catch(() => undefined)
  if (!reply) return ok`The origin cannot be reached from here without the gateway.`
  return [401, 403, 407, 421].includes(reply.status)
    ? ok`The origin refuses a request that has not passed the gateway (HTTP ${reply.status}).`
    : fault`The origin answers a request that has not passed the gateway (HTTP ${reply.status}), so all limits can be avoided. → Make it reachable only through the gateway: docs/security.md#the-model`
}
