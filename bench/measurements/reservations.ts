/**
 * Measures what it costs Redis to reserve what a request may cost and to settle it when the cost is known, compared with the same rules
 * whose cost is known before. Settlements travel in messages of one or several requests.
 */
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { compileLimitRule, type SettlementTerms } from '../../src/config/compile-rule.ts'
import { prepareSettle } from '../../src/limiter/prepared-call.ts'
import { addressStateKey, consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../../test/support/bound.ts'
import { ruleSetOf } from '../../test/support/rule-set.ts'
import type { Make } from '../decision-costs.ts'
import { evaluateInStore } from '../evaluate.ts'
import { inHotLoop } from '../hot-loop.ts'
import { inRounds, median } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import { type Findings, type Rounds, roundsSideBySide } from '../report.ts'
import { newIdentities, type TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const BATCHES = [1, 5, 20]
const ROUNDS = 8
const TARGET = 1.3
const TERMS: SettlementTerms = { ttlMs: 600_000, onUnsettled: 'keep', aboveLimit: 'clamp' }
const [RESERVED, ACTUAL] = [2000, 731]

const WINDOWS = [
  ['a', '1s', 1e6],
  ['b', '1m', 1e6],
  ['c', '1d', 1e9],
] as const

export async function reservations(bed: TestBed): Promise<Findings> {
  const rows: string[][] = []
  const rounds: Rounds[] = []
  let best = Number.POSITIVE_INFINITY
  for (const batch of BATCHES) {
    const loop = (make: Make) => async () => {
      const options = {
        make: (transport: Parameters<Make>[0]) => make(transport, false),
        expected: 'allowed' as const,
      }
      const time = await inHotLoop(bed, { ...options, callers: newIdentities(16), before: 1 })
      await bed.redis.send(['FLUSHDB', 'SYNC'])
      return time / batch
    }
    const tasks = { settled: loop(requestsOf(batch, true)), known: loop(requestsOf(batch, false)) }
    await inRounds(1, tasks)
    const { settled, known } = await inRounds(ROUNDS, tasks)
    best = Math.min(best, median(settled.map((time, i) => time / known[i]!)))
    const commands = async (settles: boolean) => {
      const contender = requestsOf(batch, settles)(straightTo(bed.redis, []), false)
      const [caller] = newIdentities(1)
      await contender(caller!)
      return (await commandsOf(bed.redis, () => contender(caller!))).commands / batch
    }
    rows.push([
      String(batch),
      roundsSideBySide(settled, known),
      `${(await commands(true)).toFixed(1)} : ${(await commands(false)).toFixed(1)}`,
    ])
    rounds.push({
      title: `Redis server time, ${batch} settlements in a message, µs per request`,
      columns: { settled, 'known before': known },
    })
  }
  const isReached = best <= TARGET
  return {
    tables: [
      {
        title: 'Reserved and settled: six windows of two identities, one of them of tokens',
        head: ['settlements in a message', 'µs in Redis, per request', 'commands, per request'],
        rows,
      },
    ],
    rounds,
    notes: [
      'Reserved and settled: cells show "the tokens are reserved and settled : their number is known before = ratio", for decision and settlement ' +
        `together. ${isReached ? 'Reached' : 'Missed'}: at most ${TARGET} times. A reservation is in the state, which the decision reads ` +
        'and writes anyway; a message about settlements takes an EVALSHA of its own with MGET and SETEX.',
    ],
  }
}

/** As many requests of a caller as there are settlements in a message, and that message. */
function requestsOf(batch: number, settles: boolean): Make {
  const rules = ['consumer', 'address'].flatMap(identity =>
    WINDOWS.map(([name, period, limit]) => {
      const input = { name: `${name}-${identity}`, algorithm: 'fixed-window', limit, period } as const
      const rule = compileLimitRule(input, ALL_ALGORITHMS)
      const isTokens = settles && name === 'c' && identity === 'consumer'
      return {
        rule: isTokens ? { ...rule, settlement: TERMS } : rule,
        identity,
        isTokens: name === 'c' && identity === 'consumer',
      }
    }),
  )
  // The commands are replayed, so the time that is part of a reservation's name must not change. One of eight is a multiple of eight.
  const start = Date.now() * 1e3
  return ({ store }) =>
    async ({ consumer, address }) => {
      const now = start + (Number(consumer.slice(-1)) % 8)
      const bind = rules.map(({ rule, identity, isTokens }) => {
        const key = identity === 'consumer' ? consumerStateKey(consumer) : addressStateKey(address)
        return bound(rule, key, isTokens ? RESERVED : 1, now / 1e3)
      })
      const ruleSet = ruleSetOf(bind)
      for (let i = 0; i < batch; i++) {
        const reservationId = settles ? `request${String(i).padStart(5, '0')}` : undefined
        const { status } = await evaluateInStore(store, {
          ruleSet,
          rules: bind,
          reservationId,
          now: now + 8 * i,
        })
        if (status !== 'admitted') return 'refused'
      }
      if (!settles) return 'allowed'
      // Like the limiter: a message has only rules that have reserved.
      const own = bind.filter(({ rule }) => rule.settlement)
      const amounts = own.map(() => ({ reserved: RESERVED, actual: ACTUAL }))
      const requests = Array.from({ length: batch }, (_, i) => ({
        ...{ id: `request${String(i).padStart(5, '0')}`, spentAt: now + 8 * i, amounts },
      }))
      const settlement = prepareSettle({ ruleSet, rules: own, now, requests })
      const [reply] = await store.run([settlement.call])
      if (settlement.decode(reply).applied !== batch) throw new Error('A settlement was not applied.')
      return 'allowed'
    }
}
