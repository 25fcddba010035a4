/**
 * Measures what it costs Redis to check a credential: the classic decision of six limits for each kind of caller, while Redis is busy.
 * The first kind has no credential, so only its six limits are decided.
 */

import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { compileGatewayRule } from '../../src/config/compile-rule.ts'
import { toDecision } from '../../src/limiter/decision.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import type { Evaluation, Subject } from '../../src/script/evaluation.ts'
import {
  addressStateKey,
  consumerKey,
  consumerStateKey,
  credentialKey,
  pointerKey,
  UNKNOWN_CONSUMER,
} from '../../src/store/keys.ts'
import {
  type ConsumerRecord,
  formatConsumer,
  formatCredential,
  MAX_CONSUMER_LENGTH,
} from '../../src/store/records.ts'
import { bound } from '../../test/support/bound.ts'
import type { Contender } from '../contenders.ts'
import { evaluateInStore } from '../evaluate.ts'
import { measured, measuredRatio } from '../figures.ts'
import { inHotLoop } from '../hot-loop.ts'
import { inRounds } from '../measure.ts'
import { type Findings, rowOf } from '../report.ts'
import { sixRules } from '../rules.ts'
import { type Identity, newIdentities, type TestBed } from '../test-bed.ts'
import type { Transport } from '../transport.ts'

const ROUNDS = 2
const CALLERS = 64

interface Kind {
  what: string
  subject?: (consumer: string) => Subject
  /** The record of each consumer in the store. */
  record?: ConsumerRecord
  rules?: readonly RuleInput[]
  /** The number of verdicts, if it is not six. */
  verdicts?: number
}

const RULES = sixRules('admits all', 'as shipped')
const WITH_PLANS = RULES.map(
  rule => ({ ...rule, plans: { pro: { limit: 1e6 }, max: { limit: 2e6 } } }) as RuleInput,
)
const GUESSES: RuleInput = {
  ...{ name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'gcra', limit: 1000, period: '1h' },
}

const key = (consumer: string): Subject => ({
  kind: 'key',
  consumerKey: consumerKey(consumer),
  credentialKey: credentialKey(consumer, DIGEST),
})
const token = (consumer: string): Subject => ({ kind: 'token', consumerKey: consumerKey(consumer) })

const DIGEST = 'd'.repeat(64)

const FULL = 'an API key, of a consumer with as many overrides as its record can have'
/** µs more than for an API key alone. */
const MOST_FOR_OVERRIDES = 30

const KINDS: readonly Kind[] = [
  { what: 'a caller without a credential' },
  { what: 'a token', subject: token },
  { what: 'an API key', subject: key },
  { what: 'an API key, of a consumer with a plan', subject: key, record: { plan: 'pro', overrides: [] } },
  { what: 'an API key, of a consumer with two overrides', subject: key, record: { overrides: overrides() } },
  { what: FULL, subject: key, record: { overrides: allOverrides() } },
  { what: 'an API key, and a rule on auth-failure', subject: key, rules: [...RULES, GUESSES], verdicts: 7 },
  { what: 'an API key, six rules with numbers for three plans', subject: key, rules: WITH_PLANS },
  {
    what: 'an opaque key that the isolate has not seen',
    subject: consumer => ({
      kind: 'pointer',
      consumerKey: consumerKey(UNKNOWN_CONSUMER),
      credentialKey: credentialKey(UNKNOWN_CONSUMER, DIGEST),
      pointerKey: pointerKey(consumer),
    }),
  },
]

export async function authentication(bed: TestBed): Promise<Findings> {
  const tasks = KINDS.map(kind => [kind.what, () => perDecision(bed, kind)] as const)
  const rounds: Record<string, number[]> = await inRounds(ROUNDS, Object.fromEntries(tasks))
  const alone = rounds[KINDS[0]!.what]!
  const moreThan = (base: readonly number[], what: string) => rounds[what]!.map((time, i) => time - base[i]!)
  return {
    rows: [
      rowOf(
        'Redis server time per decision of a consumer with as many overrides as its record can have, more than without',
        moreThan(rounds['an API key']!, FULL),
        { unit: 'µs', most: MOST_FOR_OVERRIDES },
      ),
    ],
    tables: [
      {
        title: 'Callers: six limits decided for callers of each kind',
        head: ['caller', 'µs in Redis', 'more than without a credential, µs', 'ratio'],
        rows: KINDS.map(({ what }) => {
          const own = rounds[what]!
          return [what, measured(own), measured(moreThan(alone, what)), measuredRatio(own, alone)]
        }),
      },
    ],
    rounds: [{ title: 'Callers, µs in Redis per decision', columns: rounds }],
    notes: [
      'Callers: all requests are admitted while Redis is busy. The MGET that reads the counters also reads the records of the consumer and the ' +
        'credential. Only an opaque key that the isolate has not seen needs one more command.',
    ],
  }
}

async function perDecision(bed: TestBed, kind: Kind): Promise<number> {
  const callers = newIdentities(CALLERS)
  const credential = formatCredential({ createdAt: new Date(0) })
  for (const { consumer } of callers) {
    await bed.redis.send(['SET', credentialKey(consumer, DIGEST), credential])
    await bed.redis.send(['SET', pointerKey(consumer), consumer])
    if (kind.record) await bed.redis.send(['SET', consumerKey(consumer), formatConsumer(kind.record)])
  }
  return await inHotLoop(bed, { make: transport => decision(transport, kind), callers, expected: 'allowed' })
}

function decision({ store }: Transport, { subject, rules = RULES, verdicts = 6 }: Kind): Contender<Identity> {
  const plans = ['free', 'pro', 'max']
  const config = checkedConfig({ origin: 'https://api.example.com', plans, rules: [...rules] })
  return async ({ consumer, address }) => {
    const credential = subject?.(consumer)
    const named = credential?.kind === 'pointer' ? UNKNOWN_CONSUMER : consumer
    const counted = config.rules.map(rule =>
      bound(rule, rule.by[0] === 'consumer' ? consumerStateKey(named) : addressStateKey(address)),
    )
    const evaluation: Evaluation = {
      ruleSet: gatewayRuleSet(config),
      rules: counted,
      ...(credential && { subject: credential }),
    }
    const decided = toDecision(await evaluateInStore(store, evaluation))
    if (decided.kind === 'denied') return 'refused'
    if (decided.kind !== 'allowed' || decided.verdicts.length !== verdicts) {
      throw new Error(`Not all rules were evaluated: ${JSON.stringify(decided)}`)
    }
    return 'allowed'
  }
}

/** As many overrides as a record can have: two of rules that apply, and others of rules that do not. */
function allOverrides(): ConsumerRecord['overrides'] {
  const all = [...overrides()]
  for (let i = 0; ; i++) {
    const rule = `other-${i}`
    const next = { ...all[0]!, rule, family: `~${String(i).padStart(2, '0')}`.slice(-3) }
    if (formatConsumer({ overrides: [...all, next] }).length > MAX_CONSUMER_LENGTH) return all
    all.push(next)
  }
}

/** Two overrides, of a rule whose state is a time and of one whose state is a count, as `npx sluicegate consumers override` sets them. */
function overrides(): ConsumerRecord['overrides'] {
  return RULES.slice(0, 2).map(input => {
    const [rule] = compileGatewayRule(input, ['free'], ALL_ALGORITHMS)
    const { rate, period, burst } = rule!.quota
    const numbers = { tag: rule!.tag, rate, period, burstOrStep: burst, limit: rule!.limit, burst }
    return { family: rule!.family, rule: rule!.name, numbers }
  })
}
