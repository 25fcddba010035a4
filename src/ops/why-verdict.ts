/** Why a caller is refused, or that it is not, in one sentence. Pure. */
import { formatAllowance } from '../config/allowance.ts'
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Config, Rule } from '../config/compile.ts'
import { appliesToPlan, countsInFlight } from '../config/compile-rule.ts'
import { formatWait } from '../config/duration.ts'
import type { Override } from '../store/records.ts'
import { blockText, isBlockedNow } from './blocks.ts'
import { printable } from './names.ts'
import { MINUTE_MS } from './record-times.ts'
import { effectOf } from './switches.ts'
import { clock } from './times.ts'
import type { RecordedRefusals, WhyFacts, WhyRule } from './why.ts'

/**
 * - `refused`: a request now would be refused.
 * - `partly`: rules have refused requests in the last minutes, and would admit one now.
 * - `admitted`: a request now would be admitted.
 * - `unknown`: the rules did not answer.
 */
export type WhyState = 'refused' | 'partly' | 'admitted' | 'unknown'

export interface Verdict {
  state: WhyState
  sentence: string
}

type Settings = Pick<Config, 'routes' | 'rules' | 'credentials' | 'hooks'>

/** Minutes in which a refusal counts as going on: this one and the one before. */
const CURRENT_MINUTES = 2

export function verdictOf(facts: WhyFacts, config: Settings): Verdict {
  const [state, reason] = reasonOf(facts, config)
  const parts = [`${facts.caller} ${reason}`, ...inOtherMode(facts), ...settingsOf(facts)]
  const { name = '', others = [] } = facts.consumer ?? {}
  // Names, reasons and errors come from the store.
  return { state, sentence: printable(`${parts.join('; ')}.${didYouMean(name, others)}`) }
}

function reasonOf(facts: WhyFacts, config: Settings): [WhyState, string] {
  const { key, consumer, listed, switches, now, peekError, rules } = facts
  if (key === null)
    return [
      'refused',
      'is refused with a 401: the store does not know this key; it never existed, has expired, or was revoked',
    ]
  if (listed === 'block.addresses') return ['refused', 'is refused with a 403: block.addresses has it']
  if (consumer && isBlockedNow(consumer.record))
    return ['refused', `is refused with a 403: blocked ${blockText(consumer.record, ' UTC')}`]
  if (consumer?.keys.length === 0 && !consumer.hasMoreKeys && needsKey(consumer.name, config)) {
    return ['refused', 'is refused with a 401: it has no valid key']
  }
  if (switches.kill) {
    const { at, by } = switches.kill
    return [
      'admitted',
      `is admitted: ${by} has turned the kill switch on ${since(at, now)}, so no rule limits anything`,
    ]
  }
  if (listed) return ['admitted', `is admitted: ${listed} has it, so no rule limits it`]
  if (peekError) return ['unknown', `may be refused or admitted: ${peekError.message.replace(/\.$/, '')}`]
  const paused = rules.filter(({ pausedUntil }) => pausedUntil)
  if (paused.length > 0) return ['refused', `is refused: ${pauseTexts(paused, now).join(', and ')}`]
  const refusing = rules.filter(({ mode, allowed, rule }) => mode === 'enforce' && !allowed && isUsual(rule))
  // A rule that a switch has made a shadow, or turned off, refuses no more.
  const isEnforced = (name: string) => (switches.rules.get(name)?.mode ?? 'enforce') === 'enforce'
  const current = facts.refusals.filter(
    ({ rule, mode, refused }) => mode === 'enforce' && isCurrent(refused) && isEnforced(rule),
  )
  const never = refusing.filter(({ retryAfter }) => retryAfter < 0)
  if (never.length > 0) return ['refused', `is always refused by ${never.map(neverText).join(' and by ')}`]
  if (refusing.length > 0) {
    const wait = Math.max(...refusing.map(({ retryAfter }) => retryAfter))
    const isHeld = refusing.every(({ rule }) => countsInFlight(rule))
    const again = isHeld ? 'when one of its requests ends' : `in ${formatWait(wait)}`
    const by = refusing.map(rule => refusingText(rule, facts)).join(' and by ')
    const others = current.filter(({ rule }) => refusing.every(({ name }) => name !== rule))
    const also = others.map(each => `; \`${each.rule}\` has refused ${timesText(each)}`)
    return ['refused', `is refused by ${by}; admitted again ${again}${also.join('')}`]
  }
  const asked = current.filter(({ rule }) => rules.some(({ name }) => name === rule))
  if (current.length > 0 && asked.length === current.length && isSettled(facts, current)) {
    const last = new Date(Math.max(...current.map(({ refused }) => refused.last.getTime())))
    const by = current.map(({ rule }) => `\`${rule}\``).join(' and by ')
    return ['admitted', `was refused by ${by} until ${clock(last, now)}; admitted now`]
  }
  if (current.length > 0) {
    const by = current.map(({ rule, refused }) => {
      const own = rules.find(({ name }) => name === rule)
      const inConfig = config.rules.find(each => each.name === rule && appliesToPlan(each, facts.plan))
      const allowance: (RuleMode & { rule: Rule }) | undefined =
        own ?? (inConfig && { rule: inConfig, mode: inConfig.mode })
      const what = allowance ? ` (${formatAllowance(allowance.rule)}${switchedText(allowance, now)})` : ''
      return `\`${rule}\`${what} ${since(refused.since, now)}: ${timesText({ refused })}`
    })
    const others = current.filter(({ rule }) => rules.every(({ name }) => name !== rule))
    const next =
      others.length === 0
        ? `one more request now would be admitted${unitsLeftText(facts, current)}`
        : `${others.map(({ rule }) => `\`${rule}\``).join(' and ')} ${others.length === 1 ? 'was' : 'were'} not asked, so nothing says whether one more request now would be admitted`
    return ['partly', `is refused by ${by.join(', and by ')}; ${next}`]
  }
  const admitted = facts.kind === 'address' ? 'is refused by no rule by address' : 'is admitted'
  return ['admitted', `${admitted}${alwaysRefusedRoutes(facts, config)}; ${lastRefused(facts)}`]
}

/**
 * Whether something about the caller was changed in the minute of its last refusal, or later: the rules admit it again because of that. Not if
 * the refusals began in that minute, too: then the change can be their cause.
 */
function isSettled(facts: WhyFacts, current: readonly RecordedRefusals[]): boolean {
  const last = Math.max(...current.map(({ refused }) => refused.last.getTime()))
  const first = Math.min(...current.map(({ refused }) => refused.since.getTime()))
  const changes = (facts.changes ?? []).filter(({ action }) => !NEW_KEYS.includes(action))
  return [...settingsIn(facts), ...changes].some(
    ({ at }) => at.getTime() >= Math.max(last, first + MINUTE_MS),
  )
}

const NEW_KEYS: readonly string[] = ['keys.create', 'keys.import']

/** ` if it costs no more than the 300 tokens that are left of \`day\``. What the refused requests cost is not on record. */
function unitsLeftText({ rules }: WhyFacts, current: readonly RecordedRefusals[]): string {
  const counted = rules.filter(
    ({ name, rule }) => rule.unitSuffix !== undefined && current.some(({ rule }) => rule === name),
  )
  const left = counted.map(
    ({ name, rule, remaining }) => `${remaining}${rule.unitSuffix} that are left of \`${name}\``,
  )
  return left.length > 0 ? ` if it costs no more than the ${left.join(' and the ')}` : ''
}

/** `zendesk is paused until 13:58 UTC` */
const pauseTexts = (rules: readonly WhyRule[], now: Date): string[] => [
  ...new Set(
    rules.map(
      ({ name, pausedUntil }) => `\`${name.split('/')[0]}\` is paused until ${clock(pausedUntil!, now)}`,
    ),
  ),
]

const timesText = ({ refused: { byMinute } }: Pick<RecordedRefusals, 'refused'>) =>
  `${sumOf(byMinute)} ${sumOf(byMinute) === 1 ? 'request' : 'requests'} in the last 5 minutes`

/** A rule on bad credentials does not limit a caller with a good one. */
export const isUsual = ({ on }: Rule) => on === 'request'

const isCurrent = ({ byMinute }: RecordedRefusals['refused']) => sumOf(byMinute.slice(0, CURRENT_MINUTES)) > 0

/** Whether the consumer can only come with a key that the store has. */
const needsKey = (name: string, { credentials, hooks }: Settings) =>
  !name.includes('~') &&
  ![...credentials.jwt.values()].some(({ sharesConsumers }) => sharesConsumers) &&
  !hooks?.identify

function neverText({ name, rule, cost }: WhyRule): string {
  return `\`${name}\` (${formatAllowance(rule)}): a request costs ${cost}, and it admits at most ${rule.quota.burst} at once`
}

function refusingText(rule: WhyRule, { refusals, now, refusalsSince }: WhyFacts): string {
  const own = refusals.find(each => each.rule === rule.name && each.mode === 'enforce')
  const when = own
    ? since(own.refused.since, now)
    : refusalsSince
      ? 'since a time that is not on record (counters arrive within about 10 s, and only those of the most refused callers)'
      : 'since a time that is not on record (stats.topCallers does not keep such callers)'
  return `\`${rule.name}\` (${formatAllowance(rule.rule)}${switchedText(rule, now)}) ${when}`
}

interface RuleMode {
  mode: Rule['mode']
  switch?: WhyRule['switch']
}

/** `, enforced by a switch of ops since 13:58 UTC` */
function switchedText({ switch: own, mode }: RuleMode, now: Date): string {
  if (!own) return ''
  return `, ${mode === 'enforce' ? 'enforced' : 'a shadow'} by a switch of ${own.by} ${since(own.at, now)}`
}

function lastRefused({ refusals, refusalsSince, now }: WhyFacts): string {
  const [last] = lastFirst(refusals)
  if (last) return `last refused by \`${last.rule}\` at ${clock(last.refused.last, now)}`
  return refusalsSince
    ? `no refusal is on record since ${clock(refusalsSince, now)}`
    : 'whether it was refused before is not on record'
}

/** `its test requests were last refused by …` */
function inOtherMode({ otherMode, now }: WhyFacts): string[] {
  const [last] = lastFirst(otherMode?.refusals ?? [])
  if (!otherMode || !last) return []
  const when = isCurrent(last.refused)
    ? `are refused by \`${last.rule}\` ${since(last.refused.since, now)}: ${timesText(last)}`
    : `were last refused by \`${last.rule}\` at ${clock(last.refused.last, now)}`
  return [`its ${otherMode.mode} requests ${when}`]
}

/** The refusals by enforced rules. */
const lastFirst = (refusals: readonly RecordedRefusals[]) =>
  refusals
    .filter(({ mode }) => mode === 'enforce')
    .sort((a, b) => b.refused.last.getTime() - a.refused.last.getTime())

/** ` except on route reports, whose requests cost 20 …` */
function alwaysRefusedRoutes({ rules }: WhyFacts, { routes }: Settings): string {
  const all = rules.flatMap(({ name, rule, cost, mode }) => {
    if (mode !== 'enforce' || !isUsual(rule)) return []
    const reached = routes.filter(route => route.isLimited && (rule.match.routes?.has(route.name) ?? true))
    const tooMuch = reached.filter(route => cost * route.cost > rule.quota.burst)
    return tooMuch.map(
      route =>
        `route ${route.name}, where a request costs ${cost * route.cost} and \`${name}\` admits at most ${rule.quota.burst} at once`,
    )
  })
  return all.length > 0 ? `, but never on ${all.join(', nor on ')}` : ''
}

/** `plan free`, `override of minute: limit 1000`, `newest setting from …` */
function settingsOf(facts: WhyFacts): string[] {
  const { consumer, plan, now, switched } = facts
  const switches = [...switched].flatMap(([name, own]) => {
    const effect = own.mode === 'enforce' && own.share === undefined ? '' : effectOf(own)
    return effect ? [`\`${name}\` is switched to ${effect} by ${own.by} ${since(own.at, now)}`] : []
  })
  const off = facts.off.length > 0 ? [`turned off by an override: ${facts.off.join(', ')}`] : []
  if (!consumer || consumer.others) {
    const isUnknown = consumer && facts.key !== null ? ['the store has no key and no setting of it'] : []
    return [...isUnknown, ...switches, ...changed(facts)]
  }
  const overrides = consumer.record.overrides.filter(({ until }) => !(until && until <= now.getTime() * 1e3))
  return [
    ...(plan ? [`plan ${plan}`] : []),
    ...(consumer.hasMoreKeys && !facts.key
      ? [`only ${consumer.keys.length} of its keys were looked at`]
      : []),
    `override ${overrides.map(overrideText).join(', ') || 'none'}`,
    ...off,
    ...switches,
    ...changed(facts),
  ]
}

function overrideText({ rule, numbers, mode }: Override): string {
  return `of \`${rule}\` (${[...(numbers ? [`limit ${numbers.limit}`] : []), ...(mode ? [mode] : [])].join(', ')})`
}

/** The newest of the settings. The removal of a setting and the change of a plan leave none: the audit trail has them. */
function changed(facts: WhyFacts): string[] {
  const { key, consumer } = facts
  // Of many keys, the last one may not have been looked at.
  const keys = key ? [key] : consumer?.hasMoreKeys ? [] : (consumer?.keys ?? [])
  const created = keys.map(({ createdAt }) => ({ at: createdAt, text: 'key created' }))
  const [last] = [...settingsIn(facts), ...created].sort((a, b) => b.at.getTime() - a.at.getTime())
  return last ? [`newest setting from ${clock(last.at, facts.now)} (${last.text})`] : []
}

/** When each of the settings was made. */
function settingsIn({ consumer, switched, switches }: WhyFacts): { at: Date; text: string }[] {
  const { record } = consumer ?? {}
  return [
    ...(record?.overrides ?? []).flatMap(({ at, by = '', rule }) =>
      at ? [{ at, text: `override of \`${rule}\`${by && ` by ${by}`}` }] : [],
    ),
    ...(record?.blockedAt ? [{ at: record.blockedAt, text: `block${byText(record.blockedBy)}` }] : []),
    ...[...switched].map(([name, { at, by }]) => ({ at, text: `switch of \`${name}\`${byText(by)}` })),
    ...(switches.kill ? [{ at: switches.kill.at, text: `kill switch${byText(switches.kill.by)}` }] : []),
  ]
}

const byText = (by: string | undefined) => (by ? ` by ${by}` : '')

const sumOf = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0)

const since = (at: Date, now: Date) => `since ${clock(at, now)}`
