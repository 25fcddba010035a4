/**
 * Decides a request: match → identify → read fields → shed → estimate → demand → decide. Never throws: an error in limiting code is handled like
 * a failing store, and if the caller cannot be identified, the request gets a 503.
 */
import type { Background } from '../../background.ts'
import type { Config } from '../../config/compile.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'
import { isAdmitted } from '../../credentials/caller-memory.ts'
import type { Demand } from '../../limiter/bind.ts'
import type { Decided, Engine } from '../../limiter/engine-shape.ts'
import { toDegraded } from '../../limiter/evaluate.ts'
import type { Log } from '../../log.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import type { BodyFields, ReadFields } from './body-fields.ts'
import type { Caller } from './caller.ts'
import type { DecidedRequest } from './decided-request.ts'
import { type CostOf, demandRules } from './demand-rules.ts'
import type { EmptyStoreCheck } from './empty-store.ts'
import type { AppliedHooks, HookRunner, Identify } from './hooks.ts'
import type { Identifier } from './identify.ts'
import type { Matched, MatchRequest } from './match.ts'
import type { OriginLoad } from './origin-load.ts'
import { isReducedCapacity, type Unread } from './ruling.ts'
import type { classOfRequest } from './traffic-class.ts'
import { runOrLog } from './unexpected.ts'

/**
 * Decides a request.
 *
 * @param peer returns the other end of the connection, if the platform reports it
 * @param host the request object of the framework around Sluice, for hooks
 */
export type DecideRequest = (
  request: Request,
  peer: () => string | undefined,
  background: Background,
  host?: unknown,
) => Promise<DecidedRequest>

/** A request whose caller is identified, as far as the request alone allows it. */
export interface IdentifiedRequest extends AppliedHooks {
  request: Request
  /** Undefined if the config does not shed load. */
  trafficClass: TrafficClass | undefined
  /** Of its body, if rules count by them. */
  fields?: BodyFields | undefined
  /** Absent: its rules count requests. */
  costOf?: CostOf
}

/** A decision with the caller and its class, as the store has found them. */
type DecidedCaller = Decided & Pick<DecidedRequest, 'trafficClass'> & { caller: Caller }

/** Decides a request by its rules. @returns a decision, or why its body was not read */
export type DecideIdentified = (
  identified: IdentifiedRequest,
  background: Background,
) => Promise<(DecidedCaller & Pick<DecidedRequest, 'forward'>) | { unread: Unread }>

/** Dependencies of the decision. */
export interface DecideRequestParts {
  /** The compiled rule set of all rules. */
  ruleSet: RuleSet
  engine: Engine
  identifier: Identifier
  classOfRequest: typeof classOfRequest
  match: MatchRequest
  /** The worker utilization shedder and the adaptive limit. Absent if the config has neither. */
  originLoad?: Pick<OriginLoad, 'shedder' | 'limitOf'> | undefined
  /** Absent if no rule counts by a field of the body. */
  readFields?: ReadFields | undefined
  /** The hooks of the config; absent if it has none. */
  hooks?: HookRunner | undefined
  log: Log
  /** Informed of keys that the store does not know. */
  emptyStore?: Pick<EmptyStoreCheck, 'noteUnknownKey'>
}

/** @param wrap changes how requests are decided by their rules */
export function createDecideRequest(
  config: Config,
  {
    ruleSet,
    engine,
    identifier,
    classOfRequest,
    match,
    originLoad,
    hooks,
    readFields,
    emptyStore,
    log,
  }: DecideRequestParts,
  wrap: (decide: DecideIdentified) => DecideIdentified = decide => decide,
): DecideRequest {
  /** @param plan that the store has found */
  const classOf = (caller: Caller, { classes }: Matched, plan?: string): TrafficClass | undefined =>
    classes.length > 0
      ? classOfRequest(classes, caller, () => (plan ? { plan } : identifier.recall(caller)), config.plans)
      : undefined

  const callerOf = ({ credential, plan }: Caller) => ({
    ...{ ruleSet, plan },
    ...(credential && { subject: credential.subject }),
  })

  /**
   * Whose request waits in a flood. A caller that the store has not admitted lately waits with all others of its address, so a client that
   * makes up keys has no more turns than any other.
   */
  function lineOf(caller: Caller): string | undefined {
    const { address, addressIdentity, credential } = caller
    if (credential?.isVerified) return `consumer ${credential.consumer}`
    const seen = identifier.recall(caller)
    if (isAdmitted(seen)) return `consumer ${seen.consumer}`
    return address === undefined ? credential?.digest : `address ${addressIdentity}`
  }

  const demandOf = ({ request, caller, matched, failure, ...more }: IdentifiedRequest): Demand => ({
    ...callerOf(caller),
    rules: demandRules(request, caller, matched, config.allow, {
      ...more,
      adaptedLimitOf: originLoad?.limitOf,
    }),
    failure,
  })

  const decide = wrap(async (identified, background) => {
    const { matched } = identified
    let { caller, trafficClass } = identified
    const inMode: Demand['inMode'] = (mode, consumer) => {
      caller = identifier.useMode(caller, mode, consumer)
      trafficClass = classOf(caller, matched)
      return demandOf({ ...identified, caller, trafficClass })
    }
    try {
      const options = { background, recall: () => identifier.recall(caller), line: () => lineOf(caller) }
      const decided = await engine.decide({ ...demandOf(identified), inMode }, options)
      if (!trafficClass?.mayBeCritical) return { ...decided, caller, trafficClass }
      trafficClass = classOf(caller, matched, decided.outcome?.plan)
      const { decision } = decided
      if (!trafficClass?.isCritical || decision.kind !== 'denied' || !isReducedCapacity(decision))
        return { ...decided, caller, trafficClass }
      // The capacity was full for a plan that only the store knew.
      const again = await engine.decide(demandOf({ ...identified, caller, trafficClass }), options)
      return { ...again, storeMs: decided.storeMs + again.storeMs, caller, trafficClass }
    } catch (error) {
      return await decideBroken({ ...identified, caller, trafficClass }, error, background)
    }
  })

  /** Decides without the rules, because an exception has kept them from being applied. */
  async function decideBroken(
    { caller, matched, trafficClass }: Pick<IdentifiedRequest, 'caller' | 'matched' | 'trafficClass'>,
    error: unknown,
    background: Background,
  ): Promise<DecidedCaller> {
    const options = { background, recall: () => identifier.recall(caller), line: () => lineOf(caller) }
    const candidates =
      trafficClass?.isCritical || trafficClass?.mayBeCritical
        ? matched.rules.filter(rule => !rule.isSystemLimit)
        : matched.rules
    const broken = engine.decideBroken({ ...callerOf(caller), candidates, error }, options)
    const { decision } = broken
    const isRefusedByRule = decision.kind === 'unavailable' && decision.what === 'limits'
    if (!config.failOpen || isRefusedByRule) return { ...broken, caller, trafficClass }
    // The store can still check the credential.
    const inMode: Demand['inMode'] = (mode, consumer) => {
      caller = identifier.useMode(caller, mode, consumer)
      return { ...callerOf(caller), rules: [] }
    }
    const checked = await engine.decide({ ...callerOf(caller), rules: [], inMode }, options)
    if (checked.decision.kind !== 'allowed') return { ...checked, caller, trafficClass }
    const { cause, detail } = toDegraded(error)
    const uncounted = { degraded: { cause, detail }, ...checked.decision, isUncounted: true }
    return { ...checked, decision: uncounted, caller, trafficClass }
  }

  return async (request, peer, background, host) => {
    try {
      const beforeHooks = match(request)
      const identify: Identify = callIdentifyHook =>
        identifier.identify(request, beforeHooks, peer(), callIdentifyHook)
      const applied: AppliedHooks = hooks
        ? await hooks.apply(identify, { request, matched: beforeHooks, host })
        : { matched: beforeHooks, caller: await identify() }
      const { matched, caller } = applied
      const body = await readFields?.(request, caller, matched.rules)
      if (body?.refusal)
        return { matched, caller, ruling: { kind: 'unread', problem: body.refusal }, ...WITHOUT_STORE }
      const fields = body?.fields
      if (caller.refusal) {
        body?.skip()
        const { guess, refusal } = caller
        const tooManyGuesses =
          guess &&
          engine.noteGuess?.({
            ruleSet,
            rules: demandRules(request, { ...caller, credential: guess }, matched, config.allow, { fields }),
          })
        return { ...applied, ruling: tooManyGuesses ?? refusal, ...WITHOUT_STORE }
      }
      let trafficClass: TrafficClass | undefined
      let shed: DecidedRequest['shed']
      let decided: Awaited<ReturnType<DecideIdentified>>
      try {
        trafficClass = classOf(caller, matched)
        shed = trafficClass && originLoad?.shedder?.evaluate(trafficClass, caller, matched)
        if (shed?.mode === 'enforce' && !shed.allowed) {
          body?.skip()
          engine.keepFresh({ background })
          const seen = identifier.recall(caller)
          const known = isAdmitted(seen) && { plan: seen.plan, consumer: seen.consumer }
          return { matched, caller, ruling: { kind: 'shed', verdict: shed, ...known }, ...WITHOUT_STORE }
        }
        decided = await decide(
          { ...applied, request: body?.request ?? request, fields, trafficClass },
          background,
        )
      } catch (error) {
        decided = await decideBroken({ ...applied, trafficClass }, error, background)
      }
      if (!('decision' in decided) || decided.decision.kind !== 'allowed') body?.skip()
      if ('unread' in decided) return { matched, caller, ruling: decided.unread, ...WITHOUT_STORE }
      const { decision, outcome } = decided
      // An exception must not lose the decision, which has already spent units and must still be finished.
      if (outcome) {
        runOrLog(log, () => {
          if (outcome.status === 'unknown-credential')
            emptyStore?.noteUnknownKey(background, identifier.recall(caller)?.plan !== undefined)
          identifier.remember(decided.caller, outcome)
        })
      }
      return { ...decided, ...body?.forwarding(decided), matched, ruling: decision, shed }
    } catch (error) {
      const { cause, detail } = toDegraded(error)
      const ruling = { kind: 'unavailable', what: 'credential', degraded: { cause, detail } } as const
      return { ruling, ...WITHOUT_STORE }
    }
  }
}

/** The engine was not called, so it has nothing to finish. */
const WITHOUT_STORE = { storeMs: 0, awaitsEnding: false, finish: () => {} } as const
