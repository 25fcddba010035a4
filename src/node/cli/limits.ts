/** `npx sluicegate limits …`: shows what is left of limits, resets them, and corrects settlements. */
import { Command, InvalidArgumentError } from 'commander'
import { descriptionOf } from '../../algorithms/index.ts'
import { unitsAtOnce } from '../../algorithms/units-at-once.ts'
import { formatAllowance } from '../../config/allowance.ts'
import { didYouMean } from '../../config/check/did-you-mean.ts'
import type { Config, Rule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { FLEET_USAGE, isShared, WORKER_UTILIZATION } from '../../config/compile-shedding.ts'
import { formatWait, parseDuration } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { giving } from '../../ops/call-numbers.ts'
import { namesOf, optionFor, rulesByMore } from '../../ops/caller-identity.ts'
import {
  atOnceDocument,
  callerDocument,
  callerResetDocument,
  limitDocument,
  limitPauseDocument,
  limitResetDocument,
} from '../../ops/documents/limits.ts'
import { loadDocument } from '../../ops/documents/stats.ts'
import {
  notResetText,
  pauseLimit,
  peekCaller,
  peekLimit,
  planReset,
  type RuleStanding,
  resetCaller,
  resetLimit,
  rulesByOtherIdentities,
} from '../../ops/limits.ts'
import { parsePlan } from '../../ops/names.ts'
import { readLoad } from '../../ops/origin-load.ts'
import { time, timeWithSeconds } from '../../ops/times.ts'
import { acquireCommand, refundCommand, takeCommand } from './acquire.ts'
import {
  addAuthorOptions,
  addStoreAndConfirmOptions,
  addStoreOptions,
  keySecretOf,
  mustConfirm,
  openStore,
  type StoreFlags,
} from './administration.ts'
import { correctCommand } from './corrections.ts'
import { withExamples } from './help.ts'
import { limitOverrideCommand, limitOverridesCommand } from './limit-overrides.ts'
import {
  addLimit,
  addNumbers,
  addTarget,
  callerText,
  identityText,
  parseCaller,
  parseTarget,
  type TargetFlags,
} from './limit-target.ts'
import { type ConfigLoader, loadConfig } from './load-config.ts'
import { loadTexts } from './load-output.ts'
import { alert, alertCell, type Cell, print, table } from './output.ts'
import { USAGE_HEADINGS, usageCells } from './usage-output.ts'

interface Flags extends StoreFlags, TargetFlags {
  rule?: string
  yes?: boolean
}

export function limitsCommand(load: ConfigLoader = loadConfig): Command {
  return new Command('limits')
    .summary('show, use, pause, override, reset and correct limits')
    .description(
      'Show what is left of the limits by name and of the gateway rules, reset, pause and override them, run commands under them, and correct settlements.',
    )
    .addCommand(
      withExamples(
        addNumbers(addTarget(addStoreOptions(new Command('peek'))))
          .summary('show what is left')
          .description(
            'Show what is left of a limit by name, of the rules for a consumer or an address, or of the origin (fleet-usage or worker-utilization). Spends nothing.',
          )
          .option(
            '--plan <name>',
            "plan whose limits are shown (default: the plan of the consumer's keys, else of the consumer)",
          )
          .action(peek.bind(null, load)),
        'limits peek --consumer acme',
        'limits peek --consumer acme --by header:x-tenant=a',
        'limits peek --consumer acme --mode test',
        'limits peek zendesk --by account=42',
        'limits peek tenant --by tenant=42 --numbers quota=300/1m',
        'limits peek fleet-usage',
      ),
    )
    .addCommand(
      withExamples(
        addAuthorOptions(addNumbers(addTarget(addStoreAndConfirmOptions(new Command('reset')))), 'as')
          .summary('reset what was spent')
          .description(
            'Reset a limit by name, or the rules for a consumer or an address: everything is available again.',
          )
          .option('--rule <name>', 'reset only this rule of the limit')
          .action(reset.bind(null, load)),
        'limits reset --address 192.0.2.7',
        'limits reset zendesk --by account=42 --rule account-day',
      ),
    )
    .addCommand(
      withExamples(
        addAuthorOptions(addLimit(addStoreOptions(new Command('pause'))), 'as')
          .summary('refuse all calls of a limit until a time')
          .description(
            'Refuse all calls of a limit by name until a time, whatever its rules have left. Never ends a longer pause.',
          )
          .requiredOption(
            '--for <duration>',
            'how long, such as 30s or 2h; at most longestPause of the config (24h)',
            parsePause,
          )
          .action(pause.bind(null, load)),
        'limits pause zendesk --by account=42 --for 30s',
      ),
    )
    .addCommand(
      withExamples(
        addAuthorOptions(addLimit(addStoreOptions(new Command('resume'))), 'as')
          .summary('end a pause')
          .description('End the pause of a limit by name.')
          .action(resume.bind(null, load)),
        'limits resume zendesk --by account=42',
      ),
    )
    .addCommand(limitOverrideCommand(load))
    .addCommand(limitOverridesCommand(load))
    .addCommand(acquireCommand(load))
    .addCommand(takeCommand(load))
    .addCommand(refundCommand(load))
    .addCommand(correctCommand(load))
}

async function pause(load: ConfigLoader, limit: string, flags: Flags & { for: number }): Promise<void> {
  const { by = {} } = flags
  const { store, config } = await openStore(flags, load, keySecretOf(process.env))
  const until = await pauseLimit(store, config, limit, by, flags.for)
  print(flags, limitPauseDocument(limit, by, until), () => pauseText(limit, by, until))
}

async function resume(load: ConfigLoader, limit: string, flags: Flags): Promise<void> {
  const { by = {} } = flags
  const { store, config } = await openStore(flags, load, keySecretOf(process.env))
  const until = await pauseLimit(store, config, limit, by, 0)
  print(flags, limitPauseDocument(limit, by, until), () => pauseText(limit, by, until))
}

/** The state after `pause` or `resume`. */
export const pauseText = (
  limit: string,
  by: Readonly<Record<string, string>>,
  until: Date | undefined,
): string =>
  `Limit '${limit}'${identityText(by)} is ${until ? `paused until ${timeWithSeconds(until)} UTC` : 'not paused'}.`

function parsePause(text: string): number {
  const microseconds = parseDuration(text)
  if (!microseconds) throw new InvalidArgumentError('Use a duration, such as 30s, 5m or 2h.')
  return microseconds / 1e3
}

async function peek(load: ConfigLoader, limit: string | undefined, flags: Flags): Promise<void> {
  const target = parseTarget(limit, flags)
  const { store, config } = await openStore(flags, load, keySecretOf(process.env))
  if (target.kind === 'limit' && isShedder(target.name, config)) {
    if (flags.by)
      throw new AdminError('usage', `'${target.name}' counts all callers together. Leave --by out.`)
    return await peekShedder(store, config, flags)
  }
  if (target.kind === 'limit') {
    const standings = await peekLimit(
      store,
      config,
      target.name,
      flags.by ?? {},
      giving(target.name, flags.numbers),
    )
    return print(flags, limitDocument(target.name, flags.by ?? {}, standings), () =>
      [
        ...noteOfPause(standings),
        standingTable(standings),
        ...usageTable(standings),
        ...noteOfQueue(standings),
        ...noteOfHeld(standings),
      ].join('\n'),
    )
  }
  const plan = flags.plan === undefined ? undefined : parsePlan(flags.plan, config.plans)
  const counted = await parseCaller(flags)
  const parts = Object.keys(counted)
  const found = await peekCaller(store, config, counted, plan)
  const { standings, off, blockedAt, plansOfKeys, otherConsumers } = found
  const notShown = rulesByMore(config, parts)
  const by = namesOf(parts)
  print(flags, callerDocument(counted, found, notShown.keys()), () => {
    if (blockedAt)
      return `Consumer '${counted.consumer}' has been ${alert('blocked')} since ${time(blockedAt)} UTC: nothing is counted.`
    const lines = [standings.length > 0 ? standingTable(standings) : `No rule counts by ${by} alone.`]
    lines.push(...usageTable(standings))
    if (off.length > 0) lines.push(`Turned off by an override: ${off.map(({ name }) => name).join(', ')}.`)
    if (plansOfKeys.length > 0)
      lines.push(
        `These are the limits of plan '${found.plan}'. Keys of consumer '${counted.consumer}' have other plans: ${plansOfKeys.join(', ')}. To see those, use --plan.`,
      )
    if (otherConsumers) lines.push(noteOfUnknown(counted.consumer!, otherConsumers))
    lines.push(...noteOfQueue(standings), ...noteOfHeld(standings), ...noteOf(notShown, by))
    if (by === 'consumer') lines.push(...noteOfOthers(rulesByOtherIdentities(config)))
    return lines.join('\n')
  })
}

/**
 * Whether the name is that of a shedder. A limit by name comes first.
 * @throws AdminError if the config does not have the shedder
 */
function isShedder(name: string, { limits, shedding, rules }: Config): boolean {
  if (limits.has(name) || (name !== FLEET_USAGE && name !== WORKER_UTILIZATION)) return false
  const isUsed =
    name === FLEET_USAGE
      ? rules.some(({ match }) => match.fromRank !== undefined)
      : shedding?.workerUtilization !== undefined
  if (isUsed) return true
  const setting = name === FLEET_USAGE ? 'fleetUsage' : 'workerUtilization'
  throw new AdminError('not-found', `The config has no shedding.${setting}.`)
}

const OF_PROCESSES =
  'Worker utilization is not shown: each process sheds by its own signals, and stores none.'

/** Prints all load of the origin: a shedder alone says little. */
async function peekShedder(store: AdminStore, config: Config, flags: Flags): Promise<void> {
  const { workerUtilization } = config.shedding ?? {}
  if (workerUtilization && !isShared(workerUtilization)) process.stderr.write(`${OF_PROCESSES}\n`)
  const current = await readLoad(store, config)
  print(flags, loadDocument(current), () => loadTexts(current).join('\n\n'))
}

async function reset(load: ConfigLoader, limit: string | undefined, flags: Flags): Promise<void> {
  const target = parseTarget(limit, flags)
  const { store, config } = await openStore(flags, load, keySecretOf(process.env))
  if (target.kind === 'limit') {
    const { by = {}, rule, numbers } = flags
    const limit = `limit '${target.name}'${identityText(by)}`
    const what = rule ? `rule '${rule}' of ${limit}` : limit
    await mustConfirm(`Reset ${what}?`, flags)
    await resetLimit(store, config, target.name, by, rule, giving(target.name, numbers))
    const affected = config.limits.get(target.name)!.filter(({ name }) => rule === undefined || name === rule)
    return print(
      flags,
      limitResetDocument(target.name, by, rule),
      () => `Reset ${what}.${stillInFlight(affected)}`,
    )
  }
  if (flags.rule !== undefined)
    throw new AdminError(
      'usage',
      '--rule needs the name of a limit. Leave --rule out to reset all rules of the caller.',
    )
  const counted = await parseCaller(flags)
  const planned = await planReset(store, config, counted)
  const { rules, notReset } = planned
  const whose = callerText(counted)
  const affected = config.rules.filter(({ name }) => rules.includes(name))
  const what = allOf(rules)
  await mustConfirm(`Reset ${what} of ${whose}?`, flags)
  await resetCaller(store, config, counted)
  print(
    flags,
    callerResetDocument(counted, planned),
    () => `Reset ${what} of ${whose}.${stillInFlight(affected)}${notResetText(counted, notReset)}`,
  )
}

/** `a`, `a and b`, `a, b and c` */
function allOf(names: readonly string[]): string {
  return [names.slice(0, -1).join(', '), names.at(-1)].filter(Boolean).join(' and ')
}

function noteOf(rules: ReadonlyMap<string, readonly string[]>, by: string): string[] {
  if (rules.size === 0) return []
  const all = [...rules].map(([name, missing]) => `${name} (add ${missing.map(optionFor).join(' ')})`)
  return [`Not shown, because they count by more than the ${by}: ${all.join(', ')}.`]
}

function noteOfUnknown(consumer: string, others: readonly string[]): string {
  return `The store has no key and no setting of consumer '${consumer}'.${didYouMean(consumer, others)}`
}

/** `Other rules can refuse this consumer too: a, b (by address); c (by route).` */
function noteOfOthers(rules: ReadonlyMap<string, readonly string[]>): string[] {
  if (rules.size === 0) return []
  const groups = [...rules].map(([by, names]) => `${names.join(', ')} (by ${by})`).join('; ')
  const hint = [...rules.keys()].some(by => by.includes('address'))
    ? ' For rules by address, use --address.'
    : ''
  return [`Other rules can refuse this consumer too: ${groups}.${hint}`]
}

function noteOfPause([first]: readonly RuleStanding[]): string[] {
  const { pausedUntil } = first ?? {}
  if (!pausedUntil) return []
  return [
    `${alert('Paused')} until ${timeWithSeconds(pausedUntil)} UTC: all calls are refused, whatever the rules have left.`,
    '',
  ]
}

/** It is unknown how long a response will still take, so no time is shown for these rules. */
function noteOfHeld(standings: readonly RuleStanding[]): string[] {
  const held = standings.filter(({ rule, resetAfter }) => countsInFlight(rule) && resetAfter > 0)
  return held.map(
    ({ rule, resetAfter }) =>
      `${rule.name}: units are free again when their response ends, or within ${formatWait(resetAfter)} if their isolate has died.`,
  )
}

/** A reset ends no request. */
function stillInFlight(rules: readonly Rule[]): string {
  const held = new Map(rules.filter(countsInFlight).map(({ name, period }) => [name, formatWait(period)]))
  return [...held]
    .map(
      ([name, ttl]) =>
        ` Requests that are still in flight are counted by '${name}' again, within ${ttl} at the latest.`,
    )
    .join('')
}

function standingTable(standings: readonly RuleStanding[]): string {
  const rows = standings.map(({ rule, mode, allowed, remaining, resetAfter, retryAfter, cost }) => [
    rule.name,
    mode + (rule.on === 'auth-failure' ? ', on auth-failure' : ''),
    formatAllowance(rule) + atOnceText(rule),
    allowedCell(allowed, cost),
    String(remaining),
    resetAfter === 0 ? 'now' : countsInFlight(rule) ? 'when they end' : `in ${formatWait(resetAfter)}`,
    retryAfter < 0
      ? 'never'
      : retryAfter === 0
        ? ''
        : countsInFlight(rule)
          ? 'when one ends'
          : `in ${formatWait(retryAfter)}`,
  ])
  return table(['RULE', 'MODE', 'LIMIT', 'ALLOWED NOW', 'REMAINING', 'FULL AGAIN', 'RETRY'], rows)
}

/** A table of its own, so that the other rules need no such columns. */
function usageTable(standings: readonly RuleStanding[]): string[] {
  const rows = standings.flatMap(({ rule, usage }) =>
    usage ? [[rule.name, rule.unit, ...usageCells(usage)]] : [],
  )
  return rows.length > 0 ? ['', table(['RULE', 'UNIT', ...USAGE_HEADINGS], rows)] : []
}

function allowedCell(allowed: boolean, cost: number): Cell {
  const costText = cost === 1 ? '' : ` (cost ${cost})`
  return allowed ? `yes${costText}` : alertCell(`no${costText}`)
}

/** `, queue 100`. Empty if a rule admits at once what it admits in its period. */
function atOnceText(rule: RuleStanding['rule']): string {
  const atOnce = unitsAtOnce(descriptionOf(rule).numbers, rule.quota.burst)
  return !atOnce || atOnce.units === rule.limit ? '' : `, ${atOnce.parameter} ${atOnce.units}`
}

/** REMAINING of such a rule is one more than its queue. */
function noteOfQueue(standings: readonly RuleStanding[]): string[] {
  const names = standings.filter(({ rule }) => 'queue' in atOnceDocument(rule)).map(({ rule }) => rule.name)
  return names.length > 0
    ? [
        `REMAINING of ${allOf([...new Set(names)])}: one request that starts at once, and those that wait in the queue.`,
      ]
    : []
}
