/**
 * The contract of the one call, on this side. The other end is src/lua/main.lua, which also says what each
 * place in KEYS, ARGV and the reply means; test/limiter holds the two together.
 */
import type { Rule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import type { Store } from '../store/store.ts'
import type { CountedRule } from './count.ts'

/** All that one decision is about. */
export interface Evaluation {
  rules: readonly CountedRule[]
  /** Key of the presented credential's record; absent for an anonymous caller. */
  credentialKey?: string
  /** The plans the config knows, the default one first. */
  plans: readonly string[]
  /** µs since the epoch; absent: the store's own clock, as always in production. */
  now?: number
  /** When what is given back (costs below 0) was spent, by the store's clock (µs). */
  spentAt?: number
}

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
  status: 'admitted' | 'refused' | 'unknown-credential'
  /** The caller's plan; empty for an anonymous caller. */
  plan: string
  /** When it was decided, by the store's clock (µs). */
  at: number
  /** One for each rule that applies to this plan. */
  verdicts: readonly Verdict[]
}

const HEAD = 3
const FIELDS = 4
const STATUS = new Map<unknown, Outcome['status']>([
  [1, 'admitted'],
  [0, 'refused'],
  [-1, 'unknown-credential'],
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

/** KEYS and ARGV for main.lua. */
export function encode(evaluation: Evaluation): { keys: string[]; args: string[] } {
  const { rules, credentialKey, plans, now, spentAt } = evaluation
  const short = rules.flatMap(({ key, logKey, rule }) => (logKey && !isLong(rule) ? [key, logKey] : [key]))
  const long = rules.flatMap(({ logKey, rule }) => (logKey && isLong(rule) ? [logKey] : []))
  const read = new Set([...(credentialKey ? [credentialKey] : []), ...short])
  const keys = [...read, ...new Set(long)]
  const index = (key: string) => String(keys.indexOf(key) + 1)
  const args = [textOf(now), credentialKey ? spaced(plans) : '', textOf(spentAt), String(read.size)]
  for (const counted of rules) {
    const { rule, key, cost } = counted
    const { limit, period } = rule.quota
    args.push(index(key), rule.tag, rule.algorithm, String(limit), String(period))
    args.push(thirdOf(counted, index), String(cost))
    args.push(rule.match.plans ? spaced(rule.match.plans) : '', lastOf(counted))
  }
  return { keys, args }
}

/** A short log is read as a whole, with the states; of a long one only what is needed, by commands of its own. */
const isLong = ({ limit }: Rule) => limit > MAX_SHORT_LOG
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
function lastOf({ cost, spent = -cost, mode }: CountedRule): string {
  if (cost < 0) return String(spent)
  return mode === 'enforce' ? '1' : '0'
}

const textOf = (time: number | undefined) => (time === undefined ? '' : String(time))

/** ` free pro `: each plan with a space around it, so that one plain search finds a whole name. */
function spaced(plans: readonly string[]): string {
  return ` ${plans.join(' ')} `
}

/** @throws GatewayError ERR_STORE_REPLY_INVALID for anything that main.lua cannot have said. */
export function decode(reply: unknown, { rules }: Evaluation): Outcome {
  if (!Array.isArray(reply)) throw invalid('no list')
  const [first, plan, at] = reply as unknown[]
  const fields = (reply as unknown[]).slice(HEAD)
  const status = STATUS.get(first)
  if (!status || typeof plan !== 'string' || !isField(at)) throw invalid('no status, plan and time')
  if (status === 'unknown-credential') return { status, plan, at: at as number, verdicts: [] }

  if (fields.length !== rules.length * FIELDS)
    throw invalid(`${fields.length} fields for ${rules.length} rules`)
  if (!fields.every(isField)) throw invalid('a field that is no integer in range')
  const numbers = fields as number[]
  if (numbers.some((n, i) => i % FIELDS === 1 && n > MAX_REMAINING)) throw invalid('more left than any limit')
  const verdicts = rules.flatMap(({ rule, mode }, i): Verdict[] => {
    const [allowed, remaining, resetAfter, wait] = numbers.slice(i * FIELDS, (i + 1) * FIELDS) as Four
    if (allowed === -1) return []
    const waits = allowed === 1 ? { retryAfter: 0, delay: wait } : { retryAfter: wait, delay: 0 }
    return [{ rule, mode, allowed: allowed === 1, remaining, resetAfter, ...waits }]
  })
  if ((status === 'admitted') !== verdicts.every(({ allowed, mode }) => allowed || mode === 'shadow'))
    throw invalid('a status against its rules')
  return { status, plan, at: at as number, verdicts: withAgreement(verdicts) }
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
