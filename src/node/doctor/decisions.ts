/** Decisions by the scripts of the user's config, for callers that exist in the key space of an examination only. The model decides the same. */
import { isDeepStrictEqual } from 'node:util'
import { ALL_ALGORITHMS, type AlgorithmName } from '../../algorithms/all.ts'
import type { LimitRuleInput } from '../../config/check/rule-schema.ts'
import type { Config, Rule } from '../../config/compile.ts'
import { compileLimitRule, countsInFlight, switchNameOf } from '../../config/compile-rule.ts'
import { isOfConsumer } from '../../config/identity-parts.ts'
import { randomBase62 } from '../../credentials/api-key.ts'
import { GatewayError } from '../../errors.ts'
import { bindRule, bindRules } from '../../limiter/bind.ts'
import { evaluateOnCluster, refundOfPart } from '../../limiter/cluster.ts'
import {
  prepareDecide,
  prepareRefund,
  prepareReset,
  prepareSettle,
  runCall,
  runCalls,
} from '../../limiter/prepared-call.ts'
import { gatewayRuleSet, limitRuleSet } from '../../script/compiled.ts'
import type { DecideVerb } from '../../script/decide.ts'
import type { BoundRule, Evaluation, Outcome } from '../../script/evaluation.ts'
import { ScriptModel } from '../../script/model.ts'
import { consumerKey, identityStateKey, limitStateKey } from '../../store/keys.ts'
import type { Script, Store } from '../../store/store.ts'
import { NO_SWITCHES } from '../../switches/switches.ts'
import type { Bed } from './checks.ts'
import { type Finding, fault, isLate, ok } from './findings.ts'

export interface Decision extends Evaluation {
  title: string
}

/**
 * All rules that are not off are bound together, as if one request matched each of them.
 * @param caller callers with different names share no budget, unless a rule counts them together
 */
export function decisionsUnder(config: Config, caller: string): Decision[] {
  const partsOf = ({ by }: { by: readonly string[] }) => by.map(part => [part, caller] as const)
  const ofGateway: Decision = {
    title: 'the rules of the gateway',
    ruleSet: gatewayRuleSet(config),
    // In the slot of a real one.
    rules: bindAll(config.rules, rule => {
      const ofAddress = rule.by.includes('address') ? { address: caller } : undefined
      const owner = isOfConsumer(rule.by) ? { consumer: caller } : ofAddress
      return identityStateKey(owner, rule.by.includes('global') ? [] : partsOf(rule))
    }),
    // Has no record, which is right for a token.
    subject: { kind: 'token', consumerKey: consumerKey(caller), plan: config.plans[0]! },
  }
  const ofLimits = [...config.limits].map(([name, rules]) => ({
    title: `limit '${name}'`,
    ruleSet: limitRuleSet(rules),
    rules: bindAll(rules, rule => limitStateKey(name, partsOf(rule))),
  }))
  return [ofGateway, ...ofLimits]
    .filter(({ rules }) => rules.length > 0)
    .map(each => (each.ruleSet.settle ? { ...each, reservationId: randomBase62(12) } : each))
}

/** Each decision comes from an isolate of its own, which holds nothing yet. */
function bindAll<R extends Rule>(rules: readonly R[], keyOf: (rule: R) => string): BoundRule[] {
  const holding = { holder: randomBase62(8), epoch: 1, started: 0, ended: 0 }
  const demanded = rules.map(rule => ({
    ...{ rule, key: keyOf(rule), cost: rule.cost },
    ...(countsInFlight(rule) && { holding }),
  }))
  return bindRules(demanded, NO_SWITCHES, switchNameOf, Date.now())
}

export const scriptsOf = (decisions: readonly Decision[]): Script[] =>
  decisions.flatMap(({ ruleSet }) => [ruleSet.decide, ruleSet.refund, ruleSet.settle ?? []].flat())

/** Decides as an isolate does: over the slots of a cluster, if the store is one. @throws GatewayError */
export function decide(store: Store, evaluation: Evaluation, verb: DecideVerb = 'decide'): Promise<Outcome> {
  if (!store.isCluster) return runCall(store, prepareDecide(evaluation, verb))
  const onCluster = { onCluster: evaluateOnCluster, undoStore: store, isCallerKnown: () => true }
  return evaluateOnCluster(store, evaluation, { ...onCluster, verb, now: () => performance.now() })
}

/** The fix if the store itself counts wrong. */
export const OTHER_STORE =
  'Use Redis 6.2 or newer, Valkey, an Upstash database or the bridge. If it is one of them, report this: it is a bug.'

/** For each algorithm a rule, and decisions around its edges: at (s, from a multiple of every period), cost. test/algorithms has many more. */
const VECTORS: Readonly<Record<AlgorithmName, readonly [numbers: object, decisions: string]>> = {
  gcra: [{ limit: 5, period: '5s' }, '0 6; 0 1; 0 4; 0.999999 1; 1 1; 3.5 3; 100 5'],
  'fixed-window': [{ limit: 3, period: '10s' }, '100 4; 101 2; 102 2; 103 1; 109.999999 1; 110 3'],
  'token-bucket': [{ limit: 5, period: '5s' }, '0 4; 0 3; 1.999999 3; 2 3; 3.5 2; 100 5'],
  'leaky-bucket': [{ limit: 2, period: '1s', queue: 3 }, '0 5; 0 1; 0 1; 0 2; 0 1; 0.5 1; 2.25 1'],
  'sliding-window': [{ limit: 10, period: '10s' }, '104 8; 104 3; 111.249999 3; 111.25 3; 115 3; 115 10'],
  'sliding-log': [{ limit: 3, period: '10s' }, '0 4; 0 1; 4 2; 5 1; 9.999999 1; 10 1'],
  concurrency: [{ limit: 2, ttl: '60s' }, '0 3; 0 1; 10 1; 11 1; 70 2'],
}

export const algorithmVectors = (): [name: string, (Evaluation & { now: number })[]][] =>
  Object.entries(VECTORS).map(([name, [numbers, decisions]]) => {
    const rule = compileLimitRule({ ...numbers, name, algorithm: name } as LimitRuleInput, ALL_ALGORITHMS)
    const [ruleSet, key] = [limitRuleSet([rule]), limitStateKey('doctor', [['algorithm', name]])]
    const evaluations = decisions.split('; ').map(text => {
      const [at = 0, cost = 0] = text.split(' ').map(Number)
      const now = 1_700_000_000e6 + Math.round(at * 1e6)
      return { ruleSet, rules: [bindRule(rule, key, cost, now / 1e3)], now }
    })
    return [name, evaluations]
  })

export async function checkAlgorithms({ decisions }: Bed): Promise<Finding> {
  const vectors = algorithmVectors()
  const wrong: string[] = []
  for (const [name, evaluations] of vectors) {
    const model = new ScriptModel()
    // In one trip, in which they keep their order.
    const calls = evaluations.map(each => prepareDecide(each))
    const outcomes = await runCalls(decisions, calls)
    const failure = outcomes.find(outcome => outcome instanceof GatewayError)
    if (failure) throw failure
    const expected = evaluations.map(each => model.decide(each))
    if (!isDeepStrictEqual(outcomes, expected)) wrong.push(name)
  }
  return wrong.length > 0
    ? fault`The store counts wrong under ${wrong.join(', ')}. → ${OTHER_STORE}`
    : ok`All ${vectors.length} algorithms count right, in ${vectors.flatMap(([, all]) => all).length} decisions.`
}

export async function checkRules({ config, decisions }: Bed): Promise<Finding> {
  const all = decisionsUnder(config, 'caller')
  const wrong: string[] = []
  for (const decision of all) {
    const problem = await problemOf(decision, decisions).catch(error => {
      if (!(error instanceof GatewayError) || isLate(error)) throw error
      return error.message.replace(/\.$/, '')
    })
    if (problem) wrong.push(`${decision.title} (${problem})`)
  }
  if (wrong.length > 0)
    return fault`Scripts of your config do not work here: ${wrong.join(', ')}. → ${OTHER_STORE}`
  const bytes = scriptsOf(all).map(({ plain }) => plain.source.length)
  return ok`The ${bytes.length} scripts of your config work (the largest: ${Math.ceil(Math.max(0, ...bytes) / 1e3)} kB).`
}

/** Runs all scripts of a decision. @throws GatewayError if one fails */
async function problemOf(decision: Decision, store: Store): Promise<string | undefined> {
  const decided = await decide(store, decision)
  await decide(store, decision, 'peek')
  // Slots of a cluster decide at different times, and each has calls of its own, so there only errors count.
  if (store.isCluster) return undefined
  const { ruleSet, rules, reservationId: id } = decision
  const [refund] = refundOfPart(decision, decided)
  if (refund && id) {
    const amounts = rules.map(({ cost }) => ({ reserved: cost, actual: cost + 1 }))
    const requests = [{ id, spentAt: decided.at, amounts }]
    await runCall(store, prepareSettle({ ...refund, ruleSet, rules, requests }))
  }
  if (refund) await runCall(store, prepareRefund(refund))
  await runCall(store, prepareReset({ rules }))
  const expected = new ScriptModel().decide({ ...decision, now: decided.at })
  return isDeepStrictEqual(decided, expected) ? undefined : 'a wrong decision'
}
