/**
 * Mends a wrong settlement: spends units of one rule and one identity, or gives them back, in the current window. It is a
 * settlement itself, of a reservation that is made for it in the same transaction. So it can spend more than the limit allows, which is then
 * a debt.
 */
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Config, Rule } from '../config/compile.ts'
import { newReservationId } from '../limiter/reservations/reservation.ts'
import type { Evaluation } from '../script/evaluation.ts'
import { decodeSettle, encodeSettle, type Settlement } from '../script/settle.ts'
import { writtenNumbers } from '../script/wire.ts'
import type { LimitIdentity } from '../set-ups/limits/limiter.ts'
import { reservedKey } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { auditedCommand } from './audited.ts'
import { AUDIT_ALWAYS } from './audited-call.ts'
import { type CallerIdentity, optionFor, rulesBy, rulesByMore } from './caller-identity.ts'
import type { Entry } from './change.ts'
import {
  boundOf,
  evaluateCaller,
  evaluateLimit,
  limitOf,
  peekWithTime,
  type RuleStanding,
  targetOf,
} from './limits.ts'

/** The state of the rule before and after it. */
export interface Correction {
  before: RuleStanding
  after: RuleStanding
}

/** The most units of one correction: what one request can cost. */
export const MAX_CORRECTION = 1e9

/** @param units to spend; below 0: to give back */
export const correctLimit = async (
  store: AdminStore,
  config: Pick<Config, 'limits'>,
  name: string,
  identity: LimitIdentity,
  rule: string,
  units: number,
): Promise<Correction> =>
  await correct(
    store,
    evaluateLimit(store, config, name, identity),
    ruleOfLimit(config, name, rule),
    units,
    targetOf(name, identity),
  )

/** @param units to spend; below 0: to give back. @param plan as for peekCaller */
export async function correctCaller(
  store: AdminStore,
  config: Config,
  identity: CallerIdentity,
  rule: string,
  units: number,
  plan?: string,
): Promise<Correction> {
  const { evaluation } = await evaluateCaller(store, config, identity, plan)
  const found = ruleOfCaller(config, identity, rule)
  return await correct(store, evaluation, found, units, targetOf(undefined, { ...identity }))
}

/** The rule that a correction of a limit by name is about. @throws AdminError if it cannot be corrected */
export function ruleOfLimit(config: Pick<Config, 'limits'>, limit: string, name: string): Rule {
  const rules = limitOf(config, limit)
  if (rules.some(rule => rule.name === name && rule.atCall))
    throw new AdminError(
      'refused',
      `Rule '${name}' has its numbers from each call, so no other command knows its record. Settle the receipt of the call, or reset the limit with --numbers.`,
    )
  return settledRule(name, rules) ?? notFound(`The limit '${limit}' has no rule '${name}'.`, name, rules)
}

/** The rule that a correction of a caller is about. @throws AdminError if it cannot be corrected */
export function ruleOfCaller(config: Config, identity: CallerIdentity, name: string): Rule {
  const parts = Object.keys(identity)
  const rules = rulesBy(config, parts, identity.mode ?? 'live')
  const found = settledRule(name, rules)
  if (found) return found
  const missing = rulesByMore(config, parts).get(name)
  if (missing)
    throw new AdminError(
      'usage',
      `Rule '${name}' also counts by ${missing.join(' and ')}: add ${missing.map(optionFor).join(' ')}.`,
    )
  return notFound(`The config has no rule '${name}' that counts by ${parts.join(' and ')}.`, name, rules)
}

/** @throws AdminError for a rule that is never settled */
function settledRule(name: string, rules: readonly Rule[]): Rule | undefined {
  const rule = rules.find(rule => rule.name === name)
  if (!rule || rule.settlement) return rule
  throw new AdminError(
    'refused',
    `Rule '${name}' counts ${rule.unit}, whose cost is known before the request: there is no settlement to correct.`,
  )
}

function notFound(problem: string, name: string, rules: readonly Rule[]): never {
  const names = [...new Set(rules.filter(({ settlement }) => settlement).map(rule => rule.name))]
  throw new AdminError(
    'not-found',
    `${problem}${didYouMean(name, names)} Rules with settlements: ${names.join(', ') || 'none'}.`,
  )
}

async function correct(
  store: AdminStore,
  evaluation: Evaluation,
  { name }: Rule,
  units: number,
  target: string,
): Promise<Correction> {
  const { at, standings } = await peekWithTime(store, evaluation)
  const before = standings.find(({ rule }) => rule.name === name)
  if (!before)
    throw new AdminError(
      'refused',
      `Rule '${name}' does not count this caller now: the config or an override turns it off, or the consumer is blocked.`,
    )
  const after = { rule: name, [units > 0 ? 'spent' : 'givenBack']: Math.abs(units) }
  const entry = { action: 'limits.correct', target, after } as const
  await settle(store, settlementOf(evaluation, before.rule, units, at), entry)
  const { standings: then } = await peekWithTime(store, evaluation)
  return { before, after: then.find(({ rule }) => rule.name === name) ?? before }
}

/** The settlement of a request that was admitted at this time, so that nothing of it can have drained. */
function settlementOf(evaluation: Evaluation, rule: Rule, units: number, at: number): Settlement {
  const { ruleSet, subject } = evaluation
  const bound = boundOf(evaluation, rule)
  // A request has to reserve something.
  const amount = units > 0 ? { reserved: 1, actual: 1 + units } : { reserved: -units, actual: 0 }
  return {
    ruleSet,
    rules: [{ ...bound, written: writtenNumbers(rule, bound.rule) }],
    ...(subject?.kind === 'token'
      ? { consumerKey: subject.consumerKey, plan: subject.plan }
      : { plan: evaluation.plan }),
    now: at,
    requests: [{ id: newReservationId(), spentAt: at, amounts: [amount] }],
  }
}

/** How long the reservation would last if it was not settled (ms). */
const RESERVED_MS = 1000

async function settle(store: AdminStore, settlement: Settlement, entry: Entry): Promise<void> {
  const { script, keys, args } = encodeSettle(settlement)
  const [{ rule, key }] = settlement.rules as [Settlement['rules'][number]]
  const [{ id, spentAt, amounts }] = settlement.requests as [Settlement['requests'][number]]
  const reservations = store.at(reservedKey(key))
  const member = `${id} ${spentAt} ${rule.family}=${amounts[0]!.reserved}`
  const [, reply] = await store.transact([
    ['ZADD', reservations, Math.floor(spentAt / 1000) + RESERVED_MS, member],
    await auditedCommand(store, {
      source: AUDIT_ALWAYS + script.plain.source,
      keys: keys.map(store.at),
      ...{ args, entry },
    }),
    // Also if the script has failed.
    ['ZREM', reservations, member],
  ])
  if (decodeSettle(reply, settlement).applied !== 1)
    throw new AdminError('store', 'The store did not make the correction.', store.nextStepFor(''))
}
