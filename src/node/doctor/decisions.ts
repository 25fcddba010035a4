/**
 * Decisions under the user's rules, by the scripts of the user's config, for callers that exist in the key space of an examination only. All
 * rules that are not off are bound together, as if one request matched each of them.
 */
import type { Config, GatewayRule, Rule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { BOTH_MODES, isOfConsumer } from '../../config/identity-parts.ts'
import { bindRule } from '../../limiter/bind.ts'
import { evaluateOnCluster } from '../../limiter/cluster.ts'
import { prepareDecide, runCall } from '../../limiter/prepared-call.ts'
import { gatewayRuleSet, limitRuleSet } from '../../script/compiled.ts'
import type { DecideVerb } from '../../script/decide.ts'
import type { Evaluation, Outcome } from '../../script/evaluation.ts'
import {
  consumerKey,
  credentialKey,
  identityStateKey,
  limitStateKey,
  type PartValue,
} from '../../store/keys.ts'
import { formatConsumer, formatCredential } from '../../store/records.ts'
import type { Store } from '../../store/store.ts'
import { randomWord } from './key-space.ts'

export interface Decision {
  /** For messages. */
  title: string
  evaluation: Evaluation
  /** Of the caller, by their keys. */
  records: readonly (readonly [key: string, text: string])[]
}

/** @param caller callers with different names share no budget, unless a rule counts them together */
export function decisionsUnder(config: Config, caller: string): Decision[] {
  const isOn = ({ mode }: Rule) => mode !== 'off'
  const ofLimits = [...config.limits].map(([name, rules]): Decision => {
    const key = (by: readonly string[]) =>
      limitStateKey(
        name,
        by.map(part => [part, caller]),
      )
    const bound = rules.filter(isOn).map(rule => bindOwn(rule, key(rule.by)))
    return {
      title: `limit '${name}'`,
      evaluation: withId({ ruleSet: limitRuleSet(rules), rules: bound }),
      records: [],
    }
  })
  const keys = { consumerKey: consumerKey(caller), credentialKey: credentialKey(caller, '0'.repeat(64)) }
  const rules = config.rules.filter(isOn).map(rule => bindOwn(rule, keyOf(rule, caller)))
  const ofGateway: Decision = {
    title: 'the rules of the gateway',
    evaluation: withId({ ruleSet: gatewayRuleSet(config), rules, subject: { kind: 'key', ...keys } }),
    records: [
      [keys.consumerKey, formatConsumer({ plan: config.plans[0]!, overrides: [] })],
      [keys.credentialKey, formatCredential({ createdAt: new Date(0) })],
    ],
  }
  return [ofGateway, ...ofLimits].filter(({ evaluation }) => evaluation.rules.length > 0)
}

function keyOf({ by, acrossModes }: GatewayRule, caller: string): string {
  const owner = isOfConsumer(by)
    ? { consumer: caller }
    : by.includes('address')
      ? { address: caller }
      : undefined
  const others = by.filter(part => part !== 'global' && !(owner && part in owner))
  const parts = others.map((part): PartValue => [part, caller])
  return identityStateKey(owner, acrossModes ? [...parts, [BOTH_MODES, undefined]] : parts)
}

/** Each decision comes from an isolate of its own, which holds nothing yet. */
function bindOwn(rule: Rule, key: string) {
  const bound = bindRule(rule, key, rule.cost, Date.now())
  return countsInFlight(rule)
    ? { ...bound, holding: { holder: randomWord(8), epoch: 1, started: 0, ended: 0 } }
    : bound
}

const withId = (evaluation: Evaluation): Evaluation =>
  evaluation.ruleSet.settle ? { ...evaluation, reservationId: randomWord(12) } : evaluation

/** Decides as an isolate does: over the slots of a cluster, if the store is one. @throws GatewayError */
export function decide(store: Store, evaluation: Evaluation, verb: DecideVerb = 'decide'): Promise<Outcome> {
  if (!store.isCluster) return runCall(store, prepareDecide(evaluation, verb))
  const options = { verb, undoStore: store, isCallerKnown: () => true, now: () => performance.now() }
  return evaluateOnCluster(store, evaluation, { ...options, onCluster: evaluateOnCluster })
}
