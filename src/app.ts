/** The gateway in the order a request meets it. This file wires; it decides nothing. */
import { Hono } from 'hono/tiny'
import type { Config } from './config/compile.ts'
import { annotate } from './gateway/annotate.ts'
import { type Background, backgroundOf } from './gateway/background.ts'
import { answerPreflight, exposeToScripts, isPreflight } from './gateway/cors.ts'
import { deny } from './gateway/deny.ts'
import { healthCheck } from './gateway/health.ts'
import { hold } from './gateway/hold.ts'
import { type Caller, createIdentifier } from './gateway/identify.ts'
import { type Matched, match } from './gateway/match.ts'
import { isReserved } from './gateway/path.ts'
import { problem } from './gateway/problem.ts'
import { proxy } from './gateway/proxy.ts'
import { question } from './gateway/question.ts'
import { createSettle, type Telling } from './gateway/settle.ts'
import { logException, unexpected } from './gateway/unexpected.ts'
import { type Decision, decide } from './limiter/decide.ts'
import { type Degraded, degradedBy, evaluate } from './limiter/evaluate.ts'
import { fallBack } from './limiter/fallback.ts'
import { createLocalLimiter } from './limiter/local.ts'
import { probe } from './limiter/probe.ts'
import { withBreaker } from './store/breaker.ts'
import type { Store } from './store/store.ts'
import { createSwitchBoard, withSwitches } from './switches/live.ts'
import { isEnforced, marked, relax } from './switches/relax.ts'

/** What the app needs of the platform beside the request. */
export interface Platform {
  /** Variables of the environment, among them the secrets that issuers of tokens share. */
  variables?: Readonly<Record<string, unknown>>
  /** The other end of the connection, for `address: { from: … }` off Cloudflare. */
  peerOf?: (request: Request, env: unknown) => string | undefined
  /** How it is told what was decided. */
  telling?: Telling
  /** ms, by which the copy of the live switches grows old, and switches end; tests pass their own. */
  now?: () => number
}

/** What is known of a request that is decided. */
interface Judged {
  decision: Decision
  /** Absent, as is the route: it could not be found out. */
  caller?: Caller
  route?: string | undefined
  storeMs: number
  /** The store has answered. */
  isHeard?: boolean
}

export function createApp(config: Config, bare: Store, platform: Platform = {}): Hono {
  const { peerOf, variables, telling = {}, now } = platform
  const app = new Hono()
  const switches = createSwitchBoard({ ...(now && { now }) })
  const store = withBreaker(withSwitches(bare, switches), config.breaker, probe)
  const local = createLocalLimiter(config.localShare)
  const fallback = { credentials: config.credentials.onStoreFailure, local }
  const health = healthCheck(store)
  const identifier = createIdentifier(config, variables)
  // Not by the breaker: how long a batch of counters takes says nothing about decisions.
  const settle = createSettle(config, bare, telling)

  app.get('/_sluice/health', health)

  // Nothing under /_sluice/ ever reaches the origin, however it is spelled.
  app.use('*', async (c, next) => (isReserved(new URL(c.req.url).pathname) ? notFound() : next()))

  app.use('*', async (c, next) => {
    const request = c.req.raw
    if (!isPreflight(request)) return next()
    const peer = peerOf?.(request, c.env)
    const refusal = identifier.refuse(request, peer)
    if (refusal) return deny(refusal)
    if (config.cors) return answerPreflight(request, config.cors)
    const { response } = await proxy(request, config, {
      requestId: crypto.randomUUID(),
      ...(peer !== undefined && { peer }),
    })
    return response
  })

  app.all('*', async c => {
    const request = c.req.raw
    const requestId = crypto.randomUUID()

    const isOverdue = switches.isOverdue()
    const { caller, decision, route, storeMs, isHeard } = await judge(request, c.env)
    const background = backgroundOf(c)
    settle(decision, { requestId, route, storeMs }, background)
    safely(() => recover(background, isHeard))
    // Where nothing is counted no trip brings the switches, and nobody would see them switched back.
    const isUnasked = caller && !caller.refusal && isOverdue && switches.isOverdue()
    if (isUnasked) background(store.run([]))

    if (decision.kind === 'allowed') await hold(decision.delay)
    const { response, isOwn } =
      decision.kind === 'allowed'
        ? await proxy(request, config, { ...(caller && { caller }), decision, requestId })
        : { response: deny(decision), isOwn: true }

    safely(() => annotate(response, decision, requestId))
    safely(() => exposeToScripts(request, response, config.cors, { isOwn }))
    return response
  })

  async function judge(request: Request, env: unknown): Promise<Judged> {
    try {
      const peer = peerOf?.(request, env)
      const matched = match(config, request)
      const caller = await identifier.identify(request, matched, peer)
      const askedAt = Date.now()
      const decided = caller.refusal
        ? { decision: caller.refusal }
        : await decisionOn(request, caller, matched)
      return { caller, ...decided, route: matched.route?.name, storeMs: Date.now() - askedAt }
    } catch (error) {
      // Who it is, and what is asked for here, nobody knows: then nobody comes in.
      const decision = { kind: 'unavailable', what: 'credential', degraded: degradedBy(error) } as const
      return { decision, storeMs: 0 }
    }
  }

  /** Never throws: what goes wrong in limiting is like a store that fails. */
  async function decisionOn(
    request: Request,
    caller: Caller,
    matched: Matched,
  ): Promise<Pick<Judged, 'decision' | 'isHeard'>> {
    try {
      const asked = await question(request, caller, matched, config, switches.current())
      const outcome = await evaluate(store, asked)
      if (outcome.status === 'degraded') {
        return { decision: fallBack(asked, outcome, identifier.recall(caller), fallback) }
      }
      identifier.learn(caller, outcome)
      const latest = switches.current()
      const decision = marked(decide(relax(outcome, asked, latest)), latest)
      // What needs no trip has no time of the store's.
      return { decision, isHeard: outcome.at > 0 }
    } catch (error) {
      return { decision: fallBackUncounted(caller, matched, degradedBy(error)) }
    }
  }

  function fallBackUncounted(caller: Caller, { rules }: Matched, degraded: Degraded): Decision {
    const latest = switches.current()
    const isClosed = rules.some(rule => rule.onStoreFailure === 'closed' && isEnforced(rule, latest))
    if (isClosed) return { kind: 'unavailable', what: 'limits', degraded }
    const { credential } = caller
    const asked = { rules: [], plans: config.plans, ...(credential && { who: credential.who }) }
    return fallBack(asked, degraded, identifier.recall(caller), fallback)
  }

  /** After an outage, or in one: is the store back, and what does it not know yet? */
  function recover(background: Background, isHeard = false): void {
    if (store.isProbeDue()) background(store.probe())
    // Not by the breaker: how long that takes says nothing about decisions.
    if (isHeard && local.hasSpent()) background(local.handOver(bare))
  }

  app.onError(unexpected)

  return app
}

/** What is said about a request must not cost it its answer. */
function safely(say: () => void): void {
  try {
    say()
  } catch (error) {
    logException(error)
  }
}

function notFound(): Response {
  return problem({
    status: 404,
    title: 'Not Found',
    detail: 'The gateway has nothing at this path. GET /_sluice/health says how it is.',
  })
}
