/** Bounds for shares of the statistics, as in `degraded>0.1%`, for `npx sluicegate stats --fail-above`. Pure. */
import { didYouMean } from '../config/check/did-you-mean.ts'
import { CAUSES, OUTCOMES, PAUSED } from '../metrics/observation.ts'
import { AdminError } from './admin-error.ts'
import type { RuleCounts, Stats } from './stats.ts'

export interface Bound {
  /** As it was written. */
  text: string
  /** What is counted: an outcome, a cause, or `degraded` for any cause. Of a rule: `limited`, `shadow_limited` or `disagreed`. */
  word: string
  /** The largest share that is fine (%). */
  percent: number
}

/** A bound, compared with what was counted. */
export interface BoundCheck {
  bound: string
  /** What the share is a share of: `requests`, `calls of <limit>` or `rule <name>`. */
  of: string
  count: number
  sum: number
  isAbove: boolean
}

/** @throws AdminError `usage` */
export function parseBound(text: string): Bound {
  const [, word, number] = /^\s*([\w-]+)\s*>\s*(\d+(?:\.\d+)?)\s*%\s*$/.exec(text) ?? []
  if (word === undefined) {
    const fix = "Write a word, > and a percentage, as in 'degraded>0.1%'."
    throw new AdminError('usage', `--fail-above '${text}' is not a bound. ${fix}`)
  }
  const percent = Number(number)
  if (percent < 100) return { text, word, percent }
  throw new AdminError(
    'usage',
    `--fail-above '${text}': no share is above ${number}%. Use a percentage from 0% to less than 100%.`,
  )
}

const WORDS = [...Object.keys(OUTCOMES), 'degraded', PAUSED, ...Object.keys(CAUSES)]

/** The words for a rule: what is counted, and of which verdicts. */
const RULE_WORDS: Readonly<Record<string, (rule: RuleCounts) => [count: number, others: number]>> = {
  limited: ({ allowed, limited }) => [limited, allowed],
  shadow_limited: ({ shadowAllowed, shadowLimited }) => [shadowLimited, shadowAllowed],
  disagreed: ({ agreed, disagreed }) => [disagreed, agreed],
}

/**
 * Compares bounds with the shares of requests, and of the calls of each limit by name; with a rule, with those of its verdicts.
 * A share of nothing is not above.
 * @param bounds with words that exist (`checkWord`)
 * @param rule the rule that `stats` has only the counts of
 */
export function checkBounds(stats: Stats, bounds: readonly Bound[], rule?: string): BoundCheck[] {
  return bounds.flatMap(bound => {
    const rows = rule === undefined ? sharesOf(stats, bound.word) : [shareOfRule(stats, bound.word, rule)]
    return rows.map(row => ({
      ...{ bound: bound.text, ...row },
      isAbove: row.count * 100 > bound.percent * row.sum,
    }))
  })
}

/** @throws AdminError `usage` for a word that does not exist, or not for a rule */
export function checkWord({ text, word }: Bound, rule: string | undefined): void {
  const words = rule === undefined ? WORDS : Object.keys(RULE_WORDS)
  if (words.includes(word)) return
  const what = rule === undefined ? 'an outcome or a cause' : 'counted for a rule'
  throw new AdminError(
    'usage',
    `--fail-above '${text}': '${word}' is not ${what}.${didYouMean(word, words)} Use ${words.join(', ')}.`,
  )
}

type Share = Pick<BoundCheck, 'of' | 'count' | 'sum'>

function sharesOf({ requests, calls }: Stats, word: string): Share[] {
  const limits = [...new Set(calls.map(({ limit }) => limit))]
  const shares = limits.map(name =>
    shareOf(
      `calls of ${name}`,
      calls.filter(({ limit }) => limit === name),
      word,
    ),
  )
  // Without any call, the row of the requests says that there were none.
  return requests.length > 0 || calls.length === 0 ? [shareOf('requests', requests, word), ...shares] : shares
}

function shareOf(
  of: string,
  rows: readonly { outcome: string; cause: string; count: number }[],
  word: string,
): Share {
  const isCounted = ({ outcome, cause }: { outcome: string; cause: string }) =>
    outcome === word || cause === word || (word === 'degraded' && cause !== '-' && cause !== PAUSED)
  return { of, count: sumOf(rows.filter(isCounted)), sum: sumOf(rows) }
}

function shareOfRule({ rules }: Stats, word: string, rule: string): Share {
  const counts = rules.map(RULE_WORDS[word]!)
  const count = counts.reduce((sum, [count]) => sum + count, 0)
  return { of: `rule ${rule}`, count, sum: counts.reduce((sum, [, others]) => sum + others, count) }
}

const sumOf = (rows: readonly { count: number }[]) => rows.reduce((sum, { count }) => sum + count, 0)

/** `degraded>0.1%: 0.4 % of requests (14 of 3500)` */
export function formatCheck({ bound, of, count, sum }: BoundCheck): string {
  if (sum === 0) return `${bound}: there were no ${of === 'requests' ? of : `verdicts of ${of}`}`
  return `${bound}: ${Number(((100 * count) / sum).toPrecision(3))} % of ${of} (${count} of ${sum})`
}
