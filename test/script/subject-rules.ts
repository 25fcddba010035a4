/** The rules of the tests about subjects (credentials that the store checks, evaluation.ts), and one request under these rules. */
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Subject } from '../../src/script/evaluation.ts'
import { addressStateKey, consumerStateKey, UNKNOWN_CONSUMER } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { configOf, type TimedEvaluation } from '../support/engines.ts'
import { NOON } from '../support/traffic.ts'

const ADDRESS = addressStateKey('192.0.2.1')

const PLANS = ['free', 'pro', 'max']
export const MINUTE: RuleInput = {
  ...{ name: 'minute', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '1m' },
  plans: { pro: { limit: 100 }, max: false },
}
export const GUESSES: RuleInput = {
  ...{
    name: 'guesses',
    by: 'address',
    on: 'auth-failure',
    algorithm: 'fixed-window',
    limit: 2,
    period: '1h',
  },
}

export const config = (...rules: RuleInput[]) => configOf({ plans: PLANS, rules })

/** One request under these rules. Each rule counts the consumer `caller`, or its address. Without a subject, rules by consumer are left out. */
export function evaluationFor(
  rules: RuleInput[],
  subject: Subject | undefined,
  now = NOON,
  cost = 1,
  caller = 'acme',
): TimedEvaluation {
  const consumer = subject?.kind === 'pointer' ? UNKNOWN_CONSUMER : caller
  const address = caller === 'acme' ? ADDRESS : addressStateKey(caller)
  const counted = config(...rules).rules.flatMap(rule =>
    rule.by[0] === 'consumer' && !subject
      ? []
      : [
          bound(
            rule,
            rule.by[0] === 'consumer' ? consumerStateKey(consumer) : address,
            rule.cost * (rule.on === 'auth-failure' ? Math.max(1, cost) : cost),
            now / 1e3,
          ),
        ],
  )
  return { rules: counted, plans: PLANS, now, ...(subject && { subject }) }
}

const NUMBERS = { by: 'consumer', limit: 3, period: '1h' } as const
export const RULES: RuleInput[] = [
  { ...NUMBERS, name: 'gcra', algorithm: 'gcra' },
  { ...NUMBERS, name: 'token-bucket', algorithm: 'token-bucket', burst: 2 },
  { ...NUMBERS, name: 'leaky-bucket', algorithm: 'leaky-bucket', limit: 300, period: '1m', queue: 2 },
  { ...NUMBERS, name: 'fixed-window', algorithm: 'fixed-window' },
  { ...NUMBERS, name: 'calendar', algorithm: 'fixed-window', period: 'day' },
  { ...NUMBERS, name: 'sliding-window', algorithm: 'sliding-window' },
  { ...NUMBERS, name: 'sliding-log', algorithm: 'sliding-log' },
]
