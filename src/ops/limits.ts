/**
 * What is left of limits, and making it whole again: of a limit by name, and of the gateway's rules that count exactly one
 * consumer or one address. The verb `peek` spends nothing, and yet says when a request would be admitted.
 */
import { parseAddress } from '../config/address-ranges.ts'
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Config, GatewayRule, LimitRule, Rule } from '../config/compile.ts'
import { forAnyPlan } from '../config/compile-rule.ts'
import { isOfConsumer } from '../config/identity-parts.ts'
import { addressIdentity } from '../edges/http/address.ts'
import { checkIdentity } from '../edges/limits/arguments.ts'
import { type LimitIdentity, limiterOnStore } from '../edges/limits/limiter.ts'
import { GatewayError } from '../errors.ts'
import { bindRule } from '../limiter/bind-rule.ts'
import { type PreparedCall, prepareDecide, prepareReset, runCall } from '../limiter/prepared-call.ts'
import { gatewayPolicy, limitPolicy } from '../script/compiled.ts'
import type { Evaluation, Verdict } from '../script/evaluation.ts'
import { addressStateKey, consumerKey, consumerStateKey, limitStateKey } from '../store/keys.ts'
import { type ConsumerRecord, isBlocked, parseConsumer } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'
import { listKeys } from './keys.ts'

/** How one rule stands, for one request of its usual cost. */
export type Standing = Pick<Verdict, 'mode' | 'allowed' | 'remaining' | 'resetAfter' | 'retryAfter'> & {
  /** With the numbers that the consumer has. */
  rule: Rule
  cost: number
}

export async function peekLimit(
  store: AdminStore,
  config: Pick<Config, 'limits'>,
  name: string,
  identity: LimitIdentity,
): Promise<Standing[]> {
  const rules = limitOf(config, name)
  asked(() => checkIdentity(name, identity, rules))
  const bound = rules.filter(isOn).map(rule => {
    const parts = rule.by.map(part => [part, String(identity[part])] as const)
    return boundTo(rule, limitStateKey(name, parts))
  })
  return await peek(store, { policy: limitPolicy(rules), rules: bound })
}

export async function resetLimit(
  store: AdminStore,
  config: Pick<Config, 'limits'>,
  name: string,
  identity: LimitIdentity,
  rule?: string,
): Promise<void> {
  const rules = limitOf(config, name)
  asked(() => checkIdentity(name, identity, rules))
  const names = rules.map(rule => rule.name)
  if (rule !== undefined && !names.includes(rule)) {
    throw new AdminError(
      'not-found',
      `The limit '${name}' has no rule '${rule}'.${didYouMean(rule, names)} Rules: ${names.join(', ')}.`,
    )
  }
  const limiter = limiterOnStore(config, store.decisions)
  const { degraded } = await limiter.reset(name, identity, rule === undefined ? {} : { rule })
  if (degraded) throw new AdminError('store', `The store did not reset the limit (${degraded}). Try again.`)
}

/** Whose counters are meant: a consumer as it stands in keys, or an address as a client has it. */
export type Counted = { consumer: string } | { address: string }

export interface CallerStandings {
  /** Whose rules these are; absent: an address without a credential. */
  plan?: string
  blockedAt?: Date
  /** One for each rule that applies. */
  standings: Standing[]
  /** Rules that an override turns off. */
  off: Rule[]
  /** Others that keys of the consumer have, whose requests are decided by other numbers. Empty where the plan was asked for. */
  plansOfKeys: string[]
}

/** @param plan absent: the consumer's plan; without a consumer, no plan */
export async function peekCaller(
  store: AdminStore,
  config: Config,
  counted: Counted,
  plan?: string,
): Promise<CallerStandings> {
  const { by, key } = countedBy(config, counted)
  const policy = gatewayPolicy(config)
  if ('address' in counted) {
    const rules = ofPlan(rulesBy(config, by), plan).map(rule => boundTo(forAnyPlan(rule), key))
    const standings = await peek(store, { policy, rules, ...(plan && { plan }) })
    return { ...(plan && { plan }), standings, off: [], plansOfKeys: [] }
  }
  const record = await recordOf(store, counted.consumer)
  const { plan: own = '', blockedAt } = record
  const chosen = plan ?? (config.plans.includes(own) ? own : config.plans[0]!)
  if (blockedAt && isBlocked(record, Date.now() * 1000))
    return { plan: chosen, blockedAt, standings: [], off: [], plansOfKeys: [] }
  const rules = ofPlan(rulesBy(config, by), chosen).map(rule => boundTo(forAnyPlan(rule), key))
  const subject = { kind: 'token', consumerKey: consumerKey(counted.consumer), plan: chosen } as const
  const standings = await peek(store, { policy, rules, subject })
  const seen = new Set(standings.map(({ rule }) => rule.name))
  const off = rules.map(({ rule }) => rule).filter(({ name }) => !seen.has(name))
  const ofKeys = plan === undefined ? await plansOfKeys(store, config, counted.consumer) : []
  return { plan: chosen, standings, off, plansOfKeys: ofKeys.filter(other => other !== chosen) }
}

/** That keys of a consumer name themselves. One that the config no longer has counts as the first. */
async function plansOfKeys(
  store: AdminStore,
  { plans }: Pick<Config, 'plans'>,
  consumer: string,
): Promise<string[]> {
  const keys = await listKeys(store, consumer)
  const named = keys.flatMap(({ plan }) => plan ?? [])
  return [...new Set(named.map(plan => (plans.includes(plan) ? plan : plans[0]!)))]
}

/** For every plan, and with the numbers of the config as with those of overrides. */
export async function resetCaller(store: AdminStore, config: Config, counted: Counted): Promise<void> {
  const { by, key } = countedBy(config, counted)
  const rules = rulesBy(config, by).map(rule => boundTo(rule, key))
  const { overrides } = 'consumer' in counted ? await recordOf(store, counted.consumer) : { overrides: [] }
  const overridden = overrides.flatMap(({ family, numbers }) => {
    const bound = rules.find(({ rule }) => rule.family === family)
    return bound && numbers ? [{ ...bound, rule: { ...bound.rule, tag: numbers.tag } }] : []
  })
  const all = [...new Map([...rules, ...overridden].map(bound => [bound.rule.tag, bound])).values()]
  if (all.length > 0) await answerOf(store, prepareReset({ rules: all }))
}

/** Names of the rules that are shown and reset. */
export function rulesShown(config: Pick<Config, 'rules'>, by: 'consumer' | 'address'): string[] {
  return [...new Set(rulesBy(config, by).map(({ name }) => name))]
}

/** Rules that count a part of what a caller does, or one of its keys: the key of their state is not known here. */
export function rulesNotShown({ rules }: Pick<Config, 'rules'>, by: 'consumer' | 'address'): string[] {
  const isIts = (rule: GatewayRule) => (by === 'consumer' ? isOfConsumer(rule.by) : rule.by.includes(by))
  const others = rules.filter(rule => isOn(rule) && isIts(rule) && rule.by.join() !== by)
  return [...new Set(others.map(({ name }) => name))]
}

function countedBy(config: Config, counted: Counted): { by: 'consumer' | 'address'; key: string } {
  if ('consumer' in counted) return { by: 'consumer', key: consumerStateKey(counted.consumer) }
  if (!parseAddress(counted.address)) {
    throw new AdminError(
      'usage',
      `'${counted.address.slice(0, 60)}' is not an address. Use an address such as 192.0.2.7 or 2001:db8::1.`,
    )
  }
  return { by: 'address', key: addressStateKey(addressIdentity(counted.address, config.address.ipv6Prefix)) }
}

function rulesBy({ rules }: Pick<Config, 'rules'>, by: 'consumer' | 'address'): GatewayRule[] {
  return rules.filter(rule => isOn(rule) && rule.by.length === 1 && rule.by[0] === by)
}

/** By the config: what is switched is not looked at here. */
const isOn = ({ mode }: Rule) => mode !== 'off'

/** The row of each rule that is for this plan, or for those without one. */
function ofPlan(rules: readonly GatewayRule[], plan: string | undefined): GatewayRule[] {
  return rules.filter(({ match: { plans }, isForOthers }) =>
    plan === undefined ? !plans || isForOthers : (plans?.includes(plan) ?? true),
  )
}

async function recordOf(store: AdminStore, consumer: string): Promise<ConsumerRecord> {
  const text = await store.ask(redis => redis.get<string>(store.at(consumerKey(consumer))))
  return parseConsumer(text ?? '')
}

const boundTo = (rule: Rule, key: string) => bindRule(rule, key, rule.cost, Date.now())

async function peek(store: AdminStore, evaluation: Evaluation): Promise<Standing[]> {
  if (evaluation.rules.length === 0) return []
  const { verdicts } = await answerOf(store, prepareDecide(evaluation, 'peek'))
  return verdicts.map(({ rule, mode, allowed, remaining, resetAfter, retryAfter }) => ({
    ...{ rule, cost: rule.cost, mode, allowed, remaining, resetAfter, retryAfter },
  }))
}

async function answerOf<T>(store: AdminStore, question: PreparedCall<T>): Promise<T> {
  try {
    return await runCall(store.decisions, question)
  } catch (error) {
    throw error instanceof GatewayError ? new AdminError('store', error.message) : error
  }
}

function limitOf({ limits }: Pick<Config, 'limits'>, name: string): readonly LimitRule[] {
  const rules = limits.get(name)
  if (rules) return rules
  const names = [...limits.keys()]
  throw new AdminError(
    'not-found',
    `The config has no limit '${name.slice(0, 60)}'.${didYouMean(name, names)} Limits: ${names.join(', ') || 'none'}.`,
  )
}

/** Passes on the limiter's own message for a wrong argument. */
function asked(check: () => void): void {
  try {
    check()
  } catch (error) {
    throw error instanceof TypeError ? new AdminError('usage', error.message) : error
  }
}
