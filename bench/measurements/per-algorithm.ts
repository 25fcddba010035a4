/**
 * Measures what a decision with one rule costs Redis, for each algorithm and a caller without a credential. Compares it with the same
 * algorithm of @upstash/ratelimit or, if there is none, with the script that is usually published (bench/published).
 */
import { Ratelimit } from '@upstash/ratelimit'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { inCalls, inOneDecision } from '../anonymous.ts'
import { bytesAfter, costsOf, type Make, type Match, type Outcome, roundsOf } from '../decision-costs.ts'
import { type Cell, roundsSideBySide, sideBySide } from '../figures.ts'
import { published } from '../published/published.ts'
import { type Findings, type Rounds, type Row, roundsRow } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

/** A long period, so that no window ends during the measurement. */
const PERIOD = '1d'
const MILLISECONDS = 86400e3
const MANY = 1e6

interface Case extends Match {
  what: string
  against: string
  /** Number of decisions before the bytes are counted. */
  decisions: number
  /** Length of a window (ms), if the counterpart also keeps the window before. */
  lastWindow?: number
}

const WITH_TIME = 'gcra, both by the clock of Redis'

type Upstash = 'fixedWindow' | 'slidingWindow' | 'tokenBucket'

/** The limits admit all requests or, if `full`, one. */
const CASES: readonly Case[] = [
  {
    what: 'gcra',
    against: 'published GCRA',
    ...counting(limit => ({ ...ruleOf(limit), algorithm: 'gcra' })),
    theirs: ofPublished('gcra'),
  },
  {
    what: WITH_TIME,
    against: 'published GCRA with TIME',
    ...counting(limit => ({ ...ruleOf(limit), algorithm: 'gcra' })),
    theirs: ofPublished('gcra-with-time'),
  },
  {
    what: 'leaky-bucket',
    against: 'published meter',
    ...counting(limit => ({ ...ruleOf(limit), algorithm: 'leaky-bucket', queue: limit - 1 })),
    theirs: ofPublished('leaky-bucket'),
  },
  {
    what: 'token-bucket',
    against: '@upstash tokenBucket',
    ...counting(limit => ({ ...ruleOf(limit), algorithm: 'token-bucket' })),
    theirs: ofUpstash('tokenBucket'),
  },
  {
    what: 'fixed-window',
    against: '@upstash fixedWindow',
    ...counting(limit => ({ ...ruleOf(limit), algorithm: 'fixed-window' })),
    theirs: ofUpstash('fixedWindow'),
  },
  {
    what: 'sliding-window',
    against: '@upstash slidingWindow',
    ...counting(limit => ({ ...ruleOf(limit), algorithm: 'sliding-window' })),
    theirs: ofUpstash('slidingWindow'),
    lastWindow: MILLISECONDS,
  },
  // Each allowed decision adds an entry to the log, so the limit bounds the repeats.
  { what: 'sliding-log, up to 10 of 10', ...log(10, 1), callers: 128, repeats: 7 },
  { what: 'sliding-log, 970 to 992 of 1000', ...log(1000, 970), callers: 16 },
]

/** The most that a decision may take, as a multiple of the published script. */
const TARGETS: Readonly<Record<string, Partial<Record<Outcome, number>>>> = {
  gcra: { allowed: 1.1, refused: 1.15 },
  'sliding-log, up to 10 of 10': { refused: 1.6 },
  'sliding-log, 970 to 992 of 1000': { refused: 1.6 },
}

const WHY = `TIME is the gap of a single gcra rule: see the row "${WITH_TIME}". The published script takes the clock of its caller.`

const WHY_LOG =
  'a refusal of a log reads the time of Redis too, and the entries of the log in one string, which Lua has to hash.'

export async function perAlgorithm(bed: TestBed): Promise<Findings> {
  const rows: Cell[][] = []
  const targets: Row[] = []
  const rounds: Rounds[] = []
  for (const { what, against, decisions, lastWindow, ...match } of CASES) {
    const costs = await costsOf(bed, match)
    const { allowed, refused } = costs
    rounds.push(...roundsOf(what, against, costs))
    for (const [outcome, most] of Object.entries(TARGETS[what] ?? {})) {
      const { own, theirs } = costs[outcome as Outcome]
      targets.push(
        roundsRow(
          `Redis server time per decision, ${what}, ${outcome}, Redis busy`,
          [against, own.time, theirs.time],
          { unit: 'µs', most, why: what === 'gcra' ? WHY : WHY_LOG },
        ),
      )
    }
    rows.push([
      what,
      against,
      roundsSideBySide(allowed.own.time, allowed.theirs.time),
      roundsSideBySide(refused.own.time, refused.theirs.time),
      sideBySide(allowed.own.commands, allowed.theirs.commands),
      sideBySide(refused.own.commands, refused.theirs.commands),
      sideBySide(
        await bytesAfter(bed, match.own, decisions),
        await bytesAfter(bed, match.theirs, decisions, lastWindow),
      ),
    ])
  }
  return {
    rows: targets,
    tables: [
      {
        title: 'Per algorithm: one rule, one caller without a credential',
        head: [
          'rule',
          'against',
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
      'Per algorithm: cells show "Sluice : the other = ratio". Time is measured while Redis is busy, over a direct connection for both. ' +
        'Commands are those of a decision that is not the first in its window; for the first one, @upstash/ratelimit needs one more. ' +
        'Bytes are the MEMORY USAGE of all keys of a caller after 3 decisions, or of a full log. For the sliding window of ' +
        '@upstash/ratelimit, they include the key of the previous window.',
      'The others do less. Each call decides one limit, so a limit can be charged for a request that another limit refuses. The others use the ' +
        'clock of the caller (no TIME, one command fewer), so clients whose clocks differ get different limits. @upstash/ratelimit returns the ' +
        'time of the end of the window or of the next refill, but not the time at which a request of this cost would be admitted. It refills its bucket once a ' +
        'period instead of continuously, and its fixed window also counts refused requests. The published log returns no time. The published ' +
        'meter does not delay requests.',
      'The script is made for decisions about several rules. With a single rule, most of its time goes into steps that a decision needs once, ' +
        'however many rules it has: arguments, clock, state and reply. A log of more than 64 entries needs less memory ' +
        'than a sorted set, and its time does not grow with the limit.',
      `"${WITH_TIME}": a limit that several machines share needs one clock.`,
    ],
  }
}

/** The numbers that rules of every algorithm have. */
function ruleOf(limit: number) {
  return { name: 'measured', limit, period: PERIOD } as const
}

function counting(rule: (limit: number) => LimitRuleInput): { own: Make; decisions: number } {
  return {
    own: (transport, full) => inOneDecision(transport, [{ by: 'consumer', rule: rule(full ? 1 : MANY) }]),
    decisions: 3,
  }
}

function ofPublished(algorithm: 'gcra' | 'gcra-with-time' | 'leaky-bucket'): Make {
  return (transport, full) =>
    published(transport, algorithm, { limit: full ? 1 : MANY, period: MILLISECONDS })
}

function ofUpstash(algorithm: Upstash): Make {
  return (transport, full) => {
    const limit = full ? 1 : MANY
    const limiter = {
      fixedWindow: () => Ratelimit.fixedWindow(limit, PERIOD),
      slidingWindow: () => Ratelimit.slidingWindow(limit, PERIOD),
      tokenBucket: () => Ratelimit.tokenBucket(limit, PERIOD, limit),
    }[algorithm]()
    return inCalls(transport, [{ by: 'consumer', limiter }])
  }
}

/** A log. It is filled to its limit before refusals are measured. */
function log(limit: number, filled: number): Omit<Case, 'what'> {
  return {
    against: 'published sorted set',
    own: transport =>
      inOneDecision(transport, [{ by: 'consumer', rule: { ...ruleOf(limit), algorithm: 'sliding-log' } }]),
    theirs: transport => published(transport, 'sliding-log', { limit, period: MILLISECONDS }),
    before: { allowed: filled, refused: limit },
    decisions: limit,
  }
}
