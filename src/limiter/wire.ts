/**
 * The contract of the one call, on this side. The other end is src/lua/main.lua, which also says what each
 * place in KEYS, ARGV and the reply means; test/limiter holds the two together.
 */
import type { Rule } from '../config/compile.ts'
import { GatewayError } from '../errors.ts'

/** A rule and the key of the state that this request is counted in under it. */
export interface CountedRule {
  rule: Rule
  key: string
}

/** All that one decision is about. */
export interface Evaluation {
  rules: readonly CountedRule[]
  /** Key of the presented credential's record; absent for an anonymous caller. */
  credentialKey?: string
  /** The plans the config knows, the default one first. */
  plans: readonly string[]
  /** µs since the epoch; absent: the store's own clock, as always in production. */
  now?: number
}

/** One rule's answer. */
export interface Verdict {
  rule: Rule
  allowed: boolean
  /** Units left, after this request if it was admitted. */
  remaining: number
  /** µs until the whole budget is back. */
  resetAfter: number
  /** µs after which this cost would be admitted; 0 now, -1 never. */
  retryAfter: number
}

export interface Outcome {
  status: 'admitted' | 'refused' | 'unknown-credential'
  /** The caller's plan; empty for an anonymous caller. */
  plan: string
  /** One for each rule that applies to this plan. */
  verdicts: readonly Verdict[]
}

const FIELDS = 4
const STATUS = new Map<unknown, Outcome['status']>([
  [1, 'admitted'],
  [0, 'refused'],
  [-1, 'unknown-credential'],
])

/** KEYS and ARGV for main.lua. */
export function encode({ rules, credentialKey, plans, now }: Evaluation): { keys: string[]; args: string[] } {
  const keys = [...new Set([...(credentialKey ? [credentialKey] : []), ...rules.map(({ key }) => key)])]
  const args = [now === undefined ? '' : String(now), credentialKey ? spaced(plans) : '']
  for (const { rule, key } of rules) {
    const { limit, period, burst, cost } = rule.quota
    args.push(String(keys.indexOf(key) + 1), rule.tag, rule.algorithm)
    args.push(String(limit), String(period), String(burst), String(cost))
    args.push(rule.match.plans ? spaced(rule.match.plans) : '')
  }
  return { keys, args }
}

/** ` free pro `: each plan with a space around it, so that one plain search finds a whole name. */
function spaced(plans: readonly string[]): string {
  return ` ${plans.join(' ')} `
}

/** @throws GatewayError ERR_STORE_REPLY_INVALID for anything that main.lua cannot have said. */
export function decode(reply: unknown, { rules }: Evaluation): Outcome {
  if (!Array.isArray(reply)) throw invalid('no list')
  const [first, plan, ...fields] = reply as unknown[]
  const status = STATUS.get(first)
  if (!status || typeof plan !== 'string') throw invalid('no status and plan')
  if (status === 'unknown-credential') return { status, plan, verdicts: [] }

  if (fields.length !== rules.length * FIELDS)
    throw invalid(`${fields.length} fields for ${rules.length} rules`)
  if (!fields.every(isField)) throw invalid('a field that is no integer in range')
  const numbers = fields as number[]
  if (numbers.some((n, i) => i % FIELDS === 1 && n > MAX_REMAINING)) throw invalid('more left than any limit')
  const verdicts = rules.flatMap(({ rule }, i): Verdict[] => {
    const [allowed, remaining, resetAfter, retryAfter] = numbers.slice(i * FIELDS, (i + 1) * FIELDS)
    return allowed === -1
      ? []
      : [
          {
            rule,
            allowed: allowed === 1,
            remaining: remaining!,
            resetAfter: resetAfter!,
            retryAfter: retryAfter!,
          },
        ]
  })
  if ((status === 'admitted') !== verdicts.every(({ allowed }) => allowed))
    throw invalid('a status against its rules')
  return { status, plan, verdicts }
}

/** No time or amount of ours is larger; the config check sees to it. */
const MAX_FIELD = 2 ** 52
const MAX_REMAINING = 1e9

function isField(field: unknown): boolean {
  return Number.isInteger(field) && (field as number) >= -1 && (field as number) <= MAX_FIELD
}

function invalid(what: string): GatewayError {
  return new GatewayError('ERR_STORE_REPLY_INVALID', `The store's reply has ${what}.`)
}
