/** What the scripts share on the wire: the keys of rules, the numbers of an algorithm, and rows of a reply. */
import type { WireNumber } from '../algorithms/descriptor.ts'
import { countings } from '../algorithms/index.ts'
import { GatewayError } from '../errors.ts'
import type { BoundRule } from './evaluation.ts'

type Placed = Pick<BoundRule, 'rule' | 'key' | 'logKey' | 'ends'>

/** KEYS of a script: those that are read as a whole, then the long logs. */
export interface Keys {
  keys: string[]
  /** How many are read as a whole. */
  whole: number
  /** The place of a key in KEYS, from 1. */
  indexOf(key: string): string
}

/** @param records keys of records, which come first */
export function keysOf(records: readonly string[], rules: readonly Placed[]): Keys {
  const short = rules.flatMap(({ key, logKey, rule }) => (logKey && !isLong(rule) ? [key, logKey] : [key]))
  const long = rules.flatMap(({ logKey, rule }) => (logKey && isLong(rule) ? [logKey] : []))
  const whole = new Set([...records, ...short])
  const keys = [...whole, ...new Set(long)]
  return { keys, whole: whole.size, indexOf: key => String(keys.indexOf(key) + 1) }
}

/** A short log is read as a whole, with the states; of a long one, separate commands read only the needed part. */
export const isLong = ({ limit }: Placed['rule']) => limit > MAX_SHORT_LOG
const MAX_SHORT_LOG = 100

/** Key index, tag, algorithm and its three numbers: the first six values of each rule's frame. */
export function placeOf(placed: Placed, { indexOf }: Keys): string[] {
  const { rule, key } = placed
  const numbers = countings[rule.algorithm].wire.map(name => numberOf(name, placed, indexOf))
  return [indexOf(key), rule.tag, rule.algorithm, ...numbers]
}

function numberOf(
  name: WireNumber,
  { rule: { quota }, logKey, ends }: Placed,
  indexOf: Keys['indexOf'],
): string {
  switch (name) {
    case 'rate':
    case 'period':
    case 'burst':
    case 'step':
      return String(quota[name])
    case 'limit':
      return String(quota.burst)
    case 'ends':
      return ends ? ends.join(' ') : ''
    case 'log_key':
      return indexOf(logKey!)
  }
}

export const textOf = (time: number | undefined) => (time === undefined ? '' : String(time))

/** The overrides in the record of the consumer are for what is counted for that consumer. */
export function familyOf({ rule }: Pick<BoundRule, 'rule'>): string {
  return rule.takesOverrides ? rule.family : NO_FAMILY
}

const NO_FAMILY = '___'

/** retry_after, remaining, reset_after, delay */
export type Row = readonly [retryAfter: number, remaining: number, resetAfter: number, delay: number]

const FIELDS = 4

/** @throws GatewayError ERR_STORE_REPLY_INVALID for anything that is not rows of integers in range */
export function rowsOf(fields: readonly unknown[]): Row[] {
  if (fields.length % FIELDS !== 0) throw invalid(`${fields.length} fields`)
  if (!fields.every(isField)) throw invalid('a field that is not an integer in range')
  return Array.from(
    { length: fields.length / FIELDS },
    (_, i) => fields.slice(i * FIELDS, (i + 1) * FIELDS) as unknown as Row,
  )
}

/** No time or amount of Sluice is larger; the config check ensures it. */
const MAX_FIELD = 2 ** 52
/** The smallest that a field can be: -2 in the place of retry_after. */
const MIN_FIELD = -2

export function isField(field: unknown): field is number {
  return Number.isInteger(field) && (field as number) >= MIN_FIELD && (field as number) <= MAX_FIELD
}

const MAX_REMAINING = 2e9

/** @throws GatewayError ERR_STORE_REPLY_INVALID */
export function checkStanding([, remaining, resetAfter, delay]: Row): void {
  if (remaining < 0 || remaining > MAX_REMAINING) throw invalid('more left than any limit')
  if (resetAfter < 0 || delay < 0) throw invalid('a time below 0')
}

export function invalid(what: string): GatewayError {
  return new GatewayError('ERR_STORE_REPLY_INVALID', `The store's reply has ${what}.`)
}
