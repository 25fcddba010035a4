/**
 * The scripts over plain memory, with the TypeScript models. It is their specification in the parity tests, and replays
 * traffic without a store. What it is compared with is compiled by policy-text.ts.
 */

import { IDLE, type State } from '../algorithms/algorithm.ts'
import { afterMessage, type Received } from '../algorithms/concurrency.ts'
import { algorithms } from '../algorithms/index.ts'
import { LUA } from '../algorithms/lua.generated.ts'
import type { Rule } from '../config/compile-rule.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import {
  isBlocked,
  type Override,
  type OverrideNumbers,
  parseConsumer,
  parseCredential,
} from '../store/records.ts'
import type { DecideVerb } from './decide.ts'
import {
  type BoundRule,
  type Evaluation,
  type Outcome,
  type Subject,
  type Verdict,
  withAgreement,
} from './evaluation.ts'
import { LEASE_DIVISOR, wantedRequestsOf } from './lease.ts'
import { decideInMemory, isIdle, type RuleToCount, refundInMemory } from './memory.ts'
import type { PolicyShape } from './policy-shape.ts'
import type { ChangeResult, Refund } from './refund.ts'
import type { Reset } from './reset.ts'
import type { Message } from './sync.ts'

type At<T> = T & { now: number }

/** The model compiles nothing: of a policy it needs the plans, and whether there are leases. */
export type ModelEvaluation = At<
  Omit<Evaluation, 'policy'> & { policy: Pick<PolicyShape, 'plans' | 'leases'> }
>

const modelOf = (rule: Rule) => algorithms[rule.algorithm]

export class ScriptModel {
  /** What the store would hold: records of rules by state key and tag. */
  readonly #states = new Map<string, Map<string, State>>()
  /** Records of credentials and consumers, and pointers, by key. */
  readonly #records = new Map<string, string>()

  setRecord(key: string, text: string): void {
    this.#records.set(key, text)
  }

  decide(
    { policy, rules, subject, plan: given = '', wantedRequests, now }: ModelEvaluation,
    verb: DecideVerb = 'decide',
  ): Outcome {
    const { plans } = policy
    const caller = this.#identify(subject, now)
    const { isUnknown = false, hasBlock = false, consumer, overrides = [] } = caller ?? {}
    // A plan that the config does not know counts as the default plan.
    const known = !caller || isUnknown ? '' : plans.includes(caller.plan) ? caller.plan : plans[0]!
    const plan = caller ? known : given

    const applying = rules
      .filter(({ rule: { on, match } }) =>
        on === 'auth-failure' ? true : !isUnknown && !hasBlock && (match.plans?.includes(plan) ?? true),
      )
      .flatMap(bound => overridden(bound, overrides, now))
    const counted = applying.map(({ bound, shown }) => {
      const key =
        consumer === undefined ? bound.key : bound.key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`)
      const isOnlyChecked = !isUnknown && bound.rule.on === 'auth-failure'
      return { bound: { ...bound, key }, shown, isOnlyChecked }
    })
    // A blocked consumer spends nothing, and bad credentials are counted one by one.
    const wanted = isUnknown ? 1 : wantedRequestsOf({ policy, wantedRequests }, verb)
    const decide = (counted: readonly RuleToCount[], isPeek: boolean) =>
      decideInMemory(modelOf, this.#states, counted, now, isPeek)
    const times = wanted > 1 ? grantOf(wanted, counted, decide(counted, true).verdicts) : 1
    const { admitted, verdicts } = decide(
      counted.map(each => ({ ...each, times })),
      verb === 'peek',
    )
    if (admitted && hasBlock) return { status: 'blocked', plan: '', at: now, verdicts: [] }

    const status = !admitted ? 'refused' : isUnknown ? 'unknown-credential' : 'admitted'
    return {
      ...{ status, plan: known, at: now, verdicts: withAgreement(verdicts) },
      ...(consumer && { consumer }),
      ...(status === 'admitted' && times > 1 && { granted: times }),
    }
  }

  refund({ rules, spentAt, consumerKey, now }: At<Omit<Refund, 'policy'>>): ChangeResult {
    const record = consumerKey === undefined ? undefined : this.#records.get(consumerKey)
    const { overrides } = parseConsumer(record ?? '')
    const refunded = rules.map(each => ({ ...each, ...numbersFor(each, overrides, now), shown: each.rule }))
    return { at: now, verdicts: refundInMemory(modelOf, this.#states, refunded, spentAt, now) }
  }

  reset({ rules, now }: At<Reset>): ChangeResult {
    for (const { key, rule } of rules) {
      const states = this.#states.get(key)
      for (const [tag, state] of states ?? []) if (isIdle(state, now) || tag === rule.tag) states!.delete(tag)
    }
    const verdicts = rules.map(({ rule, mode }) => ({
      ...{ rule, mode, allowed: true, remaining: rule.quota.burst },
      ...{ resetAfter: 0, retryAfter: 0, delay: 0 },
    }))
    return { at: now, verdicts }
  }

  /** What sync.ts does. */
  sync(messages: readonly Message[], now: number): Received[] {
    return messages.map(({ key: place, holding, ttl: period, want }) => {
      const [, key = '', tag = ''] = /^(.*):held:(\w+)$/.exec(place) ?? []
      const states = this.#states.get(key) ?? new Map<string, State>()
      const quota = { rate: 1, period, burst: 1 }
      const reading = { quota, holding, state: states.get(tag) ?? IDLE, now }
      const { state, ...received } = afterMessage(reading, want)
      states.set(tag, state)
      this.#states.set(key, states)
      return received
    })
  }

  #identify(subject: Subject | undefined, now: number): Caller | undefined {
    if (!subject) return undefined
    if (subject.kind === 'failed') return UNKNOWN
    const consumer = subject.kind === 'pointer' ? this.#records.get(subject.pointerKey) : undefined
    if (subject.kind === 'pointer' && consumer === undefined) return UNKNOWN
    const named = (key: string) =>
      consumer === undefined ? key : key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`)
    const record = parseConsumer(this.#records.get(named(subject.consumerKey)) ?? '')
    const { plan, overrides } = record
    const hasBlock = isBlocked(record, now)
    const learnt = consumer === undefined ? {} : { consumer }
    if (subject.kind === 'token') return { plan: subject.plan || (plan ?? ''), hasBlock, overrides }
    const credential = parseCredential(this.#records.get(named(subject.credentialKey)) ?? '')
    if (!credential) return { ...UNKNOWN, ...learnt }
    return { plan: credential.plan ?? plan ?? '', hasBlock, overrides, ...learnt }
  }
}

/**
 * For how many requests to spend: for each rule at most its share of what is left, and always for the request itself.
 * @param before how the rules stand before, in their order
 */
function grantOf(want: number, counted: readonly RuleToCount[], before: readonly Verdict[]): number {
  // What a shadow would refuse is not spent, and guesses are not requests: they do not bound it.
  const most = before.map(({ allowed, remaining }, i) => {
    const { bound, isOnlyChecked } = counted[i]!
    const isSpent = allowed && bound.role === 'spend' && !isOnlyChecked
    return isSpent ? remaining / (LEASE_DIVISOR * bound.cost) : want
  })
  return Math.max(1, Math.floor(Math.min(want, ...most)))
}

interface Caller {
  isUnknown?: boolean
  plan: string
  /** Blocked, and the block has not ended. */
  hasBlock: boolean
  overrides: readonly Override[]
  /** Learnt from the store. */
  consumer?: string
}

const UNKNOWN: Caller = { isUnknown: true, plan: '', hasBlock: false, overrides: [] }

/** The first override of the family counts; one whose time has passed changes nothing. */
function overrideFor(rule: Rule, overrides: readonly Override[], now: number): Override | undefined {
  const override = rule.takesOverrides ? overrides.find(({ family }) => family === rule.family) : undefined
  return override?.until !== undefined && override.until <= now ? undefined : override
}

/** The rule as this consumer has it: to count by, and to show; none where it is off. */
function overridden(bound: BoundRule, overrides: readonly Override[], now: number): RuleToCount[] {
  const { rule } = bound
  const override = overrideFor(rule, overrides, now)
  if (!override) return [{ bound, shown: rule }]
  const mode = bound.staysShadow ? bound.mode : (override.mode ?? bound.mode)
  if (mode === 'off') return []
  const { numbers } = override
  if (!numbers) return [{ bound: { ...bound, mode }, shown: rule }]
  const { limit, burst } = numbers
  const shown = { ...rule, limit, quota: { ...rule.quota, burst } }
  return [{ bound: { ...bound, mode, rule: withNumbers(rule, numbers) }, shown }]
}

function numbersFor({ rule }: { rule: Rule }, overrides: readonly Override[], now: number): { rule: Rule } {
  const numbers = overrideFor(rule, overrides, now)?.numbers
  return { rule: numbers ? withNumbers(rule, numbers) : rule }
}

function withNumbers(rule: Rule, { tag, limit, burst, rate, period, own }: OverrideNumbers): Rule {
  const [, , name] = LUA[rule.algorithm]!.numbers
  const step = name === 'step' && own !== undefined ? { step: own } : {}
  return { ...rule, tag, limit, quota: { ...rule.quota, rate, period, burst, ...step } }
}
