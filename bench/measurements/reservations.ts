/**
 * Measures what it costs Redis to reserve what a request may cost and to settle it when the cost is known, compared with the same rules
 * whose cost is known before. One or several settlements travel together: inside the next decision about the same identities, or in a call of
 * their own.
 */
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { compileLimitRule, type SettlementTerms } from '../../src/config/compile-rule.ts'
import { prepareSettle } from '../../src/limiter/prepared-call.ts'
import { settledIn } from '../../src/script/reservation-wire.ts'
import { settleAlong } from '../../src/script/settle-along.ts'
import { addressStateKey, consumerStateKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { bound } from '../../test/support/bound.ts'
import { ruleSetOf } from '../../test/support/rule-set.ts'
import type { Make } from '../decision-costs.ts'
import { evaluateInStore } from '../evaluate.ts'
import { type Cell, cell, counted, roundsSideBySide } from '../figures.ts'
import { inHotLoop } from '../hot-loop.ts'
import { inRounds } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import { type Findings, type Rounds, type Row, roundsRow } from '../report.ts'
import { newIdentities, type TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const BATCHES = [1, 5, 20]
const WAYS = ['in a decision', 'in a call of their own'] as const
type Way = (typeof WAYS)[number]
const ROUNDS = 2
const TARGET = 1.3
const TERMS: SettlementTerms = { ttlMs: 600_000, onUnsettled: 'keep', aboveLimit: 'clamp' }
const [RESERVED, ACTUAL] = [2000, 731]

const WINDOWS = [
  ['a', '1s', 1e6],
  ['b', '1m', 1e6],
  ['c', '1d', 1e9],
] as const

export async function reservations(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  const lines: Cell[][] = []
  const rounds: Rounds[] = []
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
    const [inDecision, apart] = WAYS.map(way => loop(requestsOf(batch, way))) as [Loop, Loop]
    const tasks = { inDecision, apart, known: loop(requestsOf(batch, undefined)) }
    const { inDecision: along, apart: alone, known } = await inRounds(ROUNDS, tasks)
    const commands = async (way: Way | undefined) => {
      const contender = requestsOf(batch, way)(straightTo(bed.redis, []), false)
      const [caller] = newIdentities(1)
      await contender(caller!)
      const { commands } = await commandsOf(bed.redis, () => contender(caller!))
      return counted(commands / batch, { digits: 1 })
    }
    const plain = await commands(undefined)
    for (const [i, times] of [along, alone].entries()) {
      lines.push([
        `${batch}, ${WAYS[i]}`,
        roundsSideBySide(times, known),
        cell`${await commands(WAYS[i])} : ${plain}`,
      ])
    }
    const what = `Redis server time per request, reserved and settled ${WAYS[0]}, ${batch} together`
    const most = batch === BATCHES.at(-1) ? TARGET : undefined
    rows.push(roundsRow(what, ['known before', along, known], { unit: 'µs', most }))
    rounds.push({
      title: `Redis server time, ${batch} settlements together, µs per request`,
      columns: { [WAYS[0]]: along, [WAYS[1]]: alone, 'known before': known },
    })
  }
  return {
    rows,
    tables: [
      {
        title: 'Reserved and settled: six windows of two identities, one of them of tokens',
        head: ['settlements together', 'µs in Redis, per request', 'commands, per request'],
        rows: lines,
      },
    ],
    rounds,
    notes: [
      'Reserved and settled: cells show "the tokens are reserved and settled : their number is known before = ratio", for decision and settlement ' +
        'together. A reservation is in the state, which the decision reads ' +
        'and writes anyway. Settlements travel inside the next decision about the same identities. If there is none within 250 ms, they take a ' +
        'call of their own, with MGET and SETEX.',
    ],
  }
}

type Loop = () => Promise<number>

/**
 * As many requests of a caller as there are settlements together. In a decision: the first one settles the requests of the time before.
 * @param way undefined: the cost is known before
 */
function requestsOf(batch: number, way: Way | undefined): Make {
  const settles = way !== undefined
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
  // The commands are replayed, so the time that is part of a reservation's name must not change. One of 16 is a multiple of 32, where
  // reservations that have ended are dropped: twice as many as in production.
  const start = Math.floor(Date.now() / 4) * 4e3
  const seen = new Set<string>()
  return ({ store }) =>
    async ({ consumer, address }) => {
      const now = start + 2 * (Number(consumer.slice(-5)) % 16)
      const bind = rules.map(({ rule, identity, isTokens }) => {
        const key = identity === 'consumer' ? consumerStateKey(consumer) : addressStateKey(address)
        return bound(rule, key, isTokens ? RESERVED : 1, now / 1e3)
      })
      const ruleSet = ruleSetOf(bind)
      // Like the limiter: a message has only rules that have reserved.
      const own = bind.filter(({ rule }) => rule.settlement)
      const amounts = own.map(() => ({ reserved: RESERVED, actual: ACTUAL }))
      const requests = Array.from({ length: batch }, (_, i) => ({
        ...{ id: `request${String(i).padStart(5, '0')}`, spentAt: now + 32 * i, amounts },
      }))
      const settling: Store = {
        ...store,
        async run(calls) {
          if (!settleAlong(calls[0]!, { ruleSet, rules: own, requests }))
            throw new Error('It settles nothing.')
          const replies = await store.run(calls)
          if (isLater && settledIn(replies[0]) !== batch) throw new Error('A settlement was not applied.')
          return replies
        },
      }
      const isLater = seen.has(consumer)
      seen.add(consumer)
      for (let i = 0; i < batch; i++) {
        const reservationId = settles ? `request${String(i).padStart(5, '0')}` : undefined
        const { status } = await evaluateInStore(way === 'in a decision' && i === 0 ? settling : store, {
          ruleSet,
          rules: bind,
          reservationId,
          now: now + 32 * i,
        })
        if (status !== 'admitted') return 'refused'
      }
      if (way !== 'in a call of their own') return 'allowed'
      const settlement = prepareSettle({ ruleSet, rules: own, now, requests })
      const [reply] = await store.run([settlement.call])
      if (settlement.decode(reply).applied !== batch) throw new Error('A settlement was not applied.')
      return 'allowed'
    }
}
