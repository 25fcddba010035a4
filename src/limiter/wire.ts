/**
 * The contract of the one call, on this side. The other end is src/lua/main.lua, which also says what each
 * place in KEYS, ARGV and the reply means; test/limiter holds the two together.
 */
import type { Rule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import type { ScriptCall, Store } from '../store/store.ts'
import type { CountedRule } from './count.ts'

/** All that one decision is about. */
export interface Evaluation {
  rules: readonly CountedRule[]
  /** Absent: an anonymous caller. */
  who?: Who
  /** The plans the config knows, the default one first. */
  plans: readonly string[]
  /** µs since the epoch; absent: the store's own clock, as always in production. */
  now?: number
  /** When what is given back (costs below 0) was spent, by the store's clock (µs). */
  spentAt?: number
}

/** Who calls, as far as the store has a say in it. Keys are those of records (src/store/records.ts). */
export type Who =
  /** The credential is good if it has a record. */
  | { kind: 'key'; consumerKey: string; credentialKey: string }
  /** The same, but whose it is only the store knows: keys have `UNKNOWN_CONSUMER` in the place of the consumer. */
  | { kind: 'pointer'; consumerKey: string; credentialKey: string; pointerKey: string }
  /** Vouched for already, by a signature. */
  | { kind: 'token'; consumerKey: string; plan?: string }
  /** Asks for nothing but whose credential it is. */
  | { kind: 'lookup'; pointerKey: string }
  /** Known to be bad (another slot of a cluster has said so): only rules `on: 'auth-failure'` count. */
  | { kind: 'failed' }

/** One rule's answer. */
export interface Verdict {
  rule: Rule
  /** A shadow never changes the outcome. */
  mode: 'enforce' | 'shadow'
  allowed: boolean
  /** Units left, after this request if it was admitted. */
  remaining: number
  /** µs until the whole budget is back. */
  resetAfter: number
  /** µs after which this cost would be admitted; 0 now, -1 never. */
  retryAfter: number
  /** µs until an admitted request may depart (`leaky-bucket`); else 0. */
  delay: number
  /** Of a candidate: it says the same as the rule it would replace. */
  agrees?: boolean
}

export interface Outcome {
  /** After `unknown-credential` the verdicts are those of rules `on: 'auth-failure'`. */
  status: 'admitted' | 'refused' | 'unknown-credential' | 'blocked'
  /** The caller's plan; empty for an anonymous caller. */
  plan: string
  /** Whose credential it is, where only the store knew. */
  consumer?: string
  /** When it was decided, by the store's clock (µs). */
  at: number
  /** One for each rule that applies to this caller. */
  verdicts: readonly Verdict[]
}

const HEAD = 3
const FIELDS = 4
const STATUS = new Map<unknown, Outcome['status']>([
  [1, 'admitted'],
  [0, 'refused'],
  [-1, 'unknown-credential'],
  [-2, 'blocked'],
])

/**
 * Asks the store about each evaluation, all in one HTTP request.
 * @returns what it says of each, or why it does not
 * @throws GatewayError as Store.run
 */
export async function ask(
  store: Store,
  evaluations: readonly Evaluation[],
): Promise<(Outcome | GatewayError)[]> {
  if (evaluations.length === 0) return []
  const replies = await store.run(evaluations.map(encode))
  if (replies.length !== evaluations.length) throw invalid(`${replies.length} answers`)
  return evaluations.map((evaluation, i) => {
    try {
      const reply = replies[i]
      return reply instanceof GatewayError ? reply : decode(reply, evaluation)
    } catch (error) {
      if (error instanceof GatewayError) return error
      throw error
    }
  })
}

/** KEYS and ARGV for main.lua, and whether it touches keys that only it can name. */
export function encode(evaluation: Evaluation): ScriptCall & { keys: string[]; args: string[] } {
  const { rules, who, plans, now, spentAt } = evaluation
  const short = rules.flatMap(({ key, logKey, rule }) => (logKey && !isLong(rule) ? [key, logKey] : [key]))
  const long = rules.flatMap(({ logKey, rule }) => (logKey && isLong(rule) ? [logKey] : []))
  const read = new Set([...recordsOf(who), ...short])
  const keys = [...read, ...new Set(long)]
  const index = (key: string) => String(keys.indexOf(key) + 1)
  const args = [textOf(now), who ? spaced(plans) : '', textOf(spentAt), String(read.size), whoText(who)]
  args.push(who && 'consumerKey' in who ? rules.map(familyOf).join('') : '')
  for (const counted of rules) {
    const { rule, key, cost } = counted
    const { limit, period } = rule.quota
    args.push(index(key), rule.tag, rule.algorithm, String(limit), String(period))
    args.push(thirdOf(counted, index), String(cost), callersOf(rule), lastOf(counted))
  }
  return { keys, args, ...(who?.kind === 'pointer' && { hasHiddenKeys: true }) }
}

/** In the order in which the script looks for them. */
function recordsOf(who: Who | undefined): string[] {
  switch (who?.kind) {
    case 'key':
      return [who.consumerKey, who.credentialKey]
    case 'pointer':
      return [who.consumerKey, who.credentialKey, who.pointerKey]
    case 'token':
      return [who.consumerKey]
    case 'lookup':
      return [who.pointerKey]
    case 'failed':
    case undefined:
      return []
  }
}

function whoText(who: Who | undefined): string {
  if (!who) return ''
  return who.kind === 'token' ? `token ${who.plan ?? ''}` : who.kind
}

/** Overrides are for what is counted for the consumer, whose record holds them. */
function familyOf({ rule }: CountedRule): string {
  return rule.takesOverrides ? rule.family : NO_FAMILY
}

const NO_FAMILY = '___'

function callersOf({ on, match }: Rule): string {
  if (on === 'auth-failure') return '!'
  return match.plans ? spaced(match.plans) : ''
}

/** A short log is read as a whole, with the states; of a long one only what is needed, by commands of its own. */
export const isLong = ({ limit }: Rule) => limit > MAX_SHORT_LOG
const MAX_SHORT_LOG = 100

/** The third number of a rule, which is its algorithm's own business. */
function thirdOf({ rule, logKey, ends }: CountedRule, index: (key: string) => string): string {
  const { burst, step } = rule.quota
  switch (rule.algorithm) {
    case 'gcra':
    case 'token-bucket':
    case 'leaky-bucket':
      return String(burst)
    case 'fixed-window':
      return ends ? ends.join(' ') : ''
    case 'sliding-window':
      return String(step)
    case 'sliding-log':
      return index(logKey!)
  }
}

/** Whether the rule can refuse; of what is given back, which nothing refuses, how much was spent. */
function lastOf({ cost, spent = -cost, mode, staysShadow }: CountedRule): string {
  if (cost < 0) return String(spent)
  if (mode === 'enforce') return '1'
  return staysShadow ? '2' : '0'
}

const textOf = (time: number | undefined) => (time === undefined ? '' : String(time))

/** ` free pro `: each plan with a space around it, so that one plain search finds a whole name. */
function spaced(plans: readonly string[]): string {
  return ` ${plans.join(' ')} `
}

/** @throws GatewayError ERR_STORE_REPLY_INVALID for anything that main.lua cannot have said. */
export function decode(reply: unknown, { rules }: Evaluation): Outcome {
  if (!Array.isArray(reply)) throw invalid('no list')
  const [first, told, at] = reply as unknown[]
  const fields = (reply as unknown[]).slice(HEAD)
  const status = STATUS.get(first)
  if (!status || typeof told !== 'string' || !isField(at)) throw invalid('no status, plan and time')
  if (status === 'blocked') return { status, plan: '', at: at as number, verdicts: [] }

  const [plan = '', consumer] = told.split(' ')
  const changed = fields.length / FIELDS - rules.length
  if (!Number.isInteger(changed) || changed < 0) {
    throw invalid(`${fields.length} fields for ${rules.length} rules`)
  }
  if (!fields.every(isField)) throw invalid('a field that is no integer in range')
  const rows = rowsOf(fields as number[])
  const overrides = new Map(rows.splice(rules.length).map(([number, ...rest]) => [number, rest]))
  if (
    overrides.size !== changed ||
    [...overrides.keys()].some(number => number < 1 || number > rules.length)
  ) {
    throw invalid('an override of no rule')
  }
  if (rows.some(([, remaining]) => remaining > MAX_REMAINING)) throw invalid('more left than any limit')
  const verdicts = rules.flatMap((counted, i): Verdict[] => {
    const [allowed, remaining, resetAfter, wait] = rows[i]!
    if (allowed === -1) return []
    const waits = allowed === 1 ? { retryAfter: 0, delay: wait } : { retryAfter: wait, delay: 0 }
    const as = overridden(counted, overrides.get(i + 1))
    return [{ ...as, allowed: allowed === 1, remaining, resetAfter, ...waits }]
  })
  if ((status !== 'refused') !== verdicts.every(({ allowed, mode }) => allowed || mode === 'shadow')) {
    throw invalid('a status against its rules')
  }
  return { status, plan, at: at as number, verdicts: withAgreement(verdicts), ...(consumer && { consumer }) }
}

/** The rule with the numbers that the consumer has, as headers and messages tell them. */
function overridden(
  { rule, mode }: CountedRule,
  change: number[] | undefined,
): Pick<Verdict, 'rule' | 'mode'> {
  if (!change) return { rule, mode }
  const [limit, burst, code] = change as [number, number, number]
  const quota = { ...rule.quota, ...(burst > 0 && { burst }) }
  return {
    rule: limit > 0 ? { ...rule, limit, quota } : rule,
    mode: code === 1 ? 'enforce' : 'shadow',
  }
}

function rowsOf(fields: readonly number[]): Four[] {
  return Array.from(
    { length: fields.length / FIELDS },
    (_, i) => fields.slice(i * FIELDS, (i + 1) * FIELDS) as Four,
  )
}

type Four = [number, number, number, number]

/** Each candidate beside the rule it would replace, where both apply. */
export function withAgreement(verdicts: readonly Verdict[]): readonly Verdict[] {
  if (!verdicts.some(({ rule }) => rule.candidateFor)) return verdicts
  const allowed = new Map(verdicts.map(verdict => [verdict.rule.name, verdict.allowed]))
  return verdicts.map(verdict => {
    const live = verdict.rule.candidateFor && allowed.get(verdict.rule.candidateFor)
    return typeof live === 'boolean' ? { ...verdict, agrees: verdict.allowed === live } : verdict
  })
}

/** No time or amount of ours is larger; the config check sees to it. */
const MAX_FIELD = 2 ** 52
const MAX_REMAINING = 2e9

function isField(field: unknown): boolean {
  return Number.isInteger(field) && (field as number) >= -1 && (field as number) <= MAX_FIELD
}

function invalid(what: string): GatewayError {
  return new GatewayError('ERR_STORE_REPLY_INVALID', `The store's reply has ${what}.`)
}
