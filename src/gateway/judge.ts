/**
 * What becomes of a request, in the order in which it is found out: match → identify → question → evaluate → decide. Never
 * throws: what goes wrong in limiting is like a store that fails, and where it is not even known who calls, nobody comes in.
 */
import type { Config } from '../config/compile.ts'
import { type Decision, decide, type Forbidden } from '../limiter/decide.ts'
import { type Degraded, degradedBy, evaluate } from '../limiter/evaluate.ts'
import { fallBack } from '../limiter/fallback.ts'
import { createLocalLimiter } from '../limiter/local.ts'
import { probe } from '../limiter/probe.ts'
import { type StoreChange, withBreaker } from '../store/breaker.ts'
import { withInFlightLimit } from '../store/in-flight.ts'
import type { Store } from '../store/store.ts'
import { createSwitchBoard, withSwitches } from '../switches/live.ts'
import { isEnforced, marked, relax } from '../switches/relax.ts'
import type { Background } from './background.ts'
import { type Caller, createIdentifier } from './identify.ts'
import { type Matched, match } from './match.ts'
import { question } from './question.ts'

/** What is known of a request that is decided. */
export interface Judged {
  decision: Decision
  /** Absent, as is the route: it could not be found out. */
  caller?: Caller
  route?: string | undefined
  /** How long the store took, with whatever it takes to ask it. */
  storeMs: number
  /** The store has answered. */
  isHeard?: boolean
  /** The live switches are old, and no trip has brought them. */
  isUninformed?: boolean
}

export interface Judge {
  /** @param env of the platform, for `peerOf` */
  judge(request: Request, env: unknown): Promise<Judged>
  /** Who is kept out whatever they show, for requests that show nothing (preflights). */
  refuse(request: Request, peer?: string): Forbidden | undefined
  /** Once a request is decided: is the store back, what does it not know yet, and what has been switched? */
  recover(judged: Judged, background: Background): void
}

/** What a judge needs of the platform. */
export interface Surroundings {
  /** Variables of the environment, among them the secrets that issuers of tokens share. */
  variables?: Readonly<Record<string, unknown>>
  /** The other end of the connection, for `address: { from: … }` off Cloudflare. */
  peerOf?: (request: Request, env: unknown) => string | undefined
  /** ms, by which the copy of the live switches grows old, and switches end; tests pass their own. */
  now?: () => number
}

/** One for an isolate: what it remembers is plain data. */
export function createJudge(
  config: Config,
  bare: Store,
  { variables, peerOf, now }: Surroundings,
  onStoreChange?: (change: StoreChange) => void,
): Judge {
  const identifier = createIdentifier(config, variables)
  const switches = createSwitchBoard({ ...(now && { now }) })
  const guarded = withBreaker(withSwitches(bare, switches), config.breaker, probe, {
    ...(onStoreChange && { onChange: onStoreChange }),
  })
  const store = withInFlightLimit(guarded, config.inFlight)
  const local = createLocalLimiter(config.localShare)
  const fallback = { credentials: config.credentials.onStoreFailure, local, store }

  async function decisionOn(
    request: Request,
    caller: Caller,
    matched: Matched,
  ): Promise<Pick<Judged, 'decision' | 'isHeard'>> {
    try {
      const before = switches.current()
      const asked = await question(request, caller, matched, config, before)
      const outcome = await evaluate(store, asked)
      if (outcome.status === 'degraded') {
        return { decision: fallBack(asked, outcome, identifier.recall(caller), fallback) }
      }
      identifier.learn(caller, outcome)
      const latest = switches.current()
      // What was asked without any rule passes like that, though they have been switched on again meanwhile.
      const decision = marked(decide(relax(outcome, asked, latest)), before.kill ? before : latest)
      // What needs no trip has no time of the store's.
      return { decision, isHeard: outcome.at > 0 }
    } catch (error) {
      return { decision: withoutQuestion(caller, matched, degradedBy(error)) }
    }
  }

  /** Where it could not be worked out what to ask, nothing is counted in the isolate either. */
  function withoutQuestion(caller: Caller, { rules }: Matched, degraded: Degraded): Decision {
    const latest = switches.current()
    const isClosed = rules.some(rule => rule.onStoreFailure === 'closed' && isEnforced(rule, latest))
    if (isClosed) return { kind: 'unavailable', what: 'limits', degraded }
    const { credential } = caller
    const asked = { rules: [], plans: config.plans, ...(credential && { who: credential.who }) }
    const decision = fallBack(asked, degraded, identifier.recall(caller), fallback)
    return decision.kind === 'allowed' ? { ...decision, isUncounted: true } : decision
  }

  return {
    async judge(request, env) {
      try {
        const peer = peerOf?.(request, env)
        const isOverdue = switches.isOverdue()
        const matched = match(config, request)
        const caller = await identifier.identify(request, matched, peer)
        const route = matched.route?.name
        if (caller.refusal) return { caller, route, decision: caller.refusal, storeMs: 0 }

        const askedAt = Date.now()
        const decided = await decisionOn(request, caller, matched)
        const isUninformed = isOverdue && switches.isOverdue()
        return { caller, route, ...decided, storeMs: Date.now() - askedAt, isUninformed }
      } catch (error) {
        const decision = { kind: 'unavailable', what: 'credential', degraded: degradedBy(error) } as const
        return { decision, storeMs: 0 }
      }
    },

    refuse: (request, peer) => identifier.refuse(request, peer),

    recover({ isHeard, isUninformed }, background) {
      if (store.isProbeDue()) background(store.probe())
      // Not by the breaker: how long that takes says nothing about decisions.
      if (isHeard && local.hasSpent()) background(local.handOver(bare))
      // Where nothing is counted no trip brings the switches, and nobody would see them switched back.
      if (isUninformed) background(store.run([]))
    },
  }
}
