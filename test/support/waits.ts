/** Pauses between requests. A pause ends when the reply of a rule changes, just before or after that, or at any other instant. */
import * as fc from 'fast-check'
import type { Rule } from '../../src/config/compile.ts'
import type { Verdict } from '../../src/script/evaluation.ts'
import { nextWindow } from '../algorithms/windows.ts'

/** The standing of a rule after the latest request. */
export interface View {
  rule: Rule
  now: number
  resetAfter: number
  /** µs until the cost of the latest request fits. */
  retryAfter: number
}

/** µs. A window that starts with its first request ends when all is back. If none is open: a period, in which it could have passed. */
function untilWindowEnds({ rule, now, resetAfter }: View): number {
  if (rule.quota.startsWithRequest) return resetAfter || rule.period
  return nextWindow(rule, now) - now
}

/** Functions that compute a pause (µs). */
export const WAITS = {
  'not at all': () => 0,
  'a microsecond': () => 1,
  'until just before the window ends': view => untilWindowEnds(view) - 1,
  'until the window ends': untilWindowEnds,
  'until just after the window has ended': view => untilWindowEnds(view) + 1,
  'until just before it fits': ({ retryAfter }) => Math.max(0, retryAfter - 1),
  'until a step before it fits': ({ rule, retryAfter }) =>
    Math.max(0, retryAfter - (rule.quota.step ?? 1) + 1),
  'until it fits': ({ retryAfter }) => retryAfter,
  'until all is back': ({ resetAfter }) => resetAfter,
  'until a whole millisecond': ({ now }) => Math.ceil(now / 1e3) * 1e3 - now,
  'for three periods': ({ rule }) => 3 * rule.period,
  'a part of a unit': ({ rule }, part) => Math.floor(part * Math.ceil(rule.period / rule.limit)),
  'a part of the period': ({ rule }, part) => Math.floor(part * rule.period),
} satisfies Record<string, (view: View, part: number) => number>

export type Wait = keyof typeof WAITS

/** Microseconds, or a pause that depends on one of the rules. A negative number sets the clock back. */
export type Pause = number | { wait: Wait; of: number; part?: number }

/** The index of a rule, modulo the number of rules. */
const of = fc.nat(5)

/** From 0 to 1. */
const part = fc.nat(1000).map(thousandths => thousandths / 1000)

const EVENTS: readonly Wait[] = [
  'until it fits',
  'until it fits',
  'until just before it fits',
  'until just before it fits',
  'until the window ends',
  'until just before the window ends',
  'until just after the window has ended',
  'until a whole millisecond',
  'until all is back',
  'for three periods',
]

/** Pauses of a clock that goes forward. */
export const pauses: fc.Arbitrary<Pause> = fc.oneof(
  { withCrossShrink: true },
  { weight: 3, arbitrary: fc.constantFrom<Pause>(0, 1) },
  { weight: 3, arbitrary: fc.record({ wait: fc.constantFrom(...EVENTS), of }) },
  { weight: 3, arbitrary: fc.record({ wait: fc.constant<Wait>('a part of a unit'), of, part }) },
)

/** Pauses of a clock that is sometimes set back, by two seconds at most. */
export const pausesToAndFro: fc.Arbitrary<Pause> = fc.oneof(
  { withCrossShrink: true },
  { weight: 49, arbitrary: pauses },
  { weight: 1, arbitrary: fc.integer({ min: -2e6, max: -1 }) },
)

/** The instant after a pause. @param verdicts those of the latest request */
export function after(
  pause: Pause,
  now: number,
  rules: readonly Rule[],
  verdicts: readonly Pick<Verdict, 'rule' | 'retryAfter' | 'resetAfter'>[],
): number {
  if (typeof pause === 'number') return now + pause
  const rule = rules[pause.of % rules.length]!
  const latest = verdicts.find(verdict => verdict.rule.tag === rule.tag)
  const { retryAfter = 0, resetAfter = 0 } = latest ?? {}
  const view: View = { rule, now, resetAfter, retryAfter: Math.max(0, retryAfter) }
  return now + WAITS[pause.wait](view, pause.part ?? 0)
}
