/** Whether a deployed gateway answers as it is documented, and whether its limits hold: against forged addresses, and in a burst. */
import { randomInt } from 'node:crypto'
import { parseList } from '../../client/list.ts'
import type { Config } from '../../config/compile.ts'
import { ReplyTooLarge, readTextUpTo, sizeText } from '../../ops/bounded-reply.ts'
import type { Checks } from './checks.ts'
import { errorWith, type Finding, fault, firstOf, limit, ok, unknown } from './findings.ts'
import { reachChecks } from './reach.ts'
import { describeOffset } from './server.ts'

/** `path` and `headers` are those of the requests that are counted. */
export interface GatewayToExamine extends Readonly<Record<'url' | 'path', string>> {
  headers: Headings
  /** Is then tried without the gateway. */
  origin?: string | undefined
  config: Config
  /** Of each request. Default: 10 s; tests pass their own. */
  deadlineMs?: number
}

type Headings = Readonly<Record<string, string>>
/** Sends a request that is counted. */
type Ask = (headers?: Headings) => Promise<Reply>

export function gatewayChecks({
  headers,
  origin,
  config,
  deadlineMs = 10_000,
  ...gateway
}: GatewayToExamine) {
  const [url, originUrl] = [gateway.url, origin].map(each => each?.replace(/\/+$/, ''))
  const path = gateway.path.replace(/^\/?/, '/')
  const ask = (of: string, more?: Headings) => askWithin(deadlineMs, of, more)
  const askPath: Ask = more => ask(url + path, { ...headers, ...more })
  return {
    ...reachChecks('gateway', [gateway.url]),
    health: async () => checkHealth(await ask(`${url}/_sluice/health`), config),
    'gateway-clock': async () => checkClock(await ask(`${url}/_sluice/health`)),
    problems: async () => checkProblem(await ask(`${url}/_sluice/none`)),
    fields: () => checkFields(askPath),
    'forged-address': () => checkForgery(askPath),
    ...(originUrl !== undefined && {
      origin: async () => checkOrigin(await ask(originUrl + path).catch(() => undefined)),
    }),
    burst: () => checkBurst(askPath),
  } satisfies Checks
}

function checkHealth(
  { status, body: { live, ready, store }, ms }: Reply,
  { storeDeadlineMs }: Config,
): Finding {
  const { latencyMs } = Object(store)
  const isTime = Number.isFinite(latencyMs) && latencyMs >= 0
  const found = firstOf(
    fault`${status >= 300 && status < 400}: The URL redirects (HTTP ${status}), and redirections are not followed. → Use the URL that it redirects to. If that is a login page, exempt the gateway from it.`,
    fault`${live !== true}: There is no Sluice at this URL: /_sluice/health answers something else (HTTP ${status}). → Use the address that wrangler deploy has printed. The URL of the store is --store.`,
    fault`${ready !== true}: The gateway does not reach its store. → Check its UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN, or REDIS_URL, and run this without --url.`,
    unknown`${!isTime}: How long a trip to the store takes is not known: /_sluice/health does not say it. → A proxy or CDN in front of the gateway must pass on its replies.`,
    limit`${latencyMs > storeDeadlineMs / 2}: A trip from the gateway to its store takes ${latencyMs} ms, of the ${storeDeadlineMs} ms of store.deadline. → Set the region of the database in [placement] of wrangler.toml.`,
    ok`The gateway runs, and a trip from there to its store takes ${latencyMs} ms.`,
  )
  return { ...found, measured: { ...(isTime && { store_ms: latencyMs }), trip_ms: ms } }
}

function checkClock({ headers, sentAt, ms }: Reply): Finding {
  const date = Date.parse(headers.get('date') ?? '')
  if (Number.isNaN(date)) return unknown`The replies have no Date. → You can leave it.`
  // Date has whole seconds, so it is half a second late on average.
  return describeOffset('gateway', date + 500 - (sentAt + ms / 2), 500 + ms / 2)
}

const checkProblem = (reply: Reply) =>
  isProblem(reply) && reply.status === 404
    ? ok`Replies of the gateway itself arrive as they are documented (application/problem+json).`
    : fault`Replies of the gateway itself do not arrive: /_sluice/none answers something else (HTTP ${reply.status}). → A proxy or CDN in front of the gateway must pass them on.`

async function checkFields(ask: Ask): Promise<Finding> {
  const [reply, { headers: next }] = [await ask(), await ask()]
  const { status, headers } = reply
  const id = headers.get('x-request-id')
  const hasFields = headers.has('ratelimit') && headers.has('ratelimit-policy')
  const limits = limitsOf(reply).length
  return firstOf(
    fault`${headers.has('sluice-degraded')}: The gateway has decided without its store (Sluice-Degraded). → Run this with the store, without --url.`,
    unknown`${status === 401}: A request needs a valid credential here (HTTP 401). → Name a key with --key, or a token with --header.`,
    limit`${!hasFields}: The reply has no RateLimit or no RateLimit-Policy: a proxy in front of the gateway removes it, or no rule is for this request. → Let the proxy pass both on, or name a path that has rules with --path.`,
    limit`${id === null}: The reply has no X-Request-Id: a proxy in front of the gateway removes it. → Let the proxy pass it on.`,
    fault`${id === next.get('x-request-id')}: A cache in front of the gateway answers: two requests get the same reply. It passes on replies to others, and no limit counts them. → Turn off the cache for this gateway.`,
    fault`${limits === 0}: RateLimit or RateLimit-Policy is not valid. → Neither a proxy nor the origin may change them.`,
    ok`RateLimit and RateLimit-Policy are valid (limits: ${limits}).`,
  )
}

function checkOrigin({ status }: Pick<Reply, 'status'> = { status: 0 }): Finding {
  return firstOf(
    ok`${status === 0}: The origin cannot be reached from here without the gateway.`,
    ok`${[401, 403, 407, 421].includes(status)}: The origin refuses a request that has not passed the gateway (HTTP ${status}).`,
    fault`The origin answers a request that has not passed the gateway (HTTP ${status}), so all limits can be avoided. → Make it reachable only through the gateway: docs/security.md#the-model`,
  )
}

/** Requests from the same address, of which units must be missing afterwards. */
const SAME = 3

/** Whether the first request from another address, in all headers that can have one, finds a whole limit. */
async function checkForgery(ask: Ask): Promise<Finding> {
  // Networks for documentation (RFC 5737), from which no caller comes.
  const [one, another] = ['198.51.100', '203.0.113'].map(network => {
    const address = `${network}.${randomInt(1, 255)}`
    return { 'CF-Connecting-IP': address, 'X-Forwarded-For': address, Forwarded: `for=${address}` }
  })
  const startedAt = performance.now()
  const same = await Promise.all(Array.from({ length: SAME }, () => ask(one)))
  const other = await ask(another)
  const elapsed = (performance.now() - startedAt) / 1e3
  // Refused requests spend nothing, so they show nothing. Nor do limits that refill meanwhile.
  const isRefused = [...same, other].some(({ status }) => status === 429)
  const wentDown = limitsOf(other).filter(
    ({ name, most, seconds = 86_400 }) =>
      same.flatMap(limitsOf).some(each => each.name === name && each.remaining <= most - SAME) &&
      elapsed < seconds / most,
  )
  return firstOf(
    unknown`${isRefused || wentDown.length === 0}: Whether a forged address is trusted could not be found out: no limit goes down. → Name a path with --path whose rule counts by address, such as 10 requests a minute, and a key with --key if it needs one.`,
    fault`${wentDown.some(({ most, remaining }) => remaining === most - 1)}: A caller gets a new budget by a forged address (CF-Connecting-IP, X-Forwarded-For or Forwarded). → Let requests reach the gateway only through Cloudflare (one on your own machine is not behind it), or name your proxies in the config (address): docs/security.md#the-model`,
    ok`A forged address gives no new budget (CF-Connecting-IP, X-Forwarded-For, Forwarded).`,
  )
}

/** A larger burst would be a load for the origin. */
const MAX_LIMIT = 200

async function checkBurst(ask: Ask): Promise<Finding> {
  const limits = limitsOf(await ask()).filter(({ isOfRequests, most }) => isOfRequests && most <= MAX_LIMIT)
  const [tightest] = limits.sort((a, b) => a.most - b.most)
  if (!tightest)
    return unknown`There is no limit to try: the reply shows none of at most ${MAX_LIMIT} requests. → Name a path with --path that has one, and a key with --key if it needs one.`
  const { most, remaining, seconds } = tightest
  const startedAt = performance.now()
  const replies = await Promise.all(Array.from({ length: 2 * most }, () => ask()))
  const elapsed = (performance.now() - startedAt) / 1e3
  const refused = replies.filter(({ status }) => status === 429)
  const isDocumented = (reply: Reply) =>
    isProblem(reply, 'violated-policies') && /^\d+$/.test(reply.headers.get('retry-after') ?? '')
  const [sent, admitted] = [replies.length, replies.length - refused.length]
  // Of a limit that refills, units come back meanwhile.
  const back = seconds === undefined ? 0 : Math.max(0, Math.ceil((most * elapsed) / seconds - 0.1))
  const text = `Of ${sent} requests at once, ${admitted} were admitted. Before, ${remaining} of ${most} were left${back > 1 ? `, and up to ${back} have come back meanwhile` : ''}`
  const found = firstOf(
    fault`${admitted > remaining + back}: ${text}. → Run this again: a window may have ended meanwhile. If it is the same, report it.`,
    limit`${admitted < remaining}: ${text}: another limit refuses, or others use the same credential. → Name a path with --path that has one limit, and run this again.`,
    fault`${!refused.every(isDocumented)}: ${text}, and refusals do not arrive as they are documented (Retry-After, application/problem+json). → A proxy in front of the gateway must pass them on.`,
    ok`${text}. Refusals arrive as they are documented.`,
  )
  return { ...found, measured: { sent, admitted, left_before: remaining, come_back: back } }
}

/** `body`: of a reply of the gateway itself, else empty; `sentAt` in ms since the epoch; `ms`: how long the answer took. */
type Reply = Pick<Response, 'status' | 'headers'> &
  Record<'sentAt' | 'ms', number> & { body: Readonly<Record<string, unknown>> }

async function askWithin(deadlineMs: number, url: string, headers: Headings = {}): Promise<Reply> {
  const sentAt = Date.now()
  const response = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(deadlineMs) })
  const ms = Date.now() - sentAt
  // The body of an origin may be large or have no end.
  const isOfGateway = response.status === 429 || url.includes('/_sluice/')
  const body = isOfGateway ? await readJson(response, url) : await response.body?.cancel()
  return { status: response.status, headers: response.headers, body: Object(body), sentAt, ms }
}

/** More than any reply of the gateway itself to these requests (bytes). */
const MAX_REPLY = 64_000

async function readJson(response: Response, url: string): Promise<unknown> {
  const text = await readTextUpTo(MAX_REPLY, response).catch(error => {
    if (!(error instanceof ReplyTooLarge)) throw error
    const own = /\/_sluice\/\w+$/.exec(url)?.[0]
    const what = own ? `The reply to ${own}` : 'A refusal (HTTP 429)'
    throw errorWith(
      fault`${what} has more than ${sizeText(MAX_REPLY)}, so it is not of Sluice. → Use the address that wrangler deploy has printed. A proxy or CDN in front of the gateway must pass on its replies.`,
    )
  })
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}

/** Whether a reply of the gateway itself is a problem as it is documented, with these members besides. */
const isProblem = ({ status, headers, body }: Reply, ...members: readonly string[]) =>
  headers.get('content-type') === 'application/problem+json' &&
  body.status === status &&
  ['type', 'title', 'detail', ...members].every(name => name in body)

const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0

/**
 * The limits of a reply: units that can be spent at once, and that are left; its window (s; none for a calendar).
 * @returns none if RateLimit or RateLimit-Policy is not valid
 */
function limitsOf({ headers }: Reply) {
  const itemsOf = (field: string) => parseList(headers.get(field) ?? '')
  const policies = new Map(itemsOf('ratelimit-policy').map(({ name, parameters }) => [name, parameters]))
  const states = itemsOf('ratelimit')
  const limits = states.flatMap(({ name, parameters: state }) => {
    const policy = policies.get(name)
    const [q, r, t, w] = [policy?.get('q'), state.get('r'), state.get('t'), policy?.get('w')]
    const most = policy?.get('sluice-burst') ?? q
    if (!policy || ![q, r, t, w ?? 1, most].every(isCount) || w === 0) return []
    const seconds = w === undefined ? undefined : Number(w)
    return { name, most: Number(most), remaining: Number(r), seconds, isOfRequests: !policy.has('qu') }
  })
  return limits.length === states.length ? limits : []
}
