/** `npx sluicegate limits …`: shows what is left of limits, and resets them. */
import { Command } from 'commander'
import { descriptionOf } from '../../algorithms/index.ts'
import { unitsAtOnce } from '../../algorithms/plan-units.ts'
import { formatAllowance } from '../../config/allowance.ts'
import { didYouMean } from '../../config/check/did-you-mean.ts'
import type { Config, Rule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { FLEET_USAGE, WORKER_UTILIZATION } from '../../config/compile-shedding.ts'
import { formatWait } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { type CallerIdentity, countersOf, optionFor, rulesByMore } from '../../ops/caller-identity.ts'
import {
  peekCaller,
  peekLimit,
  type RuleStanding,
  resetCaller,
  resetLimit,
  rulesByOtherIdentities,
  rulesShown,
} from '../../ops/limits.ts'
import { parseConsumerName, parseMode, parsePlanName } from '../../ops/names.ts'
import { readLoad } from '../../ops/origin-load.ts'
import {
  addStoreAndConfirmOptions,
  addStoreOptions,
  mustConfirm,
  openStore,
  type StoreFlags,
} from './administration.ts'
import { parsePart } from './arguments.ts'
import { withExamples } from './help.ts'
import { type ConfigLoader, loadConfig } from './load-config.ts'
import { loadTexts } from './load-output.ts'
import { alert, alertCell, type Cell, print, table, time } from './output.ts'

interface Flags extends StoreFlags {
  by?: Record<string, string>
  rule?: string
  consumer?: string
  address?: string
  mode?: string
  plan?: string
  yes?: boolean
}

export function limitsCommand(load: ConfigLoader = loadConfig): Command {
  const of = (command: Command) =>
    command
      .argument('[limit]', 'name of a limit in the config')
      .option(
        '--by <part=value>',
        'value of a part, such as account=42 or header:x-tenant=a; once for each part',
        parsePart,
      )
      .option('--consumer <name>', 'consumer, for the gateway rules that count by it')
      .option('--address <address>', 'address, for the gateway rules that count by it')
      .option('--mode <mode>', 'mode of the caller: live or test (default: live)')
  return new Command('limits')
    .summary('show what is left of limits, and reset them')
    .description('Show what is left of the limits by name and of the gateway rules, and reset them.')
    .addCommand(
      withExamples(
        of(addStoreOptions(new Command('peek')))
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
        'limits peek fleet-usage',
      ),
    )
    .addCommand(
      withExamples(
        of(addStoreAndConfirmOptions(new Command('reset')))
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
}

async function peek(load: ConfigLoader, limit: string | undefined, flags: Flags): Promise<void> {
  const target = parseTarget(limit, flags)
  const { store, config } = await openStore(flags, load)
  if (target.kind === 'limit' && isShedder(target.name, config)) {
    if (flags.by)
      throw new AdminError('usage', `'${target.name}' counts all callers together. Leave --by out.`)
    return await peekShedder(store, config, flags)
  }
  if (target.kind === 'limit') {
    const standings = await peekLimit(store, config, target.name, flags.by ?? {})
    return print(flags, { limit: target.name, by: flags.by ?? {}, rules: standings.map(documentOf) }, () =>
      [standingTable(standings), ...noteOfQueue(standings), ...noteOfHeld(standings)].join('\n'),
    )
  }
  const plan = flags.plan === undefined ? undefined : parsePlanName(flags.plan, config.plans)
  const counted = await parseCaller(flags)
  const parts = Object.keys(counted)
  const {
    standings,
    off,
    blockedAt,
    plan: found,
    plansOfKeys,
    otherConsumers,
  } = await peekCaller(store, config, counted, plan)
  const notShown = rulesByMore(config, parts)
  const by = namesOf(parts)
  const document = {
    ...counted,
    plan: found ?? null,
    ...(counted.consumer !== undefined && { blockedAt: blockedAt ?? null, plansOfKeys }),
    rules: standings.map(documentOf),
    off: off.map(({ name }) => name),
    notShown: [...notShown.keys()],
    ...(counted.consumer !== undefined && { isKnown: !otherConsumers }),
  }
  print(flags, document, () => {
    if (blockedAt)
      return `Consumer '${counted.consumer}' has been ${alert('blocked')} since ${time(blockedAt)} UTC: nothing is counted.`
    const lines = [standings.length > 0 ? standingTable(standings) : `No rule counts by ${by} alone.`]
    if (off.length > 0) lines.push(`Turned off by an override: ${off.map(({ name }) => name).join(', ')}.`)
    if (plansOfKeys.length > 0)
      lines.push(
        `These are the limits of plan '${found}'. Keys of consumer '${counted.consumer}' have other plans: ${plansOfKeys.join(', ')}. To see those, use --plan.`,
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

/** Prints all load of the origin: a shedder alone says little. */
async function peekShedder(store: AdminStore, config: Config, flags: Flags): Promise<void> {
  const current = await readLoad(store, config)
  print(flags, current, () => loadTexts(current).join('\n\n'))
}

async function reset(load: ConfigLoader, limit: string | undefined, flags: Flags): Promise<void> {
  const target = parseTarget(limit, flags)
  const { store, config } = await openStore(flags, load)
  if (target.kind === 'limit') {
    const { by = {}, rule } = flags
    const whose = Object.entries(by)
      .map(([name, value]) => `${name}=${value}`)
      .join(' ')
    const of = whose ? ` of ${whose}` : ''
    const what = rule ? `rule '${rule}' of limit '${target.name}'${of}` : `limit '${target.name}'${of}`
    await mustConfirm(`Reset ${what}?`, flags)
    await resetLimit(store, config, target.name, by, rule)
    const affected = config.limits.get(target.name)!.filter(({ name }) => rule === undefined || name === rule)
    return print(
      flags,
      { limit: target.name, by, ...(rule && { rule }), reset: true },
      () => `Reset ${what}.${stillInFlight(affected)}`,
    )
  }
  if (flags.rule !== undefined)
    throw new AdminError(
      'usage',
      '--rule needs the name of a limit. Leave --rule out to reset all rules of the caller.',
    )
  const counted = await parseCaller(flags)
  const by = namesOf(Object.keys(counted))
  const whose = Object.entries(counted)
    .map(([part, value]) => `${part} '${value}'`)
    .join(', ')
  const rules = rulesShown(config, Object.keys(counted), counted.mode)
  const affected = config.rules.filter(({ name }) => rules.includes(name))
  const others = [...rulesByMore(config, Object.keys(counted)).keys()]
  const rest =
    others.length > 0 ? ` Not reset, because they count by more than the ${by}: ${others.join(', ')}.` : ''
  if (rules.length === 0) {
    await countersOf(store, config, counted)
    throw new AdminError('refused', `No rule counts by ${by} alone.${rest}`)
  }
  const what = allOf(rules)
  await mustConfirm(`Reset ${what} of ${whose}?`, flags)
  await resetCaller(store, config, counted)
  print(
    flags,
    { ...counted, reset: true, rules, notReset: others },
    () => `Reset ${what} of ${whose}.${stillInFlight(affected)}${rest}`,
  )
}

type Target = { kind: 'limit'; name: string } | { kind: 'caller' }

function parseTarget(limit: string | undefined, { consumer, address, mode, by, plan }: Flags): Target {
  const hasCaller = [consumer, address, mode].some(value => value !== undefined)
  if (limit === undefined ? !hasCaller && !by : hasCaller)
    throw new AdminError(
      'usage',
      'Use either the name of a limit, or a caller: --consumer, --address, --mode, or the parts of its identity with --by.',
    )
  if (limit === undefined) return { kind: 'caller' }
  if (plan !== undefined)
    throw new AdminError('usage', '--plan cannot be used with a limit by name. Leave it out.')
  return { kind: 'limit', name: limit }
}

/** The parts of an identity, in words. Every caller has a mode, so it is only named if there is nothing else. */
const namesOf = (parts: readonly string[]) =>
  (parts.length > 1 ? parts.filter(part => part !== 'mode') : parts).join(' and ')

/** `--consumer`, `--address` and `--mode` are short for `--by consumer=…`, `--by address=…` and `--by mode=…`. */
async function parseCaller({ by = {}, ...flags }: Flags): Promise<CallerIdentity> {
  for (const part of ['consumer', 'address', 'mode'] as const) {
    if (flags[part] !== undefined && by[part] !== undefined)
      throw new AdminError('usage', `--${part} and --by ${part}=… are the same. Use one of them.`)
  }
  const { consumer = by.consumer, address = by.address, mode = by.mode } = flags
  const { consumer: _, address: __, mode: ___, ...others } = by
  return {
    ...(consumer !== undefined && { consumer: await parseConsumerName(consumer) }),
    ...(address !== undefined && { address }),
    ...(mode !== undefined && { mode: parseMode(mode) }),
    ...others,
  }
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
  const hint = rules.has('address') ? ' For rules by address, use --address.' : ''
  return [`Other rules can refuse this consumer too: ${groups}.${hint}`]
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

function allowedCell(allowed: boolean, cost: number): Cell {
  const costText = cost === 1 ? '' : ` (cost ${cost})`
  return allowed ? `yes${costText}` : alertCell(`no${costText}`)
}

/** `, queue 100`. Empty if a rule admits at once what it admits in its period. */
function atOnceText(rule: RuleStanding['rule']): string {
  const atOnce = unitsAtOnce(descriptionOf(rule), rule.quota.burst)
  return !atOnce || atOnce.units === rule.limit ? '' : `, ${atOnce.parameter} ${atOnce.units}`
}

/** REMAINING of such a rule is one more than its queue. */
function noteOfQueue(standings: readonly RuleStanding[]): string[] {
  const names = standings.filter(({ rule }) => 'queue' in atOnceOf(rule)).map(({ rule }) => rule.name)
  return names.length > 0
    ? [
        `REMAINING of ${allOf([...new Set(names)])}: one request that starts at once, and those that wait in the queue.`,
      ]
    : []
}

/** The units that can be spent at once, under the name that the algorithm has for them (`burst` or `queue`). */
function atOnceOf(rule: RuleStanding['rule']): Record<string, number> {
  const atOnce = unitsAtOnce(descriptionOf(rule), rule.quota.burst)
  return atOnce ? { [atOnce.parameter]: atOnce.units } : {}
}

function documentOf({ rule, cost, mode, allowed, remaining, resetAfter, retryAfter }: RuleStanding) {
  return {
    rule: rule.name,
    on: rule.on,
    mode,
    limit: rule.limit,
    ...atOnceOf(rule),
    cost,
    allowed,
    remaining,
    resetAfterMs: Math.ceil(resetAfter / 1e3),
    retryAfterMs: retryAfter < 0 ? -1 : Math.ceil(retryAfter / 1e3),
  }
}
