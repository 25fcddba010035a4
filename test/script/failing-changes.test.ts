/**
 * Scripts that change what was stored, while each of their commands fails in turn: the user may not run it, Redis is a replica or full, or a
 * key has another type. A call that fails can be sent again, and then everything is as if it had not failed. So it has changed nothing, or
 * only what does not matter.
 */
import type { Rule } from '../../src/config/compile.ts'
import {
  type PreparedCall,
  prepareDecide,
  preparePause,
  prepareReset,
  prepareSettle,
} from '../../src/limiter/prepared-call.ts'
import { keepScript } from '../../src/limiter/reservations/jobs.ts'
import { withCallers } from '../../src/metrics/add-callers.ts'
import { callFor } from '../../src/metrics/add-counts.ts'
import { auditedCall } from '../../src/ops/audited-call.ts'
import type { RefundedRule } from '../../src/script/refund.ts'
import type { SettledRequest } from '../../src/script/settle.ts'
import { encodePush, encodeReport } from '../../src/script/signal.ts'
import { signalScript } from '../../src/script/signal-text.ts'
import { encodeSync } from '../../src/script/sync.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { refundsKey, sideKey } from '../../src/store/keys.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { bound } from '../support/bound.ts'
import { ENTRY, type RedisEngine, rulesOf } from '../support/engines.ts'
import { type FailingCall, itCanBeSentAgain } from '../support/failing-calls.ts'
import { ruleSetOf } from '../support/rule-set.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'

const LATER = NOON + 1e6
/** Its entry is kept for ten minutes. */
const PAUSE_ENTRY = { ...ENTRY, values: ENTRY.values.with(7, '600000') }
const [ONE, OTHER] = ['sluice:{l:calls}:state:account=1', 'sluice:{l:calls}:state:all']

const [window, log, bucket, otherLog] = rulesOf(
  { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 1e6, period: '1h' },
  { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 500, period: '1h' },
  { name: 'bucket', by: 'address', algorithm: 'gcra', limit: 1000, period: '1h' },
  { name: 'other-log', by: 'address', algorithm: 'sliding-log', limit: 500, period: '1h' },
) as [Rule, Rule, Rule, Rule]
const KEYED = [
  { rule: window, key: ONE },
  { rule: log, key: ONE },
  { rule: bucket, key: OTHER },
  { rule: otherLog, key: OTHER },
]

const released = (rule: Rule): Rule => ({
  ...rule,
  settlement: { ttlMs: 60_000, onUnsettled: 'release', aboveLimit: 'clamp' },
})
const kept = (rule: Rule): Rule => ({
  ...rule,
  settlement: { ttlMs: 60_000, onUnsettled: 'keep', aboveLimit: 'clamp' },
})

const raw = (call: ScriptCall): PreparedCall<unknown> => ({ call, decode: reply => reply })
const jobKey = 'sluice:{l:calls}:job:1'

/** A refund of a request that was counted in the last chunk of two logs. */
function refundCase(once: boolean, hasLoops: boolean): FailingCall {
  const formOf = (engine: RedisEngine) => (hasLoops ? engine.withLoops() : engine)
  const refund = (engine: RedisEngine, id: string) =>
    formOf(engine).refund({
      rules: KEYED.map(
        ({ rule, key }): RefundedRule => ({ ...bound(rule, key, 0, NOON / 1e3), units: 1, spent: 1 }),
      ),
      ...{ spentAt: NOON + 130_000, now: LATER },
      ...(once && { once: { key: refundsKey(ONE, 1), id, keepSeconds: 60 } }),
    })
  return {
    async prepare(engine) {
      for (let i = 0; i < 140; i++) {
        const rules = KEYED.map(({ rule, key }) => bound(rule, key, 1, NOON / 1e3))
        await formOf(engine).evaluate(evaluationOf(rules, NOON + 1000 * i))
      }
      if (once) await refund(engine, 'request00000')
    },
    call: engine => refund(engine, 'request00001'),
  }
}

/** Reservations of two identities. */
function settleCase(
  terms: (rule: Rule) => Rule,
  requestsOf: (made: { id: string; spentAt: number }[]) => Omit<SettledRequest, 'amounts'>[],
  { idLetters = 12, now = LATER, actual = 3 } = {},
): FailingCall {
  const keyed = [
    { rule: terms(window), key: ONE },
    { rule: terms(bucket), key: OTHER },
  ]
  const ruleSet = ruleSetOf(keyed)
  const ids = Array.from({ length: 4 }, (_, i) => `request${i}`.padEnd(idLetters, '0'))
  return {
    async prepare(engine) {
      for (const [i, id] of ids.entries()) {
        const rules = keyed.map(({ rule, key }) => bound(rule, key, 10, NOON / 1e3))
        await engine.ask(prepareDecide({ ruleSet, rules, reservationId: id, now: NOON + i }))
      }
      await engine.ask(raw({ script: keepScript(), keys: [jobKey], args: ['60', '{}'] }))
    },
    call: engine =>
      engine.ask(
        prepareSettle({
          ...{ ruleSet, now },
          rules: keyed.map(({ rule, key }) => bound(rule, key, 1, NOON / 1e3)),
          requests: requestsOf(ids.map((id, i) => ({ id, spentAt: NOON + i }))).map(request => ({
            ...request,
            amounts: keyed.map(() => ({ reserved: request.lostForMs === undefined ? 10 : 0, actual })),
          })),
        }),
      ),
  }
}

/** A decision after the ends of reservations. @param of the rules of the request */
function decideCase(of: readonly number[], cost: number): FailingCall {
  const rules = [released(window), released(bucket)]
  const ruleSet = ruleSetOf(rules.map(rule => ({ rule, key: ONE })))
  const ask = (engine: RedisEngine, id: string, now: number, part: readonly number[], cost: number) =>
    engine.ask(
      prepareDecide({
        ...{ ruleSet, reservationId: id, now },
        rules: part.map(i => bound(rules[i]!, ONE, cost, now / 1e3)),
      }),
    )
  return {
    async prepare(engine) {
      for (let i = 0; i < 5; i++) await ask(engine, `request${i}`.padEnd(12, '0'), NOON, [0, 1], 10)
    },
    call: engine => ask(engine, 'request90000', NOON + 61e6, of, cost),
  }
}

const holding = (i: number, ended = 0) => ({
  ...{ holder: `holder${String(i % 100).padStart(2, '0')}`, epoch: 1, started: 3, ended },
})
const held = [sideKey(ONE, 'held', 'abc'), sideKey(OTHER, 'held', 'abc')]
const messages = (count: number, ended: number) =>
  Array.from({ length: count }, (_, i) => ({ key: held[i % 2]!, holding: holding(i, ended), ttl: 60e6 }))

const AT = new Date(NOON / 1e3)
const signal = { signal: 'origin', windowMs: 1000, sums: [7, 1] }

const cases: Record<string, FailingCall> = {
  'a refund': refundCase(false, false),
  'a refund, with loops': refundCase(false, true),
  'a refund with an id': refundCase(true, false),
  'a refund with an id, with loops': refundCase(true, true),
  'a reset': {
    prepare: refundCase(false, false).prepare,
    call: engine =>
      engine.reset({ rules: KEYED.map(({ rule, key }) => bound(rule, key, 0, NOON / 1e3)), now: LATER }),
  },
  'a reset of one rule': {
    prepare: refundCase(false, false).prepare,
    call: engine =>
      engine.reset({
        rules: KEYED.filter(({ rule }) => rule !== window).map(({ rule, key }) =>
          bound(rule, key, 0, NOON / 1e3),
        ),
        now: LATER,
      }),
  },
  // Each attempt has an entry of its own: it is written before anything else.
  'a reset of reservations, with an entry of the audit trail': {
    grows: 'sluice:{audit}',
    prepare: settleCase(released, () => []).prepare,
    async call(engine) {
      const store = {
        ...{ author: { actor: { kind: 'operator', name: 'x' } }, decisions: { isCluster: false } },
        auditKeepMs: 600_000,
        at: (key: string) => key,
      }
      const rules = [released(window), released(bucket)].map((rule, i) =>
        bound(rule, [ONE, OTHER][i]!, 0, NOON / 1e3),
      )
      const { call } = prepareReset({ rules, now: LATER })
      const entry = { action: 'limits.reset', target: 'calls', change: {}, nowMs: 1 }
      return engine.ask(raw(await auditedCall(store as never, call as ScriptCall, entry as never)))
    },
  },
  'a pause': {
    prepare: refundCase(false, false).prepare,
    call: engine => engine.ask(preparePause({ key: ONE, length: 60e6, now: LATER, entry: PAUSE_ENTRY })),
  },
  'the end of a pause': {
    prepare: engine => engine.ask(preparePause({ key: ONE, length: 60e6, now: NOON, entry: PAUSE_ENTRY })),
    call: engine => engine.ask(preparePause({ key: ONE, length: 0, now: LATER, entry: PAUSE_ENTRY })),
  },
  'messages about units in flight': {
    prepare: engine => engine.run(encodeSync(syncScript(), messages(4, 0), NOON)),
    call: engine => engine.run(encodeSync(syncScript(), messages(4, 1), LATER)),
  },
  'messages about units in flight of many holders': {
    prepare: engine => engine.run(encodeSync(syncScript(), messages(160, 0), NOON)),
    call: engine => engine.run(encodeSync(syncScript(), messages(6, 1), NOON + 1000)),
  },
  'settlements in the states': settleCase(kept, made => made.slice(1, 3)),
  'settlements in the sets': settleCase(released, made => made.slice(1, 3)),
  'settlements in the sets, of all': settleCase(released, made => made),
  'settlements in states and sets': settleCase(kept, made => made.slice(0, 2), { idLetters: 9 }),
  'settlements of more than was reserved': settleCase(released, made => made.slice(1, 3), { actual: 70 }),
  'settlements and renewals': settleCase(released, made =>
    made.map((request, i) => ({ ...request, isRenewal: i % 2 === 0 })),
  ),
  'settlements of lost replies': settleCase(released, made =>
    made.slice(0, 2).map(request => ({ ...request, lostForMs: 2000 })),
  ),
  'settlements that drop what has ended': settleCase(kept, made => made.slice(0, 1), {
    ...{ idLetters: 9, now: 32 * Math.ceil((NOON + 30e6) / 32) },
  }),
  'the settlement of a job': settleCase(kept, ([first]) => [{ ...first!, jobKey }]),
  'a decision that gives back what has ended': decideCase([0, 1], 10),
  'a decision that gives back a part of what has ended': decideCase([0], 10),
  'a refusal that gives back what has ended': decideCase([0, 1], 1e9),
  statistics: {
    prepare: engine => engine.run(callFor([['request allowed - -', 2]], AT, { usage: [], totals: [] })),
    call: engine =>
      engine.run(
        withCallers(
          callFor(
            [
              ['request allowed - -', 3],
              ['lost', 1],
            ],
            AT,
            { usage: [['usage a', 5]], totals: [['x', 1]] },
          ),
          new Map([['limited window', new Map([['acme', { count: 3, error: 0 }]])]]),
          AT,
        ),
      ),
  },
  'the first statistics of a day': {
    prepare: async () => {},
    call: engine =>
      engine.run(
        withCallers(
          callFor([['request allowed - -', 3]], AT, { usage: [], totals: [] }),
          new Map([['limited window', new Map([['acme', { count: 3, error: 0 }]])]]),
          AT,
        ),
      ),
  },
  'a report of a signal': {
    prepare: engine => engine.run(encodeReport(signalScript(), { ...signal, now: NOON })),
    call: engine => engine.run(encodeReport(signalScript(), { ...signal, now: LATER })),
  },
  'a push': {
    async prepare(engine) {
      const push = { signal: 'origin', reporter: 'gone', value: 1, staleAfterMs: 10, now: NOON }
      await engine.run(encodePush(signalScript(), push))
    },
    call: engine =>
      engine.run(
        encodePush(signalScript(), {
          signal: 'origin',
          reporter: 'a',
          value: 500,
          staleAfterMs: 10,
          now: LATER,
        }),
      ),
  },
}

itCanBeSentAgain(cases)
