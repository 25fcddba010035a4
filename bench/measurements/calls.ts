/** Measures what calls of the store beside plain decisions cost Redis: leases, peeks, refunds, resets, and messages about units in flight. */
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { prepareDecide, prepareRefund, prepareReset } from '../../src/limiter/prepared-call.ts'
import type { Evaluation } from '../../src/script/evaluation.ts'
import type { RuleSet } from '../../src/script/rule-set-shape.ts'
import { encodeSync, type Message } from '../../src/script/sync.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { addressStateKey, consumerStateKey } from '../../src/store/keys.ts'
import type { StoreCall } from '../../src/store/store.ts'
import { bound } from '../../test/support/bound.ts'
import { ruleSetOf } from '../../test/support/rule-set.ts'
import { measured } from '../figures.ts'
import { type HotLoop, inHotLoop } from '../hot-loop.ts'
import { inRounds } from '../measure.ts'
import type { Findings } from '../report.ts'
import { WINDOWS } from '../rules.ts'
import { type Identity, newIdentities, type TestBed } from '../test-bed.ts'

const ROUNDS = 2
const TTL_US = 3600e6
const LIMIT = 1e9

type Make = HotLoop<Identity>['make']

const CALLS: Readonly<Record<string, Make>> = {
  'a decision of six fixed windows': six((_, evaluation) => prepareDecide(evaluation).call),
  'a decision of six fixed windows that leases ten requests': six(
    (_, evaluation) => prepareDecide({ ...evaluation, wantedRequests: 10 }).call,
  ),
  'a peek of six fixed windows': six((_, evaluation) => prepareDecide(evaluation, 'peek').call),
  'a refund of six fixed windows': six((spentAt, { ruleSet, rules }) => {
    const refunded = rules.map(rule => ({ ...rule, units: 1, spent: 1 }))
    return prepareRefund({ ruleSet, rules: refunded, spentAt }).call
  }),
  'a reset of six fixed windows': six((_, { rules }) => prepareReset({ rules }).call),
  'a message about the units of one identity': messageAbout(1),
  'a message about the units of 20 identities': messageAbout(20),
}

export async function calls(bed: TestBed): Promise<Findings> {
  const tasks = Object.entries(CALLS).map(([what, make]) => {
    const task = () => inHotLoop(bed, { make, callers: newIdentities(32), expected: 'allowed' })
    return [what, task] as const
  })
  const rounds: Record<string, number[]> = await inRounds(ROUNDS, Object.fromEntries(tasks))
  return {
    tables: [
      {
        title: 'Calls: what each takes',
        head: ['one call', 'µs in Redis'],
        rows: Object.entries(rounds).map(([what, values]) => [what, measured(values)]),
      },
    ],
    rounds: [{ title: 'Calls, µs in Redis', columns: rounds }],
    notes: ['Calls: for callers without a credential, while Redis is busy.'],
  }
}

/** A call about six rules of a caller that has spent some of each. */
function six(callOf: (spentAt: number, evaluation: Evaluation) => StoreCall): Make {
  const rules = (['consumer', 'address'] as const).flatMap(by =>
    WINDOWS.map(({ name, period }) => {
      const input = { name: `${by}-${name}`, algorithm: 'fixed-window', limit: LIMIT, period } as const
      return { by, rule: compileLimitRule({ ...input, lease: { for: '1s' } }, ALL_ALGORITHMS) }
    }),
  )
  let ruleSet: RuleSet | undefined
  return ({ store }) => {
    const seen = new Set<string>()
    return async ({ consumer, address }) => {
      const keys = { consumer: consumerStateKey(consumer), address: addressStateKey(address) }
      const asked = rules.map(({ by, rule }) => bound(rule, keys[by]))
      ruleSet ??= ruleSetOf(asked)
      const evaluation = { ruleSet, rules: asked }
      const spentAt = Date.now() * 1e3
      if (!seen.has(consumer)) await store.run([prepareDecide({ ...evaluation, wantedRequests: 100 }).call])
      seen.add(consumer)
      await store.run([callOf(spentAt, evaluation)])
      return 'allowed'
    }
  }
}

function messageAbout(identities: number): Make {
  return ({ store }) =>
    async ({ consumer }) => {
      const holding = { holder: 'isolate0', epoch: 1, started: 1, ended: 0 }
      const messages = Array.from({ length: identities }, (_, i): Message => {
        return { key: `${consumerStateKey(consumer)}:${i}`, ttl: TTL_US, holding }
      })
      await store.run([encodeSync(syncScript(), messages)])
      return 'allowed'
    }
}
