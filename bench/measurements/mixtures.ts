/**
 * Compares one decision about many rules of several algorithms with as many calls of @upstash/ratelimit. Each call has the algorithm, the
 * limit and the period of one of the rules. The callers have no credential.
 */
import { Ratelimit } from '@upstash/ratelimit'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { type CountedBy, inCalls, inOneDecision } from '../anonymous.ts'
import { CALLS } from '../contenders.ts'
import {
  bytesAfter,
  type Costs,
  costsOf,
  type Match,
  OUTCOMES,
  type Pair,
  roundsOf,
} from '../decision-costs.ts'
import { type Cell, cell, measured, roundsSideBySide, sideBySide } from '../figures.ts'
import { countsRow, type Findings, type Rounds, type Row, roundsRow } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

const MANY = 1e6

/** Those that both sides have. */
const ALGORITHMS = ['fixed-window', 'sliding-window', 'token-bucket'] as const
/** Long periods, so that hardly any window ends during the measurement. */
const PERIODS = [
  { period: '1h', milliseconds: 3600e3 },
  { period: '6h', milliseconds: 6 * 3600e3 },
  { period: '1d', milliseconds: 24 * 3600e3 },
] as const

interface Mixture {
  rules: number
  identities: 1 | 2
}

const MIXTURES: readonly Mixture[] = [
  { rules: 1, identities: 1 },
  { rules: 3, identities: 1 },
  { rules: 6, identities: 1 },
  { rules: 6, identities: 2 },
  { rules: 16, identities: 1 },
  { rules: 16, identities: 2 },
]

export async function mixtures(bed: TestBed): Promise<Findings> {
  const lines: Cell[][] = []
  const rows: Row[] = []
  const rounds: Rounds[] = []
  for (const mixture of MIXTURES) {
    const { rules, identities } = mixture
    const what = `${rules} ${rules === 1 ? 'rule' : 'rules'}, ${identities === 1 ? 'one identity' : 'two identities'}`
    const match = matchOf(mixture)
    const costs = await costsOf(bed, match)
    rounds.push(...roundsOf(what, 'calls', costs))
    const bytes = { own: await bytesAfter(bed, match.own, 3), theirs: await theirBytes(bed, mixture) }
    lines.push([
      what,
      ...OUTCOMES.flatMap(outcome => cellsOf(costs[outcome], rules)),
      sideBySide(bytes.own, bytes.theirs),
    ])
    rows.push(...rowsWithTargets(mixture, what, costs, bytes))
  }
  return {
    rows,
    tables: [
      {
        title: 'Mixtures: many rules in one decision, against as many calls for the same algorithms',
        head: [
          'one decision',
          ...OUTCOMES.flatMap(outcome => [
            `µs in Redis, ${outcome}`,
            `µs per rule, ${outcome}`,
            `commands, ${outcome}`,
          ]),
          'bytes',
        ],
        rows: lines,
      },
    ],
    rounds,
    notes: [
      'Mixtures: the rules are fixed-window, sliding-window and token-bucket in turn, with periods of an hour, six hours and a day in turn, and ' +
        'so are the calls. Cells show "Sluice : calls = ratio", measured as in "Per algorithm". With two identities, the first half of the ' +
        'rules counts by consumer and the rest by address. Refused: every limit refuses. The bytes depend on the length of the keys; the keys ' +
        'of the calls are at most as long as in the first table.',
    ],
  }
}

function cellsOf({ own, theirs }: Pair<Costs>, rules: number): Cell[] {
  const perRule = (rounds: readonly number[]) => measured(rounds.map(time => time / rules))
  return [
    roundsSideBySide(own.time, theirs.time),
    cell`${perRule(own.time)} : ${perRule(theirs.time)}`,
    sideBySide(own.commands, theirs.commands),
  ]
}

/** The rows of the main table: the values that have a target. */
function rowsWithTargets(
  { rules, identities }: Mixture,
  what: string,
  costs: Awaited<ReturnType<typeof costsOf>>,
  bytes: Pair<number>,
): Row[] {
  const [mixture, calls] = [`several algorithms, ${what}`, `${rules} calls`]
  if (rules === 3)
    return [countsRow(`bytes in Redis, ${mixture}`, [calls, bytes.own, bytes.theirs], { unit: 'B' })]
  if (rules !== 6 || identities !== 2) return []
  return OUTCOMES.flatMap(outcome => {
    const { own, theirs } = costs[outcome]
    return [
      countsRow(
        `billed commands per decision, ${outcome}, ${mixture}`,
        [calls, own.commands, theirs.commands],
        { most: outcome === 'allowed' ? 5 : 3 },
      ),
      roundsRow(
        `Redis server time per decision, ${outcome}, Redis busy, ${mixture}`,
        [calls, own.time, theirs.time],
        { unit: 'µs', most: 0.5 },
      ),
    ]
  })
}

/** The limits admit all requests or, if `full`, one. */
function matchOf(mixture: Mixture): Match {
  return {
    own: (transport, full) => inOneDecision(transport, rulesOf(mixture, full ? 1 : MANY)),
    theirs: (transport, full) => inCalls(transport, callsOf(mixture, full ? 1 : MANY)),
    // Fewer repeats suffice, because sixteen calls for each caller keep Redis busy long enough.
    ...(mixture.rules > 6 && { repeats: 8 }),
  }
}

function rulesOf(mixture: Mixture, limit: number): CountedBy[] {
  return Array.from({ length: mixture.rules }, (_, i) => ({ by: byOf(mixture, i), rule: ruleOf(i, limit) }))
}

function ruleOf(i: number, limit: number): LimitRuleInput {
  const algorithm = ALGORITHMS[i % ALGORITHMS.length]!
  return { name: `rule-${i}`, algorithm, limit, period: periodOf(i).period }
}

/** Every algorithm gets every period. */
const periodOf = (i: number) => PERIODS[Math.floor(i / ALGORITHMS.length) % PERIODS.length]!

function callsOf(mixture: Mixture, limit: number) {
  return Array.from({ length: mixture.rules }, (_, i) => ({
    by: byOf(mixture, i),
    limiter: limiterOf(i, limit),
  }))
}

function limiterOf(i: number, limit: number) {
  const { period } = periodOf(i)
  const algorithm = ALGORITHMS[i % ALGORITHMS.length]!
  if (algorithm === 'token-bucket') return Ratelimit.tokenBucket(limit, period, limit)
  return Ratelimit[CALLS[algorithm]](limit, period)
}

function byOf({ rules, identities }: Mixture, i: number): CountedBy['by'] {
  return identities === 1 || i < rules / 2 ? 'consumer' : 'address'
}

/**
 * Measures each limiter by itself, because the lengths of their windows differ: sliding windows first with the clock set back by that length,
 * so that the previous window exists too.
 */
async function theirBytes(bed: TestBed, mixture: Mixture): Promise<number> {
  let bytes = 0
  for (let i = 0; i < mixture.rules; i++) {
    const call = { by: byOf(mixture, i), limiter: limiterOf(i, MANY) }
    const isSliding = ALGORITHMS[i % ALGORITHMS.length] === 'sliding-window'
    const lastWindow = isSliding ? periodOf(i).milliseconds : 0
    bytes += await bytesAfter(bed, transport => inCalls(transport, [call]), 3, lastWindow)
  }
  return bytes
}
