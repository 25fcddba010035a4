/**
 * Measures what load shedding costs Redis: the classic decision of six limits alone, with a concurrency limit of the consumer, and with
 * the usage of the fleet. Also measures the report of a signal, which each isolate sends once a second.
 */

import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { countsInFlight } from '../../src/config/compile-rule.ts'
import { toDecision } from '../../src/limiter/decision.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import { encodeReport } from '../../src/script/signal.ts'
import { signalScript } from '../../src/script/signal-text.ts'
import { encodeSync } from '../../src/script/sync.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { addressStateKey, consumerStateKey, identityStateKey, sideKey } from '../../src/store/keys.ts'
import { bound } from '../../test/support/bound.ts'
import { eachOnce } from '../contenders.ts'
import { evaluateInStore } from '../evaluate.ts'
import { type Cell, counted, measured } from '../figures.ts'
import { type HotLoop, inHotLoop } from '../hot-loop.ts'
import { inRounds } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import type { Findings } from '../report.ts'
import { sixRules } from '../rules.ts'
import { type Identity, newIdentities, type TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const ROUNDS = 2
const CALLERS = 64
const TTL_US = 3600e6

const RULES = sixRules('admits all', 'as shipped')
const AT_ONCE: RuleInput = {
  name: 'at-once',
  by: 'consumer',
  algorithm: 'concurrency',
  limit: 1e5,
  ttl: '1h',
}
const SHEDDING: ConfigInput['shedding'] = {
  classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'reads' }],
  fleetUsage: { capacity: 1e6, ttl: '1h' },
}

interface Kind {
  what: string
  rules?: readonly RuleInput[]
  shedding?: ConfigInput['shedding']
  /** Other isolates that hold units of the fleet. */
  isolates?: number
}

const KINDS: readonly Kind[] = [
  { what: 'six limits' },
  { what: 'six limits, and concurrent requests of the consumer', rules: [...RULES, AT_ONCE] },
  { what: 'six limits, and fleet usage: 10 isolates', shedding: SHEDDING, isolates: 9 },
  { what: 'six limits, and fleet usage: 100 isolates', shedding: SHEDDING, isolates: 99 },
  { what: 'six limits, and fleet usage: 1,000 isolates', shedding: SHEDDING, isolates: 999 },
]
const REPORT = 'the report of a signal, which each isolate sends once a second'

type Make = HotLoop<Identity>['make']

export async function shedding(bed: TestBed): Promise<Findings> {
  const makes = new Map<string, Make>([
    ...KINDS.map(kind => [kind.what, decision(kind)] as const),
    [REPORT, report],
  ])
  const perDecision = (make: Make) => async () => {
    const time = await inHotLoop(bed, { make, callers: newIdentities(CALLERS), expected: 'allowed' })
    // All isolates of the fleet share one key, which the next kind must fill with its own isolates.
    await bed.redis.send(['FLUSHDB', 'SYNC'])
    return time
  }
  const tasks = [...makes].map(([what, make]) => [what, perDecision(make)] as const)
  const rounds: Record<string, number[]> = await inRounds(ROUNDS, Object.fromEntries(tasks))
  const alone = rounds[KINDS[0]!.what]!
  const rows: Cell[][] = []
  for (const [what, make] of makes) {
    const own = rounds[what]!
    const more = what === REPORT ? '' : measured(own.map((time, i) => time - alone[i]!))
    rows.push([what, measured(own), more, counted(await commandsFor(bed, make))])
  }
  return {
    tables: [
      {
        title: 'Load shedding: six limits with and without it',
        head: ['one call', 'µs in Redis', 'more than six limits, µs', 'commands'],
        rows,
      },
    ],
    rounds: [{ title: 'Load shedding, µs in Redis', columns: rounds }],
    notes: [
      'Load shedding: all requests are admitted while Redis is busy. Fleet usage counts each of these requests under two rules: one for the ' +
        'whole capacity, and one for the part that is not reserved for the first class. From 100 isolates on, an isolate holds units in ' +
        'advance. Most requests then need no decision about the fleet, and cost as much as six limits alone. The shedder by worker utilization ' +
        'and the adaptive limit cost nothing per request, only the report.',
    ],
  }
}

async function commandsFor(bed: TestBed, make: Make): Promise<number> {
  const contender = make(straightTo(bed.redis, []))
  const identities = newIdentities(10)
  await eachOnce(contender, identities, 'allowed')
  return (
    (await commandsOf(bed.redis, () => eachOnce(contender, identities, 'allowed'))).commands /
    identities.length
  )
}

function decision({ rules = RULES, shedding, isolates = 0 }: Kind): Make {
  const config = checkedConfig({
    origin: 'https://api.example.com',
    rules: [...rules],
    ...(shedding && { shedding }),
  })
  const globalKey = identityStateKey(undefined, [])
  const keyOf = (by: string | undefined, { consumer, address }: Identity) =>
    by === 'global' ? globalKey : by === 'consumer' ? consumerStateKey(consumer) : addressStateKey(address)
  return ({ store }) => {
    let isFilled = false
    return async identity => {
      if (!isFilled) {
        isFilled = true
        for (const { tag, isSystemLimit } of config.rules) {
          for (let i = 0; isSystemLimit && i < isolates; i++) {
            const holding = { holder: `other${String(i).padStart(3, '0')}`, epoch: 1, started: 10, ended: 0 }
            await store.run([
              encodeSync(syncScript(), [{ key: sideKey(globalKey, 'held', tag), ttl: TTL_US, holding }]),
            ])
          }
        }
      }
      const counted = config.rules.map(rule => ({
        ...bound(rule, keyOf(rule.by[0], identity)),
        ...(countsInFlight(rule) && {
          holding: { holder: 'isolate0', epoch: 1, started: 0, ended: 0 },
        }),
      }))
      const decided = toDecision(
        await evaluateInStore(store, { ruleSet: gatewayRuleSet(config), rules: counted }),
      )
      if (decided.kind === 'denied') return 'refused'
      if (decided.kind !== 'allowed' || decided.verdicts.length !== counted.length) {
        throw new Error(`Not all rules were evaluated: ${JSON.stringify(decided)}`)
      }
      return 'allowed'
    }
  }
}

const report: Make =
  ({ store }) =>
  async () => {
    await store.run([
      encodeReport(signalScript(), { signal: 'measured', windowMs: 1000, sums: [900, 1, 0, 0] }),
    ])
    return 'allowed'
  }
