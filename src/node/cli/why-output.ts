/** The table that `npx sluicegate why` shows below its sentence. Pure. */
import { formatAllowance } from '../../config/allowance.ts'
import type { Rule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { formatWait } from '../../config/duration.ts'
import { optionFor } from '../../ops/caller-identity.ts'
import { MINUTE_MS } from '../../ops/record-times.ts'
import { clock, time } from '../../ops/times.ts'
import { firstRefusalIn, type RecordedRefusals, type WhyFacts } from '../../ops/why.ts'
import { isUsual } from '../../ops/why-verdict.ts'
import { textOf } from './audit-output.ts'
import { alertCell, table } from './output.ts'

/** A table of the rules, and what else is known. Empty if no rule is reached. */
export function detailsOf(facts: WhyFacts): string {
  const { rules, refusals, otherMode, now, notAsked, consumer } = facts
  if (consumer?.others && refusals.length === 0 && !otherMode) return ''
  const others = refusals.filter(each => !rules.some(({ name }) => name === each.rule))
  const rows = [
    ...rules.map(({ name, rule, mode, cost, allowed, remaining, retryAfter, switch: own }) => {
      const mine = refusals.find(
        each => each.rule === name && (each.mode === 'enforce') === (mode === 'enforce'),
      )
      const would = cost === 1 ? '' : ` (cost ${cost})`
      return [
        name,
        `${mode}${own ? ' (switched)' : ''}${isUsual(rule) ? '' : ', on auth-failure'}`,
        formatAllowance(rule),
        allowed ? `yes${would}` : alertCell(`no${would}`),
        String(remaining),
        allowed ? '' : waitText(rule, retryAfter),
        ...refusedCells(mine, now),
      ]
    }),
    ...others.map(each => [each.rule, each.mode, '', '', '', '', ...refusedCells(each, now)]),
    ...(otherMode?.refusals ?? []).map(each => [
      ...[`${each.rule} (${otherMode!.mode})`, each.mode, '', '', '', ''],
      ...refusedCells(each, now),
    ]),
  ]
  const missing = [...notAsked].map(([name, parts]) => `${name} (add ${parts.map(optionFor).join(' ')})`)
  return [
    ...(rows.length > 0
      ? [
          table(
            ['RULE', 'MODE', 'LIMIT', 'ADMITS NOW', 'REMAINING', 'AGAIN', 'REFUSED IN 5 MIN', 'SINCE (UTC)'],
            rows,
          ),
        ]
      : []),
    ...(missing.length > 0
      ? [
          `Not asked, because they count by more: ${missing.join(', ')}. To ask them: npx sluicegate limits peek`,
        ]
      : []),
    ...changesText(facts),
  ].join('\n\n')
}

/** The changes, with the first refusal between them, where it was. */
function changesText({ changes = [], ...facts }: WhyFacts): string[] {
  if (changes.length === 0) return []
  const first = firstRefusalIn(facts)
  if (!first) return [['Last changes:', ...changes.map(textOf)].join('\n')]
  const place = changes.findIndex(({ at }) => at.getTime() < first.getTime() + MINUTE_MS)
  const lines = changes.map(textOf)
  lines.splice(place < 0 ? lines.length : place, 0, `${time(first)}     the first refusal`)
  return [['Changes around the first refusal, the newest first:', ...lines].join('\n')]
}

function refusedCells(own: RecordedRefusals | undefined, now: Date): string[] {
  if (!own) return ['', '']
  const { byMinute, since: start, last } = own.refused
  const count = sumOf(byMinute)
  return [String(count), count > 0 ? clock(start, now, '') : `until ${clock(last, now, '')}`]
}

const waitText = (rule: Rule, retryAfter: number) =>
  retryAfter < 0 ? 'never' : countsInFlight(rule) ? 'when one ends' : `in ${formatWait(retryAfter)}`

const sumOf = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0)
