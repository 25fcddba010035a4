/**
 * The receipt of a decision: plain data with everything that a refund needs. So any isolate can refund any decision.
 *
 * The calling Worker sends the receipt back, so each field is checked. A receipt can name only the state that a call of
 * `limit` can name. Receipts are not signed, so this Worker could write one itself. But the owner of the config has bound
 * it, and it can use every limit anyway.
 *
 * Later deployments can have other rules than the one that has written the receipt. Those that count in other records give nothing back
 * (records-of.ts), and what it says about others is ignored.
 */

import { SYSTEM_CLOCK } from '../../clock.ts'
import { show } from '../../config/check/mistake.ts'
import type { Config, LimitRule } from '../../config/compile.ts'
import { Lru } from '../../lru.ts'
import { type CallNumbers, type LimitIdentity, MAX_COST, rulesOfEarlier } from '../limits/arguments.ts'
import type { LimitDecision, RefundableDecision, SettleableDecision } from '../limits/limiter-shape.ts'
import { refundableUnits } from '../limits/spent-units.ts'

/** What `refund` and `settle` need to know of a decision. Plain data: it can be stored, sent as JSON, and used in any isolate. */
export interface Receipt {
  /** Different for each decision. */
  id: string
  limit: string
  identity: LimitIdentity
  /** When the decision was made, by the store's clock (µs). 0 if the store has not made it. */
  at: number
  /** The units that a refund can give back, by rule name. */
  costs: Readonly<Record<string, number>>
  /** The units that `settle` replaces, by rule name. */
  reserved?: Readonly<Record<string, number>>
  /** The records that these units were spent in, by rule name. Absent in receipts of earlier versions. */
  records?: Readonly<Record<string, string>>
  /** The numbers that the call has given, by rule name. */
  numbers?: CallNumbers
}

/** Writes and checks receipts, and recognizes those that this isolate has already refunded. */
export interface Receipts {
  /** Creates the receipt of a decision. It has no costs if the decision has spent nothing in the store. */
  receiptOf(decision: LimitDecision): Receipt
  /**
   * Returns the decision of a receipt, as far as a refund uses it. A receipt that was refunded before gets the same
   * object again, because the limiter remembers the refunds of a decision object.
   *
   * @throws TypeError naming the wrong field, its value and the fix
   */
  decisionOf(receipt: unknown): RefundableDecision & SettleableDecision
}

interface ReceiptsSettings {
  /** How many refunded receipts are recognized at least: the latest ones. At most twice as many are kept. */
  size?: number
  /** The time of this machine (ms); tests pass their own. */
  now?: () => number
}

/** Creates the receipts of an isolate. Only those that were refunded are kept. */
export function createReceipts(
  limits: Config['limits'],
  { size = 5_000, now = SYSTEM_CLOCK.now }: ReceiptsSettings = {},
): Receipts {
  const refunded = new Lru<CheckedReceipt>({ size })
  return {
    receiptOf: decision => receiptOf(decision, limits),

    decisionOf(receipt) {
      const decision = checkReceipt(receipt, limits, now())
      const known = refunded.get(decision.id)
      // A receipt with wrong fields must not stand for the right one.
      if (known && JSON.stringify(known) === JSON.stringify(decision)) return known
      if (decision.rules.length > 0) refunded.set(decision.id, decision)
      return decision
    },
  }
}

/** Creates the receipt of a decision, as in `Receipts`. */
export function receiptOf(decision: LimitDecision, limits: Config['limits']): Receipt {
  const { limit, identity, at, id = crypto.randomUUID(), reserved, records = {}, numbers } = decision
  const spent = [...refundableUnits(decision, limits.get(limit)!)].filter(([, units]) => units > 0)
  const costs = Object.fromEntries(spent)
  const named = Object.entries(records).filter(([name]) => Object.hasOwn({ ...costs, ...reserved }, name))
  return {
    ...{ id, limit, identity: { ...identity }, at, costs },
    ...(reserved && { reserved }),
    ...(named.length > 0 && { records: Object.fromEntries(named) }),
    ...(named.length > 0 && numbers && { numbers }),
  }
}

/** How far the store's clock can be ahead of that of this machine. The refund itself uses only the store's clock. */
const MAX_CLOCK_DIFFERENCE_MS = 3_600_000

type CheckedReceipt = RefundableDecision & { id: string }

/** @throws TypeError naming the wrong field, its value and the fix */
function checkReceipt(receipt: unknown, limits: Config['limits'], nowMs: number): CheckedReceipt {
  if (!isRecord(receipt)) throw invalid('', receipt, 'It must be an object.')
  const { id, limit, identity, at, costs, reserved = {}, records, numbers } = receipt
  if (typeof id !== 'string' || !ID.test(id)) throw invalid('.id', id, 'It must be the id of a decision.')

  const rules = typeof limit === 'string' ? limits.get(limit) : undefined
  if (typeof limit !== 'string' || !rules)
    throw invalid('.limit', limit, `Limits of the config: ${listed([...limits.keys()])}.`)

  const spent = checkUnits('costs', costs)
  const units = checkUnits('reserved', reserved)
  // The limiter checks the numbers.
  const given = numbers === undefined ? {} : { numbers: numbers as CallNumbers }
  const counted = records === undefined ? given : { ...given, records: checkRecords(records) }
  if (!isIdentity(identity)) throw invalid('.identity', identity, 'It must be an object.')
  const latest = (nowMs + MAX_CLOCK_DIFFERENCE_MS) * 1e3
  if (!isWhole(at, 0, latest))
    throw invalid('.at', at, 'It must be a time in the past, in whole microseconds since 1970.')

  return decisionOfReceipt({ id, limit, identity, at, costs: spent, reserved: units, ...counted }, rules)
}

/**
 * Returns the decision of a receipt whose fields are checked, or signed. It may have been refunded before.
 * @throws TypeError if the rules of the limit count by other parts than those of its identity
 */
export function decisionOfReceipt(receipt: Receipt, rules: readonly LimitRule[]): CheckedReceipt {
  const { id, limit, identity, at, costs, reserved = {}, records, numbers } = receipt
  try {
    rulesOfEarlier(limit, identity, rules, { ...costs, ...reserved })
  } catch (error) {
    throw invalid('.identity', identity, (error as TypeError).message)
  }
  return {
    ...{ id, limit, identity, at, allowed: true, costs },
    rules: Object.keys(costs).map(name => ({ name, allowed: true })),
    ...(Object.keys(reserved).length > 0 && { reserved }),
    ...(records && { records }),
    ...(numbers && { numbers }),
  }
}

/** @returns the units by rule name. A rule may be missing, or have a lower limit, since a later deployment */
function checkUnits(field: string, value: unknown): Record<string, number> {
  if (!isRecord(value)) throw invalid(`.${field}`, value, 'It must be an object.')
  const all = Object.entries(value).map(([name, units]) => {
    if (isWhole(units, 1, MAX_COST)) return [name, units] as const
    throw invalid(`.${field}.${name}`, units, `It must be a whole number from 1 to ${MAX_COST}.`)
  })
  return Object.fromEntries(all)
}

/** @returns the records by rule name. Those of other rules than today's match none */
function checkRecords(value: unknown): Record<string, string> {
  if (!isRecord(value)) throw invalid('.records', value, 'It must be an object.')
  const wrong = Object.entries(value).find(([, record]) => typeof record !== 'string')
  if (wrong) throw invalid(`.records.${wrong[0]}`, wrong[1], 'It must be text.')
  return value as Record<string, string>
}

/** That of a decision, or a UUID: of a decision that has spent nothing, and of all receipts of earlier versions. */
const ID = /^([\dA-Za-z]{12}|[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12})$/

function invalid(field: string, value: unknown, rule: string): TypeError {
  return new TypeError(`receipt${field} is ${show(value)}. ${rule} Pass the receipt of a decision unchanged.`)
}

const listed = (names: readonly string[]) => names.join(', ') || 'none'

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

/** Does not check the parts: `rulesOfEarlier` compares them with the rules of the limit. */
const isIdentity = (value: unknown): value is LimitIdentity => isRecord(value)

function isWhole(value: unknown, least: number, most: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most
}
