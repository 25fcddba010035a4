/** Decisions by the scripts of the user's config, for callers that exist in the key space of an examination only. The model decides the same. */
import { isDeepStrictEqual } from 'node:util'
import { ALL_ALGORITHMS, type AlgorithmName } from '../../algorithms/all.ts'
import type { LimitRuleInput } from '../../config/check/rule-schema.ts'
import type { Config, Rule } from '../../config/compile.ts'
import { compileLimitRule, countsInFlight } from '../../config/compile-rule.ts'
import { isOfConsumer } from '../../config/identity-parts.ts'
import { randomBase62 } from '../../credentials/api-key.ts'
import { GatewayError } from '../../errors.ts'
import { bindRule } from '../../limiter/bind.ts'
import { evaluateOnCluster, refundOf } from '../../limiter/cluster.ts'
import {
  type PreparedCall,
  prepareDecide,
  prepareRefund,
  prepareReset,
  prepareSettle,
  runCall,
  runCalls,
} from '../../limiter/prepared-call.ts'
import { gatewayRuleSet, limitRuleSet } from '../../script/compiled.ts'
import type { DecideVerb } from '../../script/decide.ts'
import type { Evaluation, Outcome } from '../../script/evaluation.ts'
import { ScriptModel } from '../../script/model.ts'
import { consumerKey, credentialKey, identityStateKey, limitStateKey } from '../../store/keys.ts'
import { formatConsumer, formatCredential } from '../../store/records.ts'
import type { Script, Store } from '../../store/store.ts'
import { type Finding, fault, findings, ok } from './checks.ts'
import type { Bed } from './examined-store.ts'
import { KEY_SECONDS } from './key-space.ts'

export interface Decision extends Evaluation {
  title: string
  /** Of its caller. */
  records: readonly (readonly [key: string, text: string])[]
}

/**
 * All rules that are not off are bound together, as if one request matched each of them.
 * @param caller callers with different names share no budget, unless a rule counts them together
 */
export function decisionsUnder(config: Config, caller: string): Decision[] {
  const partsOf = ({ by }: { by: readonly string[] }) => by.map(part => [part, caller] as const)
  const ofLimits = [...config.limits].map(([name, rules]): Decision => {
    const bound = bindAll(rules, rule => limitStateKey(name, partsOf(rule)))
    return { title: `limit '${name}'`, ruleSet: limitRuleSet(rules), rules: bound, records: [] }
  })
  const keys = { consumerKey: consumerKey(caller), credentialKey: credentialKey(caller, '0'.repeat(64)) }
  const ofGateway: Decision = {
    title: 'the rules of the gateway',
    ruleSet: gatewayRuleSet(config),
    // In the slot of a real one.
    rules: bindAll(config.rules, rule => {
      const ofAddress = rule.by.includes('address') ? { address: caller } : undefined
      const owner = isOfConsumer(rule.by) ? { consumer: caller } : ofAddress
      return identityStateKey(owner, rule.by.includes('global') ? [] : partsOf(rule))
    }),
    subject: { kind: 'key', ...keys },
    records: [
      [keys.consumerKey, formatConsumer({ plan: config.plans[0]!, overrides: [] })],
      [keys.credentialKey, formatCredential({ createdAt: new Date(0) })],
    ],
  }
  return [ofGateway, ...ofLimits]
    .filter(({ rules }) => rules.length > 0)
    .map(each => (each.ruleSet.settle ? { ...each, reservationId: randomBase62(12) } : each))
}

/** Each decision comes from an isolate of its own, which holds nothing yet. */
const bindAll = <R extends Rule>(rules: readonly R[], keyOf: (rule: R) => string) =>
  rules
    .filter(({ mode }) => mode !== 'off')
    .map(rule => ({
      ...bindRule(rule, keyOf(rule), rule.cost, Date.now()),
      ...(countsInFlight(rule) && { holding: { holder: randomBase62(8), epoch: 1, started: 0, ended: 0 } }),
    }))

export async function writeRecords({ send, space }: Bed, decisions: readonly Decision[]): Promise<void> {
  const records = decisions.flatMap(({ records }) => records)
  if (records.length > 0)
    await send(records.map(([key, text]) => ['SETEX', space.at(key), KEY_SECONDS, text]))
}

export const scriptsOf = (decisions: readonly Decision[]): Script[] =>
  decisions.flatMap(({ ruleSet }) => [ruleSet.decide, ruleSet.refund, ruleSet.settle ?? []].flat())

/** Decides as an isolate does: over the slots of a cluster, if the store is one. @throws GatewayError */
export function decide(store: Store, evaluation: Evaluation, verb: DecideVerb = 'decide'): Promise<Outcome> {
  if (!store.isCluster) return runCall(store, prepareDecide(evaluation, verb))
  const options = { verb, undoStore: store, isCallerKnown: () => true, now: () => performance.now() }
  return evaluateOnCluster(store, evaluation, { ...options, onCluster: evaluateOnCluster })
}

const OTHER_STORE =
  'Use Redis 6.2 or newer, Valkey, an Upstash database or the bridge. If it is one of them, report this: it is a bug.'

/** For each algorithm a rule, and decisions around its edges: at (s), cost. test/algorithms has many more. */
const VECTORS: Readonly<Record<AlgorithmName, readonly [numbers: object, decisions: string]>> = {
  gcra: [{ limit: 5, period: '5s' }, '0 6; 0 1; 0 4; 0.999999 1; 1 1; 3.5 3; 100 5'],
  'fixed-window': [{ limit: 3, period: '10s' }, '100 4; 101 2; 102 2; 103 1; 109.999999 1; 110 3'],
  'token-bucket': [{ limit: 5, period: '5s' }, '0 4; 0 3; 1.999999 3; 2 3; 3.5 2; 100 5'],
  'leaky-bucket': [{ limit: 2, period: '1s', queue: 3 }, '0 5; 0 1; 0 1; 0 2; 0 1; 0.5 1; 2.25 1'],
  'sliding-window': [{ limit: 10, period: '10s' }, '104 8; 104 3; 111.249999 3; 111.25 3; 115 3; 115 10'],
  'sliding-log': [{ limit: 3, period: '10s' }, '0 4; 0 1; 4 2; 5 1; 9.999999 1; 10 1'],
  concurrency: [{ limit: 2, ttl: '60s' }, '0 3; 0 1; 10 1; 11 1; 70 2'],
}

/** µs. A multiple of every period above. */
const START = 1_700_000_000 * 1e6

export const algorithmVectors = (): [name: string, (Evaluation & { now: number })[]][] =>
  Object.entries(VECTORS).map(([name, [numbers, decisions]]) => {
    const rule = compileLimitRule({ ...numbers, name, algorithm: name } as LimitRuleInput, ALL_ALGORITHMS)
    const [ruleSet, key] = [limitRuleSet([rule]), limitStateKey('doctor', [['algorithm', name]])]
    const evaluations = decisions.split('; ').map(text => {
      const [at = 0, cost = 0] = text.split(' ').map(Number)
      const now = START + Math.round(at * 1e6)
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
    const outcomes = await runCalls(
      decisions,
      evaluations.map(each => prepareDecide(each)),
    )
    const isRight = outcomes.every((outcome, i) => {
      if (outcome instanceof GatewayError) throw outcome
      return isDeepStrictEqual(outcome, model.decide(evaluations[i]!))
    })
    if (!isRight) wrong.push(name)
  }
  return wrong.length > 0
    ? fault`The store counts wrong under ${wrong.join(', ')}. → ${OTHER_STORE}`
    : ok`All ${vectors.length} algorithms count right, in ${vectors.flatMap(([, all]) => all).length} decisions.`
}

export async function checkRules(bed: Bed): Promise<Finding> {
  const all = decisionsUnder(bed.config, 'caller')
  await writeRecords(bed, all)
  const wrong: string[] = []
  for (const decision of all) {
    const step = await firstWrongStep(bed.decisions, decision).catch(error => {
      if (error instanceof GatewayError) return error.message.replace(/\.$/, '')
      throw error
    })
    if (step) wrong.push(`${decision.title} (${step})`)
  }
  const scripts = scriptsOf(all)
  const bytes = Math.max(0, ...scripts.map(({ plain }) => plain.source.length))
  const found = findings({ scripts: scripts.length, largest_script_bytes: bytes })
  return wrong.length > 0
    ? found.fault`Scripts of your config do not work here: ${wrong.join(', ')}. → ${OTHER_STORE}`
    : found.ok`The ${scripts.length} scripts of your config work (the largest: ${Math.ceil(bytes / 1e3)} kB).`
}

/** @returns the name of the first step whose reply is not that of the model @throws GatewayError */
async function firstWrongStep(store: Store, decision: Decision): Promise<string | undefined> {
  const decided = await decide(store, decision)
  // Slots of a cluster decide at different times, and each has calls of its own, so there only errors count.
  if (store.isCluster) return void (await decide(store, decision, 'peek'))
  const model = new ScriptModel()
  for (const [key, text] of decision.records) model.setRecord(key, text)
  if (!isDeepStrictEqual(decided, model.decide({ ...decision, now: decided.at }))) return 'decide'
  const { ruleSet, rules, reservationId: id } = decision
  const steps: [name: string, call: PreparedCall<{ at: number }>, expect: (now: number) => unknown][] = [
    ['peek', prepareDecide(decision, 'peek'), now => model.decide({ ...decision, now }, 'peek')],
  ]
  const [refund] = refundOf(decision, decided)
  if (refund && id) {
    const reservedBy = ({ tag }: Rule) => decided.verdicts.find(({ rule }) => rule.tag === tag)?.reserved ?? 0
    const amounts = rules.map(({ rule }) => ({ reserved: reservedBy(rule), actual: reservedBy(rule) + 1 }))
    const settlement = { ...refund, ruleSet, rules, requests: [{ id, spentAt: decided.at, amounts }] }
    steps.push(['settle', prepareSettle(settlement), now => model.settle({ ...settlement, now })])
  }
  if (refund) steps.push(['refund', prepareRefund(refund), now => model.refund({ ...refund, now })])
  steps.push(['reset', prepareReset({ rules }), now => model.reset({ rules, now })])
  for (const [name, call, expect] of steps) {
    const reply = await runCall(store, call)
    if (!isDeepStrictEqual(reply, expect(reply.at))) return name
  }
  return undefined
}
