/**
 * Shows what is left of limits, and resets them: limits by name, and the gateway's rules. `peek`
 * spends nothing, and reports when a request would be admitted.
 */

import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Config, GatewayRule, LimitRule, Rule } from '../config/compile.ts'
import { isVariantFor, knownPlan, withoutPlans } from '../config/compile-rule.ts'
import { isOfConsumer } from '../config/identity-parts.ts'
import { GatewayError } from '../errors.ts'
import { bindRule } from '../limiter/bind.ts'
import {
  type PreparedCall,
  prepareDecide,
  preparePause,
  prepareReset,
  runCall,
} from '../limiter/prepared-call.ts'
import type { BoundRule, Evaluation, Verdict } from '../script/evaluation.ts'
import { checkIdentity } from '../set-ups/limits/arguments.ts'
import type { LimitIdentity } from '../set-ups/limits/limiter.ts'
import { pausedKey, pauseTarget } from '../set-ups/limits/pausing.ts'
import { consumerKey, limitRuleKey } from '../store/keys.ts'
import { type ConsumerRecord, isBlocked, parseConsumer } from '../store/records.ts'
import type { ScriptCall } from '../store/store.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { entryFor } from './audited.ts'
import { auditedCall } from './audited-call.ts'
import { type CallerIdentity, countersOf, namesOf, rulesBy, rulesByMore } from './caller-identity.ts'
import type { Facts } from './change.ts'
import { namesNear } from './key-pages.ts'
import { type KeyInfo, listKeys, planOfAll } from './keys.ts'
import { type Reserved, readReservations } from './reservations.ts'

/** What a rule has left for an identity, and its verdict about a request with the rule's cost. */
export type RuleStanding = Pick<Verdict, 'mode' | 'allowed' | 'remaining' | 'resetAfter' | 'retryAfter'> & {
  /** With the numbers of the consumer's plan and overrides. */
  rule: Rule
  cost: number
  /** Of a rule with a settlement. */
  usage?: Usage
  /** Of a limit by name that is paused, whatever the rule says. */
  pausedUntil?: Date
}

/** In the unit of the rule. */
export interface Usage {
  /** At most what can be spent at once. Includes what is reserved. */
  used: number
  /** What requests that are not settled yet have reserved, also in earlier windows. */
  reserved: Reserved
  /** What was spent above that. */
  debt: number
}

/** Gives rules the numbers of a call. @throws TypeError */
type Give = (rules: readonly LimitRule[]) => readonly LimitRule[]

/** Without numbers, nothing is known of rules with `numbers: 'call'`. */
const leaveOut: Give = rules => rules.filter(({ atCall }) => !atCall)

export const peekLimit = async (
  store: AdminStore,
  config: Pick<Config, 'limits'>,
  name: string,
  identity: LimitIdentity,
  give?: Give,
): Promise<RuleStanding[]> => await peek(store, evaluateLimit(store, config, name, identity, give))

/** The evaluation of a call of a limit by name. @param give by default, rules with `numbers: 'call'` are left out */
export function evaluateLimit(
  store: Pick<AdminStore, 'ruleSets'>,
  config: Pick<Config, 'limits'>,
  name: string,
  identity: LimitIdentity,
  give = leaveOut,
): Evaluation {
  const rules = limitOf(config, name)
  withUsageErrors(() => checkIdentity(name, identity, rules))
  const known = withUsageErrors(() => give(rules))
  const bound = known.filter(isOn).map(rule => boundTo(rule, limitRuleKey(name, rule, identity)))
  return { ruleSet: store.ruleSets.ofLimit(rules), rules: bound }
}

export async function resetLimit(
  store: AdminStore,
  config: Pick<Config, 'limits'>,
  name: string,
  identity: LimitIdentity,
  rule?: string,
  give = leaveOut,
): Promise<void> {
  const rules = limitOf(config, name)
  withUsageErrors(() => checkIdentity(name, identity, rules))
  const names = rules.map(rule => rule.name)
  if (rule !== undefined && !names.includes(rule)) {
    throw new AdminError(
      'not-found',
      `The limit '${name}' has no rule '${rule}'.${didYouMean(rule, names)} Rules: ${names.join(', ')}.`,
    )
  }
  const named = rules.filter(each => rule === undefined || each.name === rule)
  const chosen = withUsageErrors(() => give(named))
  const bound = chosen.map(each => boundTo(each, limitRuleKey(name, each, identity)))
  await reset(store, bound, targetOf(name, identity), { rules: chosen.map(each => each.name) })
}

/** Pauses an identity of a limit by name. @param wantedMs 0: ends its pause @returns when the pause ends */
export async function pauseLimit(
  store: AdminStore,
  config: Pick<Config, 'limits' | 'longestPauseMs'>,
  name: string,
  identity: LimitIdentity,
  wantedMs: number,
): Promise<Date | undefined> {
  const forMs = Math.min(wantedMs, config.longestPauseMs)
  const key = withUsageErrors(() => pausedKey(name, identity, limitOf(config, name)))
  const entry = await entryFor(store, key, {
    ...{ action: forMs > 0 ? 'limits.pause' : 'limits.resume', target: targetOf(name, identity) },
    ...(forMs > 0 && { after: { forMs } }),
  })
  const { pausedUntil } = await answerOf(store, preparePause({ key, length: forMs * 1e3, entry }))
  return pausedUntil === undefined ? undefined : new Date(Math.ceil(pausedUntil / 1e3))
}

/** Resets rules, with the entry of the audit trail in the same script. All keys are in one slot of a cluster. */
async function reset(
  store: AdminStore,
  rules: readonly BoundRule[],
  target: string,
  before: Facts,
): Promise<void> {
  const { call, decode } = prepareReset({ rules })
  const entry = { action: 'limits.reset', target, before } as const
  await answerOf(store, { call: await auditedCall(store, call as ScriptCall, entry), decode })
}

/** Of an entry of the audit trail: `zendesk/account=42`, `acme`, `192.0.2.7`. @param limit absent: a caller of the gateway */
export function targetOf(limit: string | undefined, identity: LimitIdentity): string {
  if (limit !== undefined) return pauseTarget(limit, identity)
  const { consumer, mode: _, ...parts } = identity
  const text = Object.entries(parts).map(([part, value]) => (part === 'address' ? value : `${part}=${value}`))
  return [consumer, text.join(',')].filter(Boolean).join('/')
}

export interface CallerStandings {
  /** The plan of the caller. Absent: an address without a credential. */
  plan?: string
  blockedAt?: Date
  /** One for each rule that applies. */
  standings: RuleStanding[]
  /** Rules that an override turns off. */
  off: Rule[]
  /** Other plans of the consumer's keys, which have other numbers. Empty if a plan was given. */
  plansOfKeys: string[]
  /**
   * The names of all consumers in the store, if the store has no record of this consumer: its name may be misspelled. A consumer of
   * tokens has no record before it is blocked or gets an override.
   */
  otherConsumers?: readonly string[]
}

/** The evaluation of a request of a caller, without a credential. */
export interface CallerEvaluation {
  evaluation: Evaluation
  /** Absent: an address without a credential. */
  consumer?: { name: string; record: ConsumerRecord; plan: string; keys: readonly KeyInfo[] }
}

/** @param plan as for peekCaller */
export async function evaluateCaller(
  store: AdminStore,
  config: Config,
  identity: CallerIdentity,
  plan?: string,
): Promise<CallerEvaluation> {
  const { consumer: name, mode, rules: counted, keyOf } = await countersOf(store, config, identity)
  const ruleSet = store.ruleSets.ofGateway(config)
  const rulesFor = (plan: string | undefined) =>
    rulesForPlan(counted, plan).map(rule => boundTo(withoutPlans(rule), keyOf(rule)))
  if (name === undefined) return { evaluation: { ruleSet, rules: rulesFor(plan), ...(plan && { plan }) } }
  const record = await readRecord(store, name)
  const keys = plan === undefined ? (await listKeys(store, name)).filter(key => key.mode === mode) : []
  const chosen = plan ?? planOf(config, keys, record)
  const subject = { kind: 'token', consumerKey: consumerKey(name), plan: chosen } as const
  return {
    evaluation: { ruleSet, rules: rulesFor(chosen), subject },
    consumer: { name, record, plan: chosen, keys },
  }
}

/** @param plan absent: the plan that all keys of the consumer with this mode have, else that of the consumer; no plan for an address */
export async function peekCaller(
  store: AdminStore,
  config: Config,
  identity: CallerIdentity,
  plan?: string,
): Promise<CallerStandings> {
  const { evaluation, consumer } = await evaluateCaller(store, config, identity, plan)
  if (!consumer) {
    const standings = await peek(store, evaluation)
    return { ...(plan && { plan }), standings, off: [], plansOfKeys: [] }
  }
  const { name, record, plan: chosen, keys } = consumer
  const { blockedAt } = record
  if (blockedAt && isBlocked(record, Date.now() * 1000))
    return { plan: chosen, blockedAt, standings: [], off: [], plansOfKeys: [] }
  const standings = await peek(store, evaluation)
  const evaluated = new Set(standings.map(({ rule }) => rule.name))
  const off = evaluation.rules.map(({ rule }) => rule).filter(({ name }) => !evaluated.has(name))
  const consumers = name.includes('~') ? [name] : await namesNear(store, name)
  return {
    ...{ plan: chosen, standings, off, plansOfKeys: plansOf(keys, config).filter(other => other !== chosen) },
    ...(!consumers.includes(name) && { otherConsumers: consumers }),
  }
}

/** As for a request: the plan of its key, else of the consumer, else the default. */
export const planOf = (
  { plans }: Pick<Config, 'plans'>,
  keys: readonly Pick<KeyInfo, 'plan'>[],
  { plan }: Pick<ConsumerRecord, 'plan'>,
): string => knownPlan(plans, planOfAll(keys) ?? plan)

/** The plans of keys. A plan that the config no longer has counts as the default plan. */
function plansOf(keys: readonly KeyInfo[], { plans }: Pick<Config, 'plans'>): string[] {
  const named = keys.flatMap(({ plan }) => plan ?? [])
  return [...new Set(named.map(plan => knownPlan(plans, plan)))]
}

/** Names of rules. */
export interface CallerReset {
  rules: readonly string[]
  /** These count by more than the parts that were given. */
  notReset: readonly string[]
}

/** What `resetCaller` will reset. @throws AdminError `refused` if no rule counts by these parts alone */
export async function planReset(
  store: AdminStore,
  config: Config,
  identity: CallerIdentity,
): Promise<CallerReset> {
  const parts = Object.keys(identity)
  const rules = rulesShown(config, parts, identity.mode)
  const notReset = [...rulesByMore(config, parts).keys()]
  if (rules.length > 0) return { rules, notReset }
  await countersOf(store, config, identity)
  throw new AdminError(
    'refused',
    `No rule counts by ${namesOf(parts)} alone.${notResetText(identity, notReset)}`,
  )
}

/** A sentence about the rules that are not reset. Empty without such rules. */
export const notResetText = (identity: CallerIdentity, names: readonly string[]): string =>
  names.length > 0
    ? ` Not reset, because they count by more than the ${namesOf(Object.keys(identity))}: ${names.join(', ')}.`
    : ''

/** Resets the rules for every plan, with the numbers of the config and with those of overrides. */
export async function resetCaller(
  store: AdminStore,
  config: Config,
  identity: CallerIdentity,
): Promise<void> {
  const { consumer, rules: counted, keyOf } = await countersOf(store, config, identity)
  const rules = counted.map(rule => boundTo(rule, keyOf(rule)))
  const { overrides } = consumer === undefined ? { overrides: [] } : await readRecord(store, consumer)
  const overridden = overrides.flatMap(({ family, numbers }) => {
    const bound = rules.find(({ rule }) => rule.family === family)
    return bound && numbers ? [{ ...bound, rule: { ...bound.rule, tag: numbers.tag } }] : []
  })
  const all = [...new Map([...rules, ...overridden].map(bound => [bound.rule.tag, bound])).values()]
  const names = [...new Set(all.map(({ rule }) => rule.name))]
  if (all.length > 0) await reset(store, all, targetOf(undefined, { ...identity }), { rules: names })
}

/** Names of the rules that `peekCaller` shows and `resetCaller` resets. */
export function rulesShown(
  config: Pick<Config, 'rules'>,
  parts: readonly string[],
  mode: string = 'live',
): string[] {
  return [...new Set(rulesBy(config, parts, mode).map(({ name }) => name))]
}

/**
 * Names of enforced rules that can refuse a consumer and count by something else, grouped by what they count by: `address`,
 * `address and route`, or `global` for rules that count all requests together.
 */
export function rulesByOtherIdentities({ rules }: Pick<Config, 'rules'>): Map<string, string[]> {
  const others = rules.filter(({ by, mode }) => mode === 'enforce' && !isOfConsumer(by))
  const byWhat = Map.groupBy(others, ({ by }) => by.join(' and ') || 'global')
  return new Map([...byWhat].map(([by, rules]) => [by, [...new Set(rules.map(({ name }) => name))]]))
}

/** Whether the config has the rule turned on. Live switches are not read. */
const isOn = ({ mode }: Rule) => mode !== 'off'

/** The variant of each rule for this plan, or for callers without a plan. */
function rulesForPlan(rules: readonly GatewayRule[], plan: string | undefined): GatewayRule[] {
  return rules.filter(rule => isVariantFor(rule, plan))
}

async function readRecord(store: AdminStore, consumer: string): Promise<ConsumerRecord> {
  const text = await store.run<string | null>('GET', store.at(consumerKey(consumer)))
  return parseConsumer(text ?? '')
}

const boundTo = (rule: Rule, key: string) => bindRule(rule, key, rule.cost, Date.now())

/** Reads what rules have left. Live switches are not read. */
export const peek = async (store: AdminStore, evaluation: Evaluation): Promise<RuleStanding[]> =>
  (await peekWithTime(store, evaluation)).standings

/** @returns `at`: by the clock of the store (µs) */
export async function peekWithTime(
  store: AdminStore,
  evaluation: Evaluation,
): Promise<{ at: number; standings: RuleStanding[] }> {
  if (evaluation.rules.length === 0) return { at: 0, standings: [] }
  const { at, verdicts, pausedUntil } = await answerOf(store, prepareDecide(evaluation, 'peek'))
  const keys = verdicts.flatMap(({ rule, debt }) => (debt === undefined ? [] : boundOf(evaluation, rule).key))
  const reservations = await readReservations(store, [...new Set(keys)], at)
  const standings = verdicts.map(
    ({ rule, mode, allowed, remaining, resetAfter, retryAfter, debt }): RuleStanding => ({
      ...{ rule, cost: rule.cost, mode, allowed, remaining, resetAfter, retryAfter },
      ...(pausedUntil !== undefined && { pausedUntil: new Date(Math.ceil(pausedUntil / 1e3)) }),
      ...(debt !== undefined && {
        usage: {
          used: rule.quota.burst - remaining,
          reserved: reservations.get(boundOf(evaluation, rule).key)!(rule.family),
          debt,
        },
      }),
    }),
  )
  return { at, standings }
}

/** The rule of an evaluation that a verdict is about. The rule of the verdict can have the numbers of an override. */
export const boundOf = ({ rules }: Evaluation, { tag, name }: Rule): BoundRule =>
  rules.find(({ rule }) => rule.tag === tag && rule.name === name)!

/** @throws AdminError `store` */
export async function answerOf<T>(store: AdminStore, call: PreparedCall<T>): Promise<T> {
  try {
    return await runCall(store.decisions, call)
  } catch (error) {
    throw error instanceof GatewayError
      ? new AdminError('store', error.message, store.nextStepFor(error.message))
      : error
  }
}

export function limitOf({ limits }: Pick<Config, 'limits'>, name: string): readonly LimitRule[] {
  const rules = limits.get(name)
  if (rules) return rules
  const names = [...limits.keys()]
  throw new AdminError(
    'not-found',
    `The config has no limit '${name.slice(0, 60)}'.${didYouMean(name, names)} Limits: ${names.join(', ') || 'none'}.`,
  )
}

/** Turns a TypeError of the limiter into an AdminError `usage` with the same message. */
export function withUsageErrors<T>(check: () => T): T {
  try {
    return check()
  } catch (error) {
    throw error instanceof TypeError ? new AdminError('usage', error.message) : error
  }
}
