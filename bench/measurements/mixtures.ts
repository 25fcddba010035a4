/**
 * Compares one decision about many rules of several algorithms with as many calls of @upstash/ratelimit. Each call decides one sliding
 * window, with the limit and the period of one of the rules. The callers have no credential.
 */
import { Ratelimit } from '@upstash/ratelimit'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { type CountedBy, inCalls, inOneDecision } from '../anonymous.ts'
import { bytesAfter, type Costs, costsOf, type Match, OUTCOMES, type Pair, rawOf } from '../decision-costs.ts'
import { median } from '../measure.ts'
import { type Findings, type RawTable, type Row, sideBySide } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

const MANY = 1e6

const ALGORITHMS = ['gcra', 'fixed-window', 'sliding-window', 'token-bucket', 'leaky-bucket'] as const
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
  const lines: string[][] = []
  const rows: Row[] = []
  const raw: RawTable[] = []
  for (const mixture of MIXTURES) {
    const { rules, identities } = mixture
    const what = `${rules} ${rules === 1 ? 'rule' : 'rules'}, ${identities === 1 ? 'one identity' : 'two identities'}`
    const match = matchOf(mixture)
    const costs = await costsOf(bed, match)
    raw.push(...rawOf(what, 'slidingWindow calls', costs))
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
        title: 'Mixtures: many rules in one decision, against as many slidingWindow calls',
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
    raw,
    notes: [
      'Mixtures: the rules are gcra, fixed-window, sliding-window, token-bucket and leaky-bucket in turn, with periods of an hour, six hours ' +
        'and a day in turn. Cells show "Sluice : slidingWindow calls = ratio", measured as in "Per algorithm". With two identities, the first ' +
        'half of the rules counts by consumer and the rest by address. Refused: every limit refuses. The bytes depend on the length of the ' +
        'keys; the keys of the slidingWindow calls are at most as long as in the first table.',
    ],
  }
}

function cellsOf({ own, theirs }: Pair<Costs>, rules: number): string[] {
  const [ours, others] = [median(own.time), median(theirs.time)]
  return [
    sideBySide(ours, others, 1),
    `${(ours / rules).toFixed(1)} : ${(others / rules).toFixed(1)}`,
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
  const row = (measured: string, own: string, theirs: string, ratio: number): Row => ({
    what: `${measured}, several algorithms, ${what}`,
    sluice: own,
    comparison: `${rules} calls: ${theirs}`,
    ratio,
  })
  if (rules === 3) {
    const ratio = bytes.own / bytes.theirs
    const target = { text: '≤ 0.3×', isReached: ratio <= 0.3 }
    return [{ ...row('bytes in Redis', `${bytes.own} B`, `${bytes.theirs} B`, ratio), target }]
  }
  if (rules !== 6 || identities !== 2) return []
  return OUTCOMES.flatMap(outcome => {
    const { own, theirs } = costs[outcome]
    const most = outcome === 'allowed' ? 5 : 3
    const billed = row(
      `billed commands per decision, ${outcome}`,
      String(own.commands),
      String(theirs.commands),
      own.commands / theirs.commands,
    )
    const [ours, others] = [median(own.time), median(theirs.time)]
    const time = row(
      `Redis server time per decision, ${outcome}, Redis busy`,
      `${ours.toFixed(1)} µs`,
      `${others.toFixed(1)} µs`,
      ours / others,
    )
    return [
      { ...billed, target: { text: `≤ ${most}`, isReached: own.commands <= most } },
      { ...time, target: { text: '≤ 0.5×', isReached: ours / others <= 0.5 } },
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
  const numbers = { name: `rule-${i}`, limit, period: PERIODS[i % PERIODS.length]!.period }
  return algorithm === 'leaky-bucket'
    ? { ...numbers, algorithm, queue: limit - 1 }
    : { ...numbers, algorithm }
}

function callsOf(mixture: Mixture, limit: number) {
  return Array.from({ length: mixture.rules }, (_, i) => ({
    by: byOf(mixture, i),
    limiter: Ratelimit.slidingWindow(limit, PERIODS[i % PERIODS.length]!.period),
  }))
}

function byOf({ rules, identities }: Mixture, i: number): CountedBy['by'] {
  return identities === 1 || i < rules / 2 ? 'consumer' : 'address'
}

/**
 * Measures each limiter by itself, because the lengths of their windows differ: first with the clock set back by that length, so that
 * the previous window exists too.
 */
async function theirBytes(bed: TestBed, mixture: Mixture): Promise<number> {
  let bytes = 0
  for (let i = 0; i < mixture.rules; i++) {
    const { period, milliseconds } = PERIODS[i % PERIODS.length]!
    const call = { by: byOf(mixture, i), limiter: Ratelimit.slidingWindow(MANY, period) }
    bytes += await bytesAfter(bed, transport => inCalls(transport, [call]), 3, milliseconds)
  }
  return bytes
}
