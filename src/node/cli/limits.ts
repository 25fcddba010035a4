/** `npx sluicegate limits …`: what is left, and making it whole again. */
import { Command, Option } from 'commander'
import { descriptionOf } from '../../algorithms/index.ts'
import { unitsAtOnce } from '../../algorithms/plan-units.ts'
import { formatAllowance } from '../../config/allowance.ts'
import type { Rule } from '../../config/compile.ts'
import { formatWait } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import {
  type CounterOwner,
  peekCaller,
  peekLimit,
  resetCaller,
  resetLimit,
  rulesNotShown,
  rulesShown,
  type Standing,
} from '../../ops/limits.ts'
import { consumerName, planName } from '../../ops/names.ts'
import { destructive, mustConfirm, onStore, openStore, type StoreFlags } from './administration.ts'
import { part } from './arguments.ts'
import { type ConfigLoader, loadConfig } from './load-config.ts'
import { print, table, time } from './output.ts'

interface Flags extends StoreFlags {
  by?: Record<string, string>
  rule?: string
  consumer?: string
  address?: string
  plan?: string
  yes?: boolean
}

export function limitsCommand(load: ConfigLoader = loadConfig): Command {
  const of = (command: Command) =>
    command
      .argument('[limit]', 'one of limits in sluice.config.ts')
      .option('--by <part=value>', 'whose, as in account=42; for each part that the limit counts by', part)
      .addOption(
        new Option('--consumer <name>', "the gateway's rules by consumer").conflicts(['by', 'address']),
      )
      .addOption(new Option('--address <address>', "the gateway's rules by address").conflicts('by'))
  return new Command('limits')
    .description('What is left of limits by name, and of the rules of the gateway.')
    .addCommand(
      of(onStore(new Command('peek')))
        .description('Show what is left. Spends nothing.')
        .option('--plan <name>', "whose numbers (default: those of the consumer's plan)")
        .action(peek.bind(null, load)),
    )
    .addCommand(
      of(destructive(new Command('reset')))
        .description('Make the whole budget available again.')
        .option('--rule <name>', 'only this rule of the limit')
        .action(reset.bind(null, load)),
    )
}

async function peek(load: ConfigLoader, limit: string | undefined, flags: Flags): Promise<void> {
  const asked = askedOf(limit, flags)
  const { store, config } = await openStore(flags, load)
  if (asked.kind === 'limit') {
    const standings = await peekLimit(store, config, asked.name, flags.by ?? {})
    return print(flags, { limit: asked.name, by: flags.by ?? {}, rules: standings.map(documentOf) }, () =>
      [standingTable(standings), ...noteOfHeld(standings)].join('\n'),
    )
  }
  const plan = flags.plan === undefined ? undefined : planName(flags.plan, config.plans)
  const { by, counted } = await callerOf(flags)
  const {
    standings,
    off,
    blockedAt,
    plan: found,
    plansOfKeys,
  } = await peekCaller(store, config, counted, plan)
  const notShown = rulesNotShown(config, by)
  const document = {
    ...counted,
    plan: found ?? null,
    ...(by === 'consumer' && { blockedAt: blockedAt ?? null, plansOfKeys }),
    rules: standings.map(documentOf),
    off: off.map(({ name }) => name),
    notShown,
  }
  print(flags, document, () => {
    if (blockedAt) return `${flags.consumer} is blocked since ${time(blockedAt)} UTC: nothing is counted.`
    const lines = [standings.length > 0 ? standingTable(standings) : `No rule is counted by ${by} alone.`]
    if (off.length > 0) lines.push(`Off by an override: ${off.map(({ name }) => name).join(', ')}.`)
    if (plansOfKeys.length > 0)
      lines.push(
        `These are the numbers of plan ${found}. ${flags.consumer} has keys with a plan of their own: ${plansOfKeys.join(', ')}. Give --plan.`,
      )
    return [...lines, ...noteOfHeld(standings), ...noteOf(notShown, by)].join('\n')
  })
}

async function reset(load: ConfigLoader, limit: string | undefined, flags: Flags): Promise<void> {
  const asked = askedOf(limit, flags)
  const { store, config } = await openStore(flags, load)
  if (asked.kind === 'limit') {
    const { by = {}, rule } = flags
    const whose = Object.entries(by)
      .map(([name, value]) => `${name}=${value}`)
      .join(' ')
    const what = `${asked.name}${rule ? `, rule ${rule}` : ''}${whose ? ` of ${whose}` : ''}`
    await mustConfirm(`Reset ${what}?`, flags)
    await resetLimit(store, config, asked.name, by, rule)
    const affected = config.limits.get(asked.name)!.filter(({ name }) => rule === undefined || name === rule)
    return print(
      flags,
      { limit: asked.name, by, ...(rule && { rule }), reset: true },
      () => `${what} is whole again.${stillInFlight(affected)}`,
    )
  }
  if (flags.rule !== undefined) throw new AdminError('usage', '--rule is for limits by name.')
  const { by, counted } = await callerOf(flags)
  const whose = Object.values(counted)[0]
  const rules = rulesShown(config, by)
  const affected = config.rules.filter(({ name }) => rules.includes(name))
  const others = rulesNotShown(config, by)
  const rest = others.length > 0 ? ` Not reset: ${others.join(', ')} (counted by more than the ${by}).` : ''
  if (rules.length === 0) throw new AdminError('refused', `No rule is counted by ${by} alone.${rest}`)
  const what = allOf(rules)
  await mustConfirm(`Reset ${what} of ${whose}?`, flags)
  await resetCaller(store, config, counted)
  print(
    flags,
    { ...counted, reset: true, rules, notReset: others },
    () => `Reset ${what}.${stillInFlight(affected)}${rest}`,
  )
}

type Asked = { kind: 'limit'; name: string } | { kind: 'caller' }

function askedOf(limit: string | undefined, { consumer, address, plan }: Flags): Asked {
  const given = [limit, consumer, address].filter(value => value !== undefined)
  if (given.length !== 1)
    throw new AdminError('usage', 'Name a limit, or give --consumer or --address: one of them.')
  if (limit === undefined) return { kind: 'caller' }
  if (plan !== undefined) throw new AdminError('usage', '--plan is for --consumer and --address.')
  return { kind: 'limit', name: limit }
}

async function callerOf({
  consumer,
  address,
}: Flags): Promise<{ by: 'consumer' | 'address'; counted: CounterOwner }> {
  return consumer === undefined
    ? { by: 'address', counted: { address: address! } }
    : { by: 'consumer', counted: { consumer: await consumerName(consumer) } }
}

/** `a`, `a and b`, `a, b and c` */
function allOf(names: readonly string[]): string {
  return [names.slice(0, -1).join(', '), names.at(-1)].filter(Boolean).join(' and ')
}

function noteOf(names: readonly string[], by: string): string[] {
  return names.length > 0 ? [`Not here: ${names.join(', ')}, which count a part of what one ${by} does.`] : []
}

const isHeld = ({ counting }: Rule) => counting.state === 'held'

/** Nothing says how long a response still takes, so no time is shown for these rules. */
function noteOfHeld(standings: readonly Standing[]): string[] {
  const held = standings.filter(({ rule, resetAfter }) => isHeld(rule) && resetAfter > 0)
  return held.map(
    ({ rule, resetAfter }) =>
      `${rule.name}: a slot is free when its response has ended; if its isolate has died, within ${formatWait(resetAfter)}.`,
  )
}

/** A reset ends no request. */
function stillInFlight(rules: readonly Rule[]): string {
  const held = new Map(rules.filter(isHeld).map(({ name, period }) => [name, formatWait(period)]))
  return [...held]
    .map(([name, ttl]) => ` Requests that are still in flight count again under ${name} within ${ttl}.`)
    .join('')
}

function standingTable(standings: readonly Standing[]): string {
  const rows = standings.map(({ rule, mode, allowed, remaining, resetAfter, retryAfter, cost }) => [
    rule.name,
    mode + (rule.on === 'auth-failure' ? ', on auth-failure' : ''),
    formatAllowance(rule),
    (allowed ? 'yes' : 'no') + (cost === 1 ? '' : ` (cost ${cost})`),
    String(remaining),
    resetAfter === 0 ? 'whole' : isHeld(rule) ? 'when they end' : `in ${formatWait(resetAfter)}`,
    retryAfter < 0
      ? 'never'
      : retryAfter === 0
        ? ''
        : isHeld(rule)
          ? 'when one ends'
          : `in ${formatWait(retryAfter)}`,
  ])
  return table(['RULE', 'MODE', 'LIMIT', 'ALLOWED NOW', 'REMAINING', 'WHOLE AGAIN', 'RETRY'], rows)
}

/** Under the name that the algorithm has for it. */
function atOnceOf(rule: Standing['rule']): Record<string, number> {
  const atOnce = unitsAtOnce(descriptionOf(rule), rule.quota.burst)
  return atOnce ? { [atOnce.parameter]: atOnce.units } : {}
}

function documentOf({ rule, cost, mode, allowed, remaining, resetAfter, retryAfter }: Standing) {
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
