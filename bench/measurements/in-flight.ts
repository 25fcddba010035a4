/**
 * Measures what a decision costs Redis under one rule `concurrency`, by the number of isolates that hold units of it. Compares it with a
 * sorted set that has a member for each request in flight, the usual published implementation.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { toDecision } from '../../src/limiter/decision.ts'
import { encodeSync, type Message } from '../../src/script/sync.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../../test/support/bound.ts'
import { ruleSetOf } from '../../test/support/rule-set.ts'
import type { Contender } from '../contenders.ts'
import { bytesAfter, costsOf, type Make, roundsOf } from '../decision-costs.ts'
import { evaluateInStore } from '../evaluate.ts'
import { type Cell, roundsSideBySide, sideBySide } from '../figures.ts'
import type { Findings, Rounds } from '../report.ts'
import type { Identity, TestBed } from '../test-bed.ts'
import type { Transport } from '../transport.ts'

const TTL = '1h'
const TTL_MS = 3600e3
/** Units that each other isolate holds. */
const UNITS = 10
const ISOLATES = [1, 10, 100, 1000]

export async function inFlight(bed: TestBed): Promise<Findings> {
  const rows: Cell[][] = []
  const rounds: Rounds[] = []
  for (const isolates of ISOLATES) {
    const callers = isolates >= 1000 ? 2 : isolates >= 100 ? 4 : 64
    const contenders = {
      own: sluiceHeldBy(isolates),
      theirs: sortedSetOf(isolates),
      callers,
      repeats: 1280 / callers,
    }
    const costs = await costsOf(bed, contenders)
    const { allowed, refused } = costs
    rounds.push(...roundsOf(`in flight in ${isolates} isolates`, 'sorted set', costs))
    rows.push([
      String(isolates),
      String((isolates - 1) * UNITS + 1),
      roundsSideBySide(allowed.own.time, allowed.theirs.time),
      roundsSideBySide(refused.own.time, refused.theirs.time),
      sideBySide(allowed.own.commands, allowed.theirs.commands),
      sideBySide(refused.own.commands, refused.theirs.commands),
      sideBySide(await bytesAfter(bed, contenders.own, 1), await bytesAfter(bed, contenders.theirs, 1)),
    ])
  }
  return {
    tables: [
      {
        title: 'In flight: one rule `concurrency`, by the number of isolates that hold units',
        head: [
          'isolates',
          'in flight',
          'µs in Redis, allowed',
          'µs in Redis, refused',
          'commands, allowed',
          'commands, refused',
          'bytes',
        ],
        rows,
      },
    ],
    rounds,
    notes: [
      'In flight: cells show "Sluice : a sorted set with a member for each request = ratio", measured as in "Per algorithm". Sluice keeps 24 ' +
        'bytes for each isolate, however many requests the isolate has in flight. From nine isolates on, it keeps 24 more bytes for the sum. An ' +
        'isolate reports freed units with its next message. The sorted set needs one more call when a request ends, which the figures do not ' +
        'include.',
    ],
  }
}

/** Sluice, while each isolate except the calling one holds ten units. */
function sluiceHeldBy(isolates: number): Make {
  return ({ store }, full): Contender<Identity> => {
    const others = (isolates - 1) * UNITS
    const limit = full ? others + 1 : 1e6
    const input = { name: 'measured', algorithm: 'concurrency', limit, ttl: TTL } as const
    const rule = compileLimitRule(input, ALL_ALGORITHMS)
    const filled = new Set<string>()
    return async ({ consumer }) => {
      const boundRule = {
        ...bound(rule, consumerStateKey(consumer)),
        holding: { holder: 'isolate0', epoch: 1, started: 0, ended: 0 },
      }
      if (!filled.has(consumer)) {
        filled.add(consumer)
        await fill({ store }, boundRule.sideKey!, isolates - 1)
      }
      const decision = toDecision(
        await evaluateInStore(store, { ruleSet: ruleSetOf([boundRule]), rules: [boundRule] }),
      )
      return decision.kind === 'allowed' ? 'allowed' : 'refused'
    }
  }
}

async function fill({ store }: Pick<Transport, 'store'>, key: string, count: number): Promise<void> {
  await atOnceAfterFirst(count, async number => {
    const i = number + 1
    const holder = `other${String(i).padStart(3, '0').slice(-3)}`
    const message: Message = {
      key,
      ttl: TTL_MS * 1e3,
      holding: { holder, epoch: 1, started: UNITS, ended: 0 },
    }
    await store.run([encodeSync(syncScript(), [message])])
  })
}

/** The first call may have to send the script. The others do not wait for each other, because they are not measured. */
async function atOnceAfterFirst(count: number, run: (i: number) => Promise<unknown>): Promise<void> {
  if (count > 0) await run(0)
  await Promise.all(Array.from({ length: Math.max(0, count - 1) }, (_, i) => run(i + 1)))
}

/** As if so many requests had been admitted. Single calls would take minutes for 10,000. */
const FILL = `for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[2], 'other-' .. i - 1) end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])`

function sortedSetOf(isolates: number): Make {
  const source = readFileSync(new URL('../published/concurrency.lua', import.meta.url), 'utf8')
  const sha1 = createHash('sha1').update(source).digest('hex')
  return ({ redis }, full): Contender<Identity> => {
    const others = (isolates - 1) * UNITS
    const limit = full ? others + 1 : 1e6
    const filled = new Set<string>()
    return async ({ consumer }) => {
      const key = `in-flight:${consumer}`
      const ask = async (name: string) => {
        const args = [limit, TTL_MS, name, Date.now()]
        const reply = await redis.evalsha(sha1, [key], args).catch(error => {
          if (!String(error).includes('NOSCRIPT')) throw error
          return redis.eval(source, [key], args)
        })
        return Number((reply as unknown[])[0]) === 1
      }
      if (!filled.has(consumer)) {
        filled.add(consumer)
        if (others > 0) await redis.eval(FILL, [key], [others, Date.now(), TTL_MS])
      }
      return (await ask('request')) ? 'allowed' : 'refused'
    }
  }
}
