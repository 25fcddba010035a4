/**
 * One rule that counts what is in flight, by the number of isolates that hold something of it: what a decision costs Redis, beside
 * a sorted set with a member for each request in flight, as it is usually published.
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
import { runFleet } from '../../test/support/fleet.ts'
import { policyOf } from '../../test/support/policy.ts'
import type { Contender } from '../contenders.ts'
import { bytesAfter, costsOf, type Make, rawOf } from '../decision-costs.ts'
import { evaluated } from '../evaluated.ts'
import { median } from '../measure.ts'
import { type Findings, type RawTable, sideBySide } from '../report.ts'
import type { Identity, TestBed } from '../test-bed.ts'
import type { Transport } from '../transport.ts'

const TTL = '1h'
const TTL_MS = 3600e3
/** Of each other isolate. */
const UNITS = 10
const ISOLATES = [1, 10, 100, 1000]

/** Of a simulated fleet: requests that would be in flight without a limit, as a share of it. */
const LOADS = [0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.2]
const FLEET = { isolates: 200, limit: 2000, seconds: 12 }

export async function inFlight(bed: TestBed): Promise<Findings> {
  const rows: string[][] = []
  const raw: RawTable[] = []
  for (const isolates of ISOLATES) {
    const callers = isolates >= 100 ? 4 : 64
    const match = { own: ofIsolates(isolates), theirs: ofRequests(isolates), callers }
    const costs = await costsOf(bed, match)
    const { allowed, refused } = costs
    raw.push(...rawOf(`in flight in ${isolates} isolates`, 'sorted set', costs))
    rows.push([
      String(isolates),
      String((isolates - 1) * UNITS + 1),
      sideBySide(median(allowed.own.time), median(allowed.theirs.time), 1),
      sideBySide(median(refused.own.time), median(refused.theirs.time), 1),
      sideBySide(allowed.own.commands, allowed.theirs.commands),
      sideBySide(refused.own.commands, refused.theirs.commands),
      sideBySide(await bytesAfter(bed, match.own, 1), await bytesAfter(bed, match.theirs, 1)),
    ])
  }
  return {
    rows: [],
    tables: [
      {
        title: 'In flight: one rule `concurrency`, by the number of isolates that hold something',
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
      await inAdvance(),
    ],
    raw,
    notes: [
      `In advance: simulated on the model of the script, with ${FLEET.isolates} isolates, a limit of ${FLEET.limit}, and requests that ` +
        'take 1 s on average: "with units in advance : without". A call is a decision that reads and writes the key of the rule, or a ' +
        'message about it. Idle is what Redis counts and the origin does not have.',
      'In flight: "Sluice : a sorted set with a member for each request = ratio", measured as per algorithm. Sluice keeps 24 ' +
        'bytes for each isolate, whatever it has in flight, and from nine isolates on their sum; it says what is free again with the next ' +
        'message. The sorted set takes a call more for each request that ends, which is not in the figures.',
    ],
  }
}

/** What it saves to hold units in advance, and what it costs. */
async function inAdvance() {
  const rows: string[][] = []
  const percent = (share: number) => `${(100 * share).toFixed(1)} %`
  for (const load of LOADS) {
    const [advance, exact] = [
      await runFleet({ ...FLEET, load }),
      await runFleet({ ...FLEET, load, isExact: true }),
    ]
    const both = (of: (report: typeof exact) => string) => `${of(advance)} : ${of(exact)}`
    rows.push([
      percent(load),
      both(({ asked, messages, requests }) => ((asked + messages) / requests).toFixed(2)),
      both(({ alone, requests }) => (alone / requests).toFixed(2)),
      both(({ utilization }) => percent(utilization)),
      both(({ idle }) => percent(idle)),
      both(({ refused, requests }) => percent(refused / requests)),
    ])
  }
  return {
    title: 'In flight: units in advance, by the requests that there are',
    head: [
      'requests, of the limit',
      'calls about the rule per request',
      'HTTP requests for it alone',
      'in flight',
      'idle',
      'refused',
    ],
    rows,
  }
}

/** All isolates but the one that asks hold ten units each. */
function ofIsolates(isolates: number): Make {
  return ({ store }, full): Contender<Identity> => {
    const others = (isolates - 1) * UNITS
    const limit = full ? others + 1 : 1e6
    const input = { name: 'measured', algorithm: 'concurrency', limit, ttl: TTL } as const
    const rule = compileLimitRule(input, ALL_ALGORITHMS)
    const filled = new Set<string>()
    return async ({ consumer }) => {
      const asked = {
        ...bound(rule, consumerStateKey(consumer)),
        holding: { holder: 'isolate0', epoch: 1, started: 0, ended: 0 },
      }
      if (!filled.has(consumer)) {
        filled.add(consumer)
        await fill({ store }, asked.ownKey!, isolates - 1)
      }
      const decision = toDecision(await evaluated(store, { policy: policyOf([asked]), rules: [asked] }))
      return decision.kind === 'allowed' ? 'allowed' : 'refused'
    }
  }
}

async function fill({ store }: Pick<Transport, 'store'>, key: string, count: number): Promise<void> {
  for (let i = 1; i <= count; i++) {
    const holder = `other${String(i).padStart(3, '0').slice(-3)}`
    const message: Message = {
      key,
      ttl: TTL_MS * 1e3,
      holding: { holder, epoch: 1, started: UNITS, ended: 0 },
    }
    await store.run([encodeSync(syncScript(), [message])])
  }
}

function ofRequests(isolates: number): Make {
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
        for (let i = 0; i < others; i++) await ask(`other-${i}`)
      }
      return (await ask('request')) ? 'allowed' : 'refused'
    }
  }
}
