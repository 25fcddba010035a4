/** How live switches are printed: those that were read from the store, and those that the API has replied with. */
import type { SwitchesDocument } from '../../ops/documents/switches.ts'
import { printable } from '../../ops/names.ts'
import { effectOf, type Switchable, type SwitchStatus } from '../../ops/switches.ts'
import { time, timeAhead } from '../../ops/times.ts'
import type { RuleSwitch, Switch } from '../../switches/switches.ts'
import { withDates } from './document-text.ts'
import { alert, table } from './output.ts'

type ShownRule = RuleSwitch & { rule: string; config: Switchable | null; status: SwitchStatus }

/** The document with its times as dates. */
const shownOf = (document: SwitchesDocument) =>
  withDates<{ kill: (Switch & { status: SwitchStatus }) | null; rules: ShownRule[] }>(document)

export function killSwitchText(document: SwitchesDocument): string {
  const { kill } = shownOf(document)
  if (!kill) return 'The kill switch is off: limits apply.'
  if (kill.status === 'over') return `The kill switch is off: limits apply. It was on ${signatureText(kill)}.`
  return `The kill switch is ${alert('ON')}: no limit applies. ${capitalized(signatureText(kill))}.`
}

const STATUSES: Record<SwitchStatus, string> = {
  applies: 'applies',
  over: 'ended',
  'rule-gone': 'no effect: the config has no such rule',
}

export function switchTable(document: SwitchesDocument): string {
  const { rules } = shownOf(document)
  if (rules.length === 0) return 'No rule is switched.'
  const rows = rules.map(({ rule, config, status, ...each }) => [
    rule,
    effectOf(each),
    config ? effectOf(config) : '',
    `${time(each.at)}, ${each.by}`,
    each.until ? timeAhead(each.until) : 'no end',
    STATUSES[status] ?? status,
    each.reason ?? '',
  ])
  return table(
    ['RULE', 'SWITCHED TO', 'IN THE CONFIG', 'SINCE (UTC), BY', 'UNTIL (UTC)', 'STATUS', 'REASON'],
    rows,
  )
}

/** The switch of one rule, after a change. */
export function ruleSwitchText(document: SwitchesDocument, name: string): string {
  const found = shownOf(document).rules.find(({ rule }) => rule === name)
  if (!found) return `Rule '${name}' follows the config.`
  return `Rule '${name}' is switched to ${effectOf(found)}, ${signatureText(found)}.`
}

/** Says, if a share was given, why it has no effect. */
export function noteOfShare(document: SwitchesDocument, name: string): string | undefined {
  const { mode, config } = shownOf(document).rules.find(({ rule }) => rule === name) ?? {}
  const now = mode ?? config?.mode
  if (now === undefined || now === 'enforce') return undefined
  return `Rule '${name}' is in mode ${now}: the share has no effect until the rule is enforced.`
}

export function signatureText({ at, by, until, reason }: Switch): string {
  const end = until ? `until ${timeAhead(until, ' UTC')}` : 'until it is switched back'
  return printable(`since ${time(at)} UTC by ${by}, ${end}${reason ? `: ${reason}` : ''}`)
}

const capitalized = (text: string) => text[0]!.toUpperCase() + text.slice(1)
