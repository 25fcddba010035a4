/**
 * What is left of limits, and making it whole again: of a limit by name, and of the gateway's rules that are counted by
 * exactly one consumer or one address.
 *
 * Looking spends nothing, and yet says when a request would be admitted: the rules are asked as those `on: 'auth-failure'`
 * are for a good credential, which are checked and not spent.
 */
import { parseAddress } from '../../config/address-ranges.ts'
import type { Config, GatewayRule, LimitRule, Rule } from '../../config/compile.ts'
import { PARTS_OF_CONSUMER } from '../../config/compile-rule.ts'
import { GatewayError } from '../../errors.ts'
import { addressIdentity } from '../../gateway/address.ts'
import { type CountedRule, count } from '../../limiter/count.ts'
import { checkIdentity } from '../../limiter/limit-checks.ts'
import { createLimiter, EVERYTHING, type LimitIdentity } from '../../limiter/limiter.ts'
import { ask, type Evaluation, type Outcome, type Verdict } from '../../limiter/wire.ts'
import { addressStateKey, consumerKey, consumerStateKey, limitStateKey } from '../../store/keys.ts'
import { isBlocked, parseConsumer } from '../../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'

/** How one rule stands, for one request of its usual cost. */
export type Standing = Pick<Verdict, 'mode' | 'allowed' | 'remaining' | 'resetAfter' | 'retryAfter'> & {
  /** With the numbers that the consumer has. */
  rule: Rule
  cost: number
}

export async function peekLimit(
  store: AdminStore,
  config: Pick<Config, 'limits' | 'plans'>,
  name: string,
  identity: LimitIdentity,
): Promise<Standing[]> {
  const rules = limitOf(config, name)
  asked(() => checkIdentity(name, identity, rules))
  const counted = await Promise.all(
    rules.filter(isOn).map(async rule => {
      const parts = rule.by.map(part => [part, String(identity[part])] as const)
      return count(rule, await limitStateKey(name, parts))
    }),
  )
  return await look(store, config, counted)
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
  const limiter = createLimiter(config, store.decisions)
  try {
    const { degraded } = await limiter.reset(name, identity, rule === undefined ? {} : { rule })
    if (degraded) throw new AdminError('store', `The store did not do it: ${degraded}.`)
  } catch (error) {
    throw error instanceof TypeError ? new AdminError('not-found', error.message) : error
  }
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
}

/** @param plan absent: the consumer's, or that of nobody in particular */
export async function peekCaller(
  store: AdminStore,
  config: Config,
  counted: Counted,
  plan?: string,
): Promise<CallerStandings> {
  const { by, key } = countedBy(config, counted)
  if ('address' in counted) {
    const rules = ofPlan(rulesBy(config, by), plan).map(rule => count(rule, key))
    return { ...(plan && { plan }), standings: await look(store, config, rules), off: [] }
  }
  const recordKey = consumerKey(counted.consumer)
  const text = await store.ask(redis => redis.get<string>(store.at(recordKey)))
  const record = parseConsumer(text ?? '')
  const { plan: own = '', blockedAt } = record
  const chosen = plan ?? (config.plans.includes(own) ? own : config.plans[0]!)
  if (blockedAt && isBlocked(record, Date.now() * 1000))
    return { plan: chosen, blockedAt, standings: [], off: [] }
  const rules = ofPlan(rulesBy(config, by), chosen).map(rule => count(rule, key))
  const standings = await look(store, config, rules, { kind: 'token', consumerKey: recordKey })
  const seen = new Set(standings.map(({ rule }) => rule.name))
  return { plan: chosen, standings, off: rules.map(({ rule }) => rule).filter(({ name }) => !seen.has(name)) }
}

/** Whatever their plan, and with the numbers of the config as with those of overrides. */
export async function resetCaller(store: AdminStore, config: Config, counted: Counted): Promise<void> {
  const { by, key } = countedBy(config, counted)
  const rules = rulesBy(config, by).map(rule => ({ ...count(anyPlan(rule), key), cost: -EVERYTHING }))
  const ofRequests = rules.filter(({ rule }) => rule.on === 'request')
  const guesses = rules.filter(({ rule }) => rule.on === 'auth-failure')
  const evaluations: Evaluation[] = [
    { plans: [], rules: unique(ofRequests, ({ rule }) => rule.tag) },
    { plans: [], rules: guesses, who: { kind: 'failed' } },
  ]
  if ('consumer' in counted) {
    const who = { kind: 'token', consumerKey: consumerKey(counted.consumer) } as const
    evaluations.push({ plans: config.plans, rules: unique(ofRequests, ({ rule }) => rule.family), who })
  }
  await answers(
    store,
    evaluations.filter(({ rules }) => rules.length > 0),
  )
}

/** Rules that are told and reset, by name. */
export function rulesShown(config: Pick<Config, 'rules'>, by: 'consumer' | 'address'): string[] {
  return [...new Set(rulesBy(config, by).map(({ name }) => name))]
}

/** Rules that count a part of what it does, or one of its keys: their state has no key that could be named here. */
export function rulesNotShown({ rules }: Pick<Config, 'rules'>, by: 'consumer' | 'address'): string[] {
  const isIts = (part: string) => (by === 'consumer' ? PARTS_OF_CONSUMER.test(part) : part === by)
  const others = rules.filter(rule => isOn(rule) && rule.by.some(isIts) && rule.by.join() !== by)
  return [...new Set(others.map(({ name }) => name))]
}

function countedBy(config: Config, counted: Counted): { by: 'consumer' | 'address'; key: string } {
  if ('consumer' in counted) return { by: 'consumer', key: consumerStateKey(counted.consumer) }
  if (!parseAddress(counted.address)) {
    throw new AdminError(
      'usage',
      `'${counted.address.slice(0, 60)}' is no address. Write it as in 192.0.2.7 or 2001:db8::1.`,
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

function anyPlan(rule: GatewayRule): GatewayRule {
  const { plans: _, ...match } = rule.match
  return { ...rule, match }
}

async function look(
  store: AdminStore,
  { plans }: Pick<Config, 'plans'>,
  rules: readonly CountedRule[],
  who?: Evaluation['who'],
): Promise<Standing[]> {
  if (rules.length === 0) return []
  const checked = rules.map(counted => ({
    ...counted,
    rule: { ...counted.rule, on: 'auth-failure' as const },
  }))
  const [outcome] = await answers(store, [{ rules: checked, plans, ...(who && { who }) }])
  const written = new Map(rules.map(({ rule }) => [rule.name, rule]))
  return outcome!.verdicts.map(({ rule, mode, allowed, remaining, resetAfter, retryAfter }) => {
    const { on } = written.get(rule.name)!
    return { rule: { ...rule, on }, cost: rule.quota.cost, mode, allowed, remaining, resetAfter, retryAfter }
  })
}

async function answers(store: AdminStore, evaluations: readonly Evaluation[]): Promise<Outcome[]> {
  try {
    const all = await ask(store.decisions, evaluations)
    return all.map(answer => {
      if (answer instanceof GatewayError) throw answer
      return answer
    })
  } catch (error) {
    throw error instanceof GatewayError ? new AdminError('store', error.message) : error
  }
}

function unique(rules: readonly CountedRule[], nameOf: (counted: CountedRule) => string): CountedRule[] {
  return [...new Map(rules.map(counted => [nameOf(counted), counted])).values()]
}

function limitOf({ limits }: Pick<Config, 'limits'>, name: string): readonly LimitRule[] {
  const rules = limits.get(name)
  if (rules) return rules
  const names = [...limits.keys()].join(', ') || 'none'
  throw new AdminError(
    'not-found',
    `There is no limit '${name.slice(0, 60)}'. The limits of the config are: ${names}.`,
  )
}

/** The limiter's own words for what it is asked wrongly. */
function asked(check: () => void): void {
  try {
    check()
  } catch (error) {
    throw error instanceof TypeError ? new AdminError('usage', error.message) : error
  }
}
