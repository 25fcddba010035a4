/**
 * Decides a request: match → identify → shed → bind → decide. Never throws: an error in limiting code is handled like a store that
 * fails, and if the caller cannot be identified, the request gets a 503.
 */
import type { Background } from '../../background.ts'
import type { Config } from '../../config/compile.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'
import type { Decided, Ending, Engine } from '../../limiter/engine.ts'
import { toDegraded } from '../../limiter/evaluate.ts'
import type { Policy } from '../../script/policy-shape.ts'
import type { ShedVerdict } from '../../shedding/worker-utilization.ts'
import { bindRules } from './bind-rules.ts'
import type { Caller } from './caller.ts'
import type { AppliedHooks, Hooks, Identify } from './hooks.ts'
import type { Identifier } from './identify.ts'
import { type Matched, match } from './match.ts'
import type { Parts } from './parts.ts'
import type { Ruling } from './ruling.ts'
import type { Shedder } from './shed.ts'
import { safely } from './unexpected.ts'

/** A request that is decided. */
export interface Judged {
  ruling: Ruling
  /** Absent, like the caller, if an exception came before. */
  matched?: Matched
  caller?: Caller
  /** Of the shedder by worker utilization, for a request that it has not refused. */
  shed?: ShedVerdict
  /** How long the decision took (ms); 0 if the engine did not make it. */
  storeMs: number
  /** Something depends on how and when the request ends. */
  awaitsEnding: boolean
  /** The request is over. To be called exactly once. */
  finish(ending: Ending): void
}

/**
 * @param peer the other end of the connection, where the platform knows it
 * @param host the request as the framework around Sluice has it, for hooks
 */
export type Judge = (
  request: Request,
  peer: () => string | undefined,
  background: Background,
  host?: unknown,
) => Promise<Judged>

/** A request whose caller is known as far as the request says it. */
interface Identified extends AppliedHooks {
  request: Request
  /** Undefined where no traffic is shed. */
  trafficClass: TrafficClass | undefined
}

/** What a request is judged with. */
export interface JudgeParts {
  /** Of all rules of the config. */
  policy: Policy
  engine: Engine
  identifier: Identifier
  classFor: Parts['classFor']
  matchEach: Parts['matchEach']
  /** The shedder by worker utilization; absent where the config has none. */
  shedder?: Shedder | undefined
  /** Functions of the config; absent where it has none. */
  hooks?: Hooks | undefined
}

export function createJudge(
  config: Config,
  { policy, engine, identifier, classFor, matchEach, shedder, hooks }: JudgeParts,
): Judge {
  async function decide(
    { request, caller, matched, failure, trafficClass }: Identified,
    background: Background,
  ): Promise<Decided> {
    const { credential, plan } = caller
    const common = { policy, plan, ...(credential && { subject: credential.subject }) }
    const options = { background, recall: () => identifier.recall(caller) }
    try {
      const rules = bindRules(request, caller, matched, config.allow, trafficClass)
      return await engine.decide({ ...common, rules, failure }, options)
    } catch (error) {
      return engine.decideBroken({ ...common, candidates: matched.rules, error }, options)
    }
  }

  return async (request, peer, background, host) => {
    try {
      const found = match(config, request, matchEach)
      const identify: Identify = byHook => identifier.identify(request, found, peer(), byHook)
      const applied: AppliedHooks = hooks
        ? await hooks.apply(identify, { request, matched: found, host })
        : { matched: found, caller: await identify() }
      const { matched, caller } = applied
      if (caller.refusal) return { ...applied, ruling: caller.refusal, ...WITHOUT_STORE }
      const { classes } = matched
      const trafficClass =
        classes.length > 0 ? classFor(classes, caller, () => identifier.recall(caller)) : undefined
      const shed = trafficClass && shedder?.judge(trafficClass, caller, matched)
      if (shed?.mode === 'enforce' && !shed.allowed) {
        engine.keepFresh({ background })
        return { matched, caller, ruling: { kind: 'shed', verdict: shed }, ...WITHOUT_STORE }
      }

      const { decision, outcome, storeMs, awaitsEnding, finish } = await decide(
        { request, ...applied, trafficClass },
        background,
      )
      // An exception here would lose the decision, which has spent and is still to be finished.
      if (outcome) safely(() => identifier.learn(caller, outcome))
      return { matched, caller, ruling: decision, storeMs, awaitsEnding, finish, ...(shed && { shed }) }
    } catch (error) {
      const { cause, detail } = toDegraded(error)
      const ruling = { kind: 'unavailable', what: 'credential', degraded: { cause, detail } } as const
      return { ruling, ...WITHOUT_STORE }
    }
  }
}

/** The engine was not asked, so nothing of it is to be finished. */
const WITHOUT_STORE = { storeMs: 0, awaitsEnding: false, finish: () => {} } as const
