/**
 * A model of the scripts: the same results over plain memory, with the TypeScript models of the algorithms. It is the specification in
 * the parity tests, which compare it with the scripts of rule-set-text.ts. It also replays traffic without a store.
 */

import {
  change,
  IDLE,
  type Model,
  type ModelInput,
  modelOf as modelOfSections,
  type RefundedUnits,
  type State,
} from '../algorithms/algorithm.ts'
import { applyMessage } from '../algorithms/concurrency.ts'
import { algorithms } from '../algorithms/index.ts'
import { luaOf } from '../algorithms/lua-of.ts'
import { MAX_DEBT, settledModelOf } from '../algorithms/settled.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import { appliesToPlan, knownPlan, type Rule } from '../config/compile-rule.ts'
import { overridesKey, withConsumer } from '../store/keys.ts'
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
import { changeInMemory, decideInMemory, isIdle, type RuleToCount, refundInMemory } from './memory.ts'
import { type Ended, ModelReservations } from './model-reservations.ts'
import type { Pause, PauseResult } from './pause.ts'
import type { ChangeResult, Refund, RefundedRule, RefundOnce } from './refund.ts'
import type { Reset } from './reset.ts'
import type { RuleSetShape } from './rule-set-shape.ts'
import { type Settlement, type SettleResult, UNKNOWN_NUMBERS } from './settle.ts'
import type { Message } from './sync.ts'

type WithNow<T> = T & { now: number }

/** The model needs no scripts: of a rule set it uses only the plans, and whether there are leases. */
export type ModelEvaluation = WithNow<
  Omit<Evaluation, 'ruleSet'> & {
    ruleSet: Pick<RuleSetShape, 'plans' | 'leases'> & Partial<Pick<RuleSetShape, 'entries'>>
  }
>

/** The tag of a pause, which no rule can have. */
const PAUSE = '~p~'

/** @param ended what reservations that have ended give back under the rule */
function modelOf(
  { rule: { algorithm, settlement } }: { rule: Rule },
  ended: readonly RefundedUnits[] = [],
): Model {
  if (!settlement) return algorithms[algorithm]
  const settled = settledModelOf(algorithms[algorithm], algorithm)
  const model = ended.length > 0 ? givingBack(settled, ended) : settled
  const clamped = (cost: number, most: number) =>
    settlement.aboveLimit === 'clamp' ? Math.min(cost, most) : cost
  return {
    ...model,
    decide: ({ cost, ...input }) => model.decide({ ...input, cost: clamped(cost, input.quota.burst) }),
  }
}

/**
 * The same model, but units are given back whenever it reads a state, even if it then spends nothing. As in the script, the state is not
 * written and read again in between.
 */
function givingBack({ sections }: Model, ended: readonly RefundedUnits[]): Model {
  const model = modelOfSections({
    ...sections,
    read(input) {
      const kept = sections.read(input)
      for (const units of ended) sections.refund(kept, units)
      return kept
    },
  })
  const givenBack = (input: ModelInput) => ({ after: change(model, input, []) })
  return {
    ...model,
    peek: input => ({ ...model.peek(input), ...givenBack(input) }),
    decide: input => ({ ...givenBack(input), ...model.decide(input) }),
  }
}

/** The model of the scripts over one database. All times are µs. */
export class ScriptModel {
  /** The states of rules, by state key and tag. */
  readonly #states = new Map<string, Map<string, State>>()
  readonly #reservations = new ModelReservations()
  readonly #jobs = new Set<string>()
  /** Records of credentials and consumers, and pointers, by key. */
  readonly #records = new Map<string, string>()

  /** The units that were given back of single requests, by the key of the hash, by id and by the family of the rule. */
  readonly #refunds = new Map<string, Map<string, Map<string, number>>>()

  #givenBack({ key, id }: RefundOnce): Map<string, number> {
    const byId = this.#refunds.get(key) ?? new Map<string, Map<string, number>>()
    const given = byId.get(id) ?? new Map<string, number>()
    this.#refunds.set(key, byId.set(id, given))
    return given
  }

  /** Stores a record (store/records.ts) or a pointer. */
  setRecord(key: string, text: string): void {
    this.#records.set(key, text)
  }

  /** Models the script of decide.ts. */
  decide(
    { ruleSet, rules, subject, plan: given = '', wantedRequests, reservationId = '', now }: ModelEvaluation,
    verb: DecideVerb = 'decide',
  ): Outcome {
    const caller = this.#identify(subject, now)
    const { isUnknown = false, isBlocked = false, blockedUntil, consumer } = caller ?? {}
    const overrides = caller?.overrides ?? this.#overridesOf(rules)
    const mode = caller?.otherMode
    const isDecidedByRules = !isUnknown && !isBlocked && !mode
    const plan = !caller ? given : isUnknown ? '' : knownPlan(ruleSet.plans, caller.plan)

    const applying = rules
      .filter(({ rule }) =>
        rule.on === 'auth-failure' ? true : isDecidedByRules && appliesToPlan(rule, plan),
      )
      .flatMap(bound => applyOverride(bound, overrides, now))
    const keyed = applying.map(({ bound, shown }) => {
      const key = withConsumer(bound.key, consumer)
      const isOnlyChecked = !isUnknown && bound.rule.on === 'auth-failure'
      return { bound: { ...bound, key }, shown, isOnlyChecked }
    })
    const ended = this.#reservations.findEnded(
      keyed,
      rules.map(({ key, rule }) => ({ key: withConsumer(key, consumer), rule })),
      now,
      ruleSet.entries,
    )
    // Bad credentials are counted one by one, without a lease.
    const wanted = isUnknown ? 1 : wantedRequestsOf({ ruleSet, wantedRequests }, verb)
    // Limits by name have no caller, and only they can be paused: also an identity whose rules are all turned off by overrides.
    const isOfGateway = subject !== undefined || rules.some(({ rule }) => rule.on === 'auth-failure')
    const pauses = isOfGateway ? [] : rules.map(({ key }) => this.#pauseOf(key))
    const pausedUntil = Math.max(0, ...pauses)
    const isPaused = pausedUntil > now
    const decide = (counted: readonly RuleToCount[], isPeek: boolean) =>
      decideInMemory(bound => modelOf(bound, ended.unitsOf(bound)), this.#states, counted, now, isPeek)
    const times = wanted > 1 && !isPaused ? computeGrant(wanted, keyed, decide(keyed, true).verdicts) : 1
    const decided = decide(
      keyed.map(each => ({ ...each, times })),
      verb === 'peek' || isPaused,
    )
    const { verdicts } = decided
    const admitted = decided.admitted && !isPaused
    if (admitted && isBlocked)
      return { status: 'blocked', plan: '', at: now, verdicts: [], ...(blockedUntil && { blockedUntil }) }
    if (admitted && mode)
      return { status: 'other-mode', mode, plan: '', at: now, verdicts: [], ...(consumer && { consumer }) }
    const reserved =
      admitted && verb !== 'peek'
        ? this.#reservations.reserve(reservationId, keyed, verdicts, {
            now,
            entries: ruleSet.entries,
          })
        : []
    if (verb !== 'peek') {
      if (!admitted) this.#giveBack(keyed, ended, now)
      this.#reservations.dropGivenBack(ended, now)
    }
    const reported = verdicts.map((verdict, i) => {
      const { bound } = keyed[i]!
      const retryAfter = verdict.retryAfter > 0 && ended.hasMore(bound) ? 1 : verdict.retryAfter
      return bound.rule.settlement ? { ...verdict, retryAfter, reserved: reserved[i] ?? 0 } : verdict
    })

    const status = !admitted ? 'refused' : isUnknown ? 'unknown-credential' : 'admitted'
    return {
      ...{ status, plan: caller ? plan : '', at: now, verdicts: withAgreement(reported) },
      ...(consumer && { consumer }),
      ...(status === 'admitted' && times > 1 && { granted: times }),
      ...(isPaused && { pausedUntil }),
    }
  }

  /** Gives back what has ended, although the request spends nothing. */
  #giveBack(keyed: readonly Pick<RuleToCount, 'bound' | 'shown'>[], ended: Ended, now: number): void {
    const rules = keyed.map(each => ({ ...each, changes: ended.unitsOf(each.bound) }))
    changeInMemory(
      bound => modelOf(bound),
      this.#states,
      rules.filter(({ changes }) => changes.length > 0),
      now,
    )
  }

  /** Models the script of refund.ts. */
  refund({ rules, spentAt, once, consumerKey, now }: WithNow<Omit<Refund, 'ruleSet'>>): ChangeResult {
    const overrides = this.#overridesOf(rules, consumerKey)
    const given = once && this.#givenBack(once)
    const refunded = rules.map(each => ({
      ...each,
      ...(given && onlyNew(each, given)),
      ...(hasOtherRecord(each, overrides, now) && { units: 0 }),
      ...applyOverriddenNumbers(each, overrides, now),
      shown: each.rule,
    }))
    return { at: now, verdicts: refundInMemory(modelOf, this.#states, refunded, spentAt, now) }
  }

  /** Models the script of jobs.ts. */
  keepJob = (key: string) => this.#jobs.add(key)

  /**
   * Models the script of settle.ts, and what a decision settles.
   * @param writes false: of a decision that spends nothing, so it only writes what it has settled
   */
  settle({
    rules,
    consumerKey,
    now,
    requests,
    ruleSet,
    writes = true,
  }: WithNow<
    Omit<Settlement, 'ruleSet'> & { ruleSet?: Pick<RuleSetShape, 'entries'>; writes?: boolean }
  >): SettleResult {
    const overrides = this.#overridesOf(rules, consumerKey)
    const keys = [...new Set(rules.map(({ key }) => key))]
    const changes = rules.map((): (RefundedUnits | { cost: number })[] => [])
    const counted = rules.map(each => ({ ...each, ...applyOverriddenNumbers(each, overrides, now) }))
    const entries = ruleSet?.entries
    let applied = 0
    const terms = { rules, now, entries }
    // All requests of the call are looked for at once.
    const longest = Math.max(0, ...requests.map(({ lostForMs = 0 }) => lostForMs))
    for (const { id, lostForMs, amounts, isRenewal = false, jobKey, ...request } of requests) {
      if (jobKey !== undefined && !this.#jobs.delete(jobKey)) continue
      for (const key of keys) {
        const known = rules
          .map((each, i) => ({
            ...{ rule: each.rule, i, isOther: false, ...amounts[i]! },
            record: recordThen(each, overrides, now),
          }))
          .filter(({ i }) => rules[i]!.key === key)
        const asked = { spentAt: request.spentAt, own: known }
        const found =
          lostForMs === undefined
            ? asked
            : this.#reservations.findLost(key, { id, lostForMs: longest, own: known }, terms)
        if (!found) continue
        if (jobKey === undefined && !this.#reservations.settle(key, { id, ...found, isRenewal }, terms))
          continue
        const { spentAt, own } = found
        applied += 1
        if (isRenewal) continue
        for (const { i, reserved, actual, isOther } of own) {
          if (reserved === 0 || actual === reserved) continue
          if (actual < reserved && (isOther || hasOtherRecord(rules[i]!, overrides, now))) continue
          const most = MAX_DEBT * counted[i]!.rule.quota.burst
          const changed =
            actual > reserved
              ? { cost: Math.min(actual - reserved, most) }
              : { units: reserved - actual, spent: reserved, spentAt }
          changes[i]!.push(changed)
        }
      }
    }
    if (writes || applied > 0) for (const key of keys) this.#reservations.dropEnded(key, rules, now, entries)
    const toChange = counted.map((bound, i) => ({ bound, shown: rules[i]!.rule, changes: changes[i]! }))
    return { at: now, applied, verdicts: changeInMemory(modelOf, this.#states, toChange, now) }
  }

  /** Models reset.lua. */
  reset({ rules, now }: WithNow<Reset>): ChangeResult {
    const overrides = this.#overridesOf(rules)
    for (const { key, rule } of rules) {
      if (rule.settlement) this.#reservations.drop(key)
      const states = this.#states.get(key)
      const tags = [rule.tag, rule.isOverridable && overrides.find(isOf(rule))?.numbers?.tag]
      for (const [tag, state] of states ?? [])
        if (isIdle(state, now) || tags.includes(tag)) states!.delete(tag)
    }
    const verdicts = rules.map(({ rule, mode }) => ({
      ...{ rule, mode, allowed: true, remaining: rule.quota.burst },
      ...{ resetAfter: 0, retryAfter: 0, delay: 0 },
    }))
    return { at: now, verdicts }
  }

  /** When the pause of an identity ends (µs). */
  #pauseOf(key: string): number {
    return this.#states.get(key)?.get(PAUSE)?.[0] ?? 0
  }

  /** Models pause.lua. */
  pause({ key, length, now }: WithNow<Pick<Pause, 'key' | 'length'>>): PauseResult {
    const states = this.#states.get(key) ?? new Map<string, State>()
    const last = this.#pauseOf(key)
    const before = last > now ? last : 0
    const ends = length === 0 ? 0 : Math.max(before, 1000 * Math.ceil((now + length) / 1000))
    if (ends !== before) {
      this.#states.set(key, states)
      for (const [tag, state] of states) if (isIdle(state, now) || tag === PAUSE) states.delete(tag)
      if (ends > 0) states.set(PAUSE, [ends, 0])
    }
    return { at: now, ...(ends > 0 && { pausedUntil: ends }) }
  }

  /** Models the script of sync.ts. @returns the units of the last message's holder */
  sync(messages: readonly Message[], now: number): number {
    let units = 0
    for (const { key: sideKey, holding, ttl: period } of messages) {
      const [, key = '', tag = ''] = /^(.*):held:(\w+)$/.exec(sideKey) ?? []
      const states = this.#states.get(key) ?? new Map<string, State>()
      const quota = { rate: 1, period, burst: 1 }
      const reading = { quota, holding, state: states.get(tag) ?? IDLE, now }
      const state = applyMessage(reading)
      const { started, ended } = state[3]!.find(({ holder }) => holder === holding.holder)!
      units = started - ended
      states.set(tag, state)
      this.#states.set(key, states)
    }
    return units
  }

  /** The overrides that apply to rules of a limit by name, or of the consumer that rules of the gateway are counted for. */
  #overridesOf(rules: readonly { rule: Rule; key: string }[], consumerKey?: string): readonly Override[] {
    const ofLimit = rules.filter(({ rule }) => rule.isOverridable).map(({ key }) => overridesKey(key))
    const records = consumerKey === undefined ? [...new Set(ofLimit)] : [consumerKey]
    return records.flatMap(key => parseConsumer(this.#records.get(key) ?? '').overrides)
  }

  #identify(subject: Subject | undefined, now: number): Caller | undefined {
    if (!subject) return undefined
    if (subject.kind === 'failed') return UNKNOWN_CALLER
    const consumer = subject.kind === 'pointer' ? this.#records.get(subject.pointerKey) : undefined
    if (subject.kind === 'pointer' && consumer === undefined) return UNKNOWN_CALLER
    const named = (key: string) => withConsumer(key, consumer)
    const record = parseConsumer(this.#records.get(named(subject.consumerKey)) ?? '')
    const { plan, overrides, blockedUntil } = record
    const ofConsumer = { isBlocked: isBlocked(record, now), blockedUntil, overrides }
    const resolved = consumer === undefined ? {} : { consumer }
    if (subject.kind === 'token') return { plan: subject.plan || (plan ?? ''), ...ofConsumer }
    const credential = parseCredential(this.#records.get(named(subject.credentialKey)) ?? '')
    if (!credential) return { ...UNKNOWN_CALLER, ...resolved }
    const mode: CallerMode = credential.mode ?? 'live'
    const isOther = subject.mode !== undefined && subject.mode !== mode
    const own = { plan: credential.plan ?? plan ?? '', ...(isOther && { otherMode: mode }) }
    return { ...own, ...ofConsumer, ...resolved }
  }
}

/** The units of a refund with an id that were not given back before. */
function onlyNew({ rule, units, spent }: RefundedRule, given: Map<string, number>) {
  const before = given.get(rule.family) ?? 0
  const total = Math.max(before, units)
  given.set(rule.family, total)
  return { units: total - before, spent: spent - before }
}

/**
 * For how many requests to spend: at least for the request itself, and at most 1/16 of what each rule has left.
 * @param before the verdicts of a peek, in the order of the rules
 */
function computeGrant(want: number, counted: readonly RuleToCount[], before: readonly Verdict[]): number {
  // Rules that do not spend do not limit the lease: shadows that would refuse, rules on bad credentials, and rules that only report.
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
  /** Whether the consumer is blocked, and the block has not ended. */
  isBlocked: boolean
  /** µs */
  blockedUntil?: number | undefined
  overrides: readonly Override[]
  /** The consumer that a pointer names. */
  consumer?: string
  /** The mode of the credential, if its subject has another one. */
  otherMode?: CallerMode
}

const UNKNOWN_CALLER: Caller = { isUnknown: true, plan: '', isBlocked: false, overrides: [] }

const isOf =
  (rule: Rule) =>
  ({ family }: Override) =>
    family === rule.family

/** The first override of the family. If it has expired, none applies. */
function overrideFor(rule: Rule, overrides: readonly Override[], now: number): Override | undefined {
  const override = rule.takesOverrides ? overrides.find(isOf(rule)) : undefined
  return override?.until !== undefined && override.until <= now ? undefined : override
}

/** Applies the overrides of the consumer to a rule. @returns no rule if an override turns it off */
function applyOverride(bound: BoundRule, overrides: readonly Override[], now: number): RuleToCount[] {
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

/** Whether the rule has another record than the one that was spent from, because its override is another one. */
function hasOtherRecord(
  { rule, written }: Pick<RefundedRule, 'rule' | 'written'>,
  overrides: readonly Override[],
  now: number,
): boolean {
  if (rule.counting.state !== 'time' || written === UNKNOWN_NUMBERS) return false
  const numbers = overrideFor(rule, overrides, now)?.numbers
  return written !== (numbers && `${numbers.limit},${numbers.burst}`)
}

/**
 * The record in which a request was counted, as members of reservations name it. If its reply was lost, that of now.
 */
function recordThen(
  { rule, written }: Pick<RefundedRule, 'rule' | 'written'>,
  overrides: readonly Override[],
  now: number,
): string {
  if (written !== UNKNOWN_NUMBERS) return written ?? rule.tag
  const numbers = overrideFor(rule, overrides, now)?.numbers
  return numbers ? `${numbers.limit},${numbers.burst}` : rule.tag
}

function applyOverriddenNumbers(
  { rule }: { rule: Rule },
  overrides: readonly Override[],
  now: number,
): { rule: Rule } {
  const numbers = overrideFor(rule, overrides, now)?.numbers
  return { rule: numbers ? withNumbers(rule, numbers) : rule }
}

function withNumbers(rule: Rule, { tag, limit, burst, rate, period, burstOrStep }: OverrideNumbers): Rule {
  const [, , name] = luaOf(rule.algorithm)!.numbers
  const step = name === 'step' && burstOrStep !== undefined ? { step: burstOrStep } : {}
  return { ...rule, tag, limit, quota: { ...rule.quota, rate, period, burst, ...step } }
}
