/** What `npx sluicegate top` and `stats --top` show. Pure. */
import { UNNAMED } from '../../metrics/recorded-callers.ts'
import { effectOf } from '../../ops/switches.ts'
import { clock, time } from '../../ops/times.ts'
import type { Counted, Top, TopRule, Trend } from '../../ops/top.ts'
import type { RefusedCaller, RuleCallers, Spread } from '../../ops/top-callers.ts'
import { alert, alertCell, type Cell, table } from './output.ts'
import { share } from './stats-output.ts'
import { signatureText } from './switch-output.ts'

/** Rows of callers. */
const MOST_ROWS = 10

const TREND = 'LAST MINUTE'

/** The screen of `top`. */
export function topText(top: Top, environment?: string): string {
  const { at, storeMs, requests, calls, rules, switches } = top
  const where = environment === undefined ? '' : `, environment '${environment}'`
  const head = [
    `${at.toISOString().slice(11, 19)} UTC${where}. The last 5 minutes; Redis answered in ${Math.max(1, Math.round(storeMs))} ms.`,
    ...(switches.kill
      ? [`The kill switch is ${alert('ON')}: no limit applies, ${signatureText(switches.kill)}.`]
      : []),
    ...[...switches.rules].map(
      ([name, each]) => `Rule '${name}' is switched to ${effectOf(each)}, ${signatureText(each)}.`,
    ),
  ]
  const rows = [
    ...requests.map(each => ({ of: 'requests', ...each })),
    ...calls.map(({ limit, ...each }) => ({ of: limit, ...each })),
  ]
  if (rows.length === 0)
    return [...head, '', 'No request and no call was counted. Counters arrive about 10 s later.'].join('\n')
  const sumFor = (of: string) => rows.filter(row => row.of === of).reduce((sum, { count }) => sum + count, 0)
  const outcomes = rows.map(row => [
    row.of,
    row.outcome,
    row.cause === '-' ? '' : alertCell(row.cause),
    String(row.count),
    share(row.count, sumFor(row.of)),
    rate(row),
  ])
  const sections = [
    head.join('\n'),
    table(['OF', 'OUTCOME', 'CAUSE', 'COUNT', 'SHARE', TREND], outcomes),
    rules.length > 0 ? ruleTable(rules) : 'No rule has refused a request, and no shadow would have.',
  ]
  const callers = rules
    .flatMap(({ callers, ...rule }) => callers.map(caller => ({ rule, ...caller })))
    .sort((a, b) => b.count - a.count)
    .slice(0, MOST_ROWS)
  if (callers.length > 0)
    sections.push(
      table(
        ['CALLER', 'RULE', 'REFUSED', TREND, 'SINCE (UTC)'],
        callers.map(({ rule, since, ...caller }) => [
          nameOf(caller),
          ruleName(rule),
          String(caller.count),
          rate(caller),
          clock(since, at, ''),
        ]),
      ),
    )
  return sections.join('\n\n')
}

function ruleTable(rules: readonly TopRule[]): string {
  return table(
    ['RULE', 'REFUSED', 'SHARE', TREND, 'WHO'],
    rules.map(rule => [
      ruleName(rule),
      String(rule.count),
      share(rule.count, rule.sum),
      rate(rule),
      rule.spread === undefined ? '' : whoText(rule.spread, rule.callers[0]),
    ]),
  )
}

const ruleName = ({ rule, mode }: Pick<TopRule, 'rule' | 'mode'>) =>
  mode === 'shadow' ? `${rule} (shadow)` : rule

const TRENDS: Record<Trend, string> = {
  new: 'new',
  worse: 'getting worse',
  steady: 'steady',
  better: 'getting better',
  over: 'over',
}

/** `310 a minute, getting worse` */
function rate({ perMinute, trend }: Counted): Cell {
  if (trend === 'over') return TRENDS.over
  const text = `${Math.round(perMinute)} a minute, ${TRENDS[trend]}`
  return trend === 'worse' ? alertCell(text) : text
}

function whoText(spread: Spread, first: NamedCaller | undefined): string {
  return spread === 'one caller' && first ? `one caller: ${nameOf(first)}` : spread
}

type NamedCaller = Pick<RefusedCaller, 'name' | 'callerMode'>

const nameOf = ({ name, callerMode }: NamedCaller) =>
  name === UNNAMED ? '(no name is kept)' : callerMode ? `${name} (${callerMode})` : name

/** What `stats --top consumers` shows. */
export function topCallersText(
  rules: readonly RuleCallers[],
  { since, now }: { since: Date; now: Date },
  { shadow, rule }: { shadow?: boolean; rule?: string },
): string {
  const verb = shadow ? 'would have refused' : 'has refused'
  if (rules.length === 0)
    return `Since ${time(since)} UTC, the start of an hour, ${rule === undefined ? 'no rule' : `rule '${rule}'`} ${verb} a request.`
  const rows = rules.flatMap(({ rule, sum, spread, callers }) => {
    const shown = callers.filter(({ atLeast, atMost }) => 2 * atLeast >= atMost).slice(0, MOST_ROWS)
    const first = [rule, String(sum), spread]
    if (shown.length === 0) return [[...first, '(too many to name any)', '', '', '']]
    return shown.map((caller, i) => [
      ...(i === 0 ? first : ['', '', '']),
      nameOf(caller),
      caller.atLeast === caller.atMost ? String(caller.atLeast) : `${caller.atLeast} to ${caller.atMost}`,
      share(caller.atLeast, sum),
      `${clock(caller.since, now, '')} to ${clock(caller.last, now, '')}`,
    ])
  })
  return [
    `Since ${time(since)} UTC, the start of an hour:`,
    '',
    table(
      ['RULE', shadow ? 'WOULD REFUSE' : 'REFUSED', 'WHO', 'CALLER', 'COUNT', 'SHARE', 'LAST RUN (UTC)'],
      rows,
    ),
    '',
    'One caller: at least half of the refusals of the rule are its own. A run has no pause of more than 5 minutes.',
  ].join('\n')
}
