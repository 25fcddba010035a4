/** `npx sluicegate consumers override …`: other numbers for one consumer, for a time. */
import { Command, Option } from 'commander'
import { ALGORITHM_NAMES } from '../../algorithms/index.ts'
import { type PlanUnits, planUnits } from '../../algorithms/plan-units.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { ADVICE } from '../../ops/advice.ts'
import { overrideChangeDocument, settingsDocument } from '../../ops/documents/consumers.ts'
import { parseConsumerName, parseFutureTime } from '../../ops/names.ts'
import {
  atOnceOf,
  compileOverride,
  findOverridable,
  type OverrideInput,
  removeOverride,
  setOverride,
  statusOf,
  untilOf,
} from '../../ops/overrides.ts'
import { time, timeAhead } from '../../ops/times.ts'
import {
  type ConsumerRecord,
  formatConsumer,
  MAX_CONSUMER_LENGTH,
  type Override,
} from '../../store/records.ts'
import {
  addAuthorOptions,
  addStoreOptions,
  CONSUMER_HELP,
  noteIfNew,
  openStore,
  type StoreFlags,
  signatureOf,
  UNTIL_HELP,
} from './administration.ts'
import { parseUnits } from './arguments.ts'
import { CHANGE_OPTIONS, optionIn, withExamples } from './help.ts'
import type { ConfigLoader, LoadedConfig } from './load-config.ts'
import { print, table } from './output.ts'

export interface OverrideFlags extends StoreFlags, Partial<Record<PlanUnits, number>> {
  mode?: 'enforce' | 'shadow' | 'off'
  for?: string
  until?: string
  by?: string
  reason?: string
  remove?: boolean
  removeStale?: boolean
  yes?: boolean
}

/** @param group that it stands in: `consumers` or `switch` */
export function overrideCommand(load: ConfigLoader, group: string): Command {
  const command = addStoreOptions(new Command('override'))
    .summary('override a rule for a consumer')
    .description(
      'Give a consumer other numbers, or another mode, for one rule. This replaces an earlier override of the rule.',
    )
    .argument('<consumer>', CONSUMER_HELP)
    .argument('<rule>', 'name of a rule that counts by consumer')
  addOverrideOptions(command, 'consumer').action(override.bind(null, load))
  return withExamples(
    addAuthorOptions(command),
    `${group} override acme consumer-minute --limit 600 --for 24h`,
    `${group} override acme consumer-minute --remove`,
  )
}

/** The options of an override without its author. @param whose it is */
export function addOverrideOptions(command: Command, whose: 'consumer' | 'identity'): Command {
  for (const [name, { label: words, algorithms }] of planUnits) {
    const isForAll = algorithms.length === ALGORITHM_NAMES.length
    const meaning = isForAll
      ? `limit of the ${whose} (default: the rule's)`
      : `${words}, with ${algorithms.join(' and ')}`
    command.option(`--${name} <units>`, meaning, parseUnits)
  }
  const duration = new Option(
    '--for <duration>',
    "duration of the change, such as '24h' (default: until removed)",
  )
  command
    .addOption(
      new Option('--mode <mode>', `mode of the rule for the ${whose}`).choices(['enforce', 'shadow', 'off']),
    )
    .addOption(duration.conflicts('until').helpGroup(CHANGE_OPTIONS))
    .option('--remove', 'remove the override')
    .option(
      '--remove-stale',
      'also remove overrides of rules that this config does not have, even if another deployment has them',
    )
    .option('--yes', 'accepted for scripts; this command never asks for confirmation')
  return optionIn(CHANGE_OPTIONS, command, '--until <time>', UNTIL_HELP)
}

async function override(
  load: ConfigLoader,
  argument: string,
  rule: string,
  flags: OverrideFlags,
): Promise<void> {
  if (flags.remove) return await remove(load, argument, rule, flags)
  const input = inputIn(rule, flags)
  const { store, config } = await openStore(flags, load)
  const consumer = await parseConsumerName(argument)
  const numbers = compileOverride(config.input, input)
  const compiled = { ...numbers, at: new Date(), by: signatureOf(flags).by }
  const { removeStale } = flags
  const change = await setOverride(store, consumer, compiled, { config: config.input, removeStale })
  await noteIfNew(store, consumer, change)
  const { removed } = change
  const document = overrideChangeDocument(consumer, compiled, change, config)
  if (document.status === 'rule-off')
    console.error(`Rule '${rule}' is off in the config: the override has no effect until the rule is on.`)
  print(
    flags,
    document,
    () =>
      `Consumer '${consumer}' has an override of rule '${rule}': ${numbersOf(compiled, config)}${ending(compiled)}.${removedText(removed, config)}`,
  )
}

function removedText(removed: readonly Override[], config: LoadedConfig): string {
  return removed.length > 0 ? `\nThese were removed:\n\n${overrideTable(removed, config)}` : ''
}

/** @throws AdminError for an end that is not in the future */
export function inputIn(rule: string, { mode, ...flags }: OverrideFlags): OverrideInput {
  const end = flags.for ?? flags.until
  const until = end === undefined ? undefined : parseFutureTime(end)
  return { rule, ...unitsIn(flags), ...(mode && { mode }), ...(until && { until }) }
}

export function unitsIn(flags: OverrideFlags): Partial<Record<PlanUnits, number>> {
  const given = [...planUnits.keys()].filter(name => flags[name] !== undefined)
  return Object.fromEntries(given.map(name => [name, flags[name]]))
}

export function mustRemoveAlone(flags: OverrideFlags): void {
  const others = [...Object.values(unitsIn(flags)), flags.mode, flags.for, flags.until, flags.removeStale]
  if (others.some(value => value !== undefined))
    throw new AdminError('usage', '--remove cannot be combined with other changes. Use it alone.')
}

async function remove(
  load: ConfigLoader,
  argument: string,
  rule: string,
  flags: OverrideFlags,
): Promise<void> {
  mustRemoveAlone(flags)
  const { store, config } = await openStore(flags, load)
  const consumer = await parseConsumerName(argument)
  const { before, record, isChanged } = await removeOverride(store, consumer, rule)
  // Without an override, the name of the rule may be misspelled.
  if (!isChanged) findOverridable(config.input, rule)
  const removed = before.overrides.find(override => override.rule === rule)
  print(flags, settingsDocument(consumer, record, config), () =>
    removed
      ? `Consumer '${consumer}' no longer has an override of rule '${rule}'. It had: ${numbersOf(removed, config)}.`
      : `Consumer '${consumer}' has no override of rule '${rule}': nothing was changed.`,
  )
}

const STATUSES = {
  applies: 'applies',
  over: 'ended',
  'rule-changed': 'no effect: the rule has another algorithm or period now',
  'rule-gone': 'no effect: the config has no such rule',
  'rule-off': 'no effect: the rule is off',
}

export function overrideTable(overrides: readonly Override[], config: LoadedConfig): string {
  const rows = overrides.map(override => {
    const until = untilOf(override)
    const status = STATUSES[statusOf(override, config.input)]
    const end = until ? timeAhead(until) : 'no end'
    return [override.rule, numbersOf(override, config), sinceText(override), end, status]
  })
  return table(['OVERRIDE OF', 'NUMBERS', 'SINCE (UTC), BY', 'UNTIL (UTC)', 'STATUS'], rows)
}

/** What to do about a record that slows down every request of its consumer; earlier versions had no maximum. Empty if it does not. */
export function noteOfLength(consumer: string, record: ConsumerRecord): string {
  const { length } = formatConsumer(record)
  if (length <= MAX_CONSUMER_LENGTH) return ''
  return `The record has ${length} bytes, and more than ${MAX_CONSUMER_LENGTH} slow down every request of the consumer. ${ADVICE.longRecord(consumer)}`
}

/** A table of the overrides of all given consumers. */
export function allOverrides(
  consumers: readonly { consumer: string; overrides: readonly Override[] }[],
  config: LoadedConfig,
): string {
  const rows = consumers.flatMap(({ consumer, overrides }) =>
    overrides.map(override => {
      const until = untilOf(override)
      const end = until ? timeAhead(until) : 'no end'
      return [consumer, override.rule, numbersOf(override, config), sinceText(override), end]
    }),
  )
  return table(['CONSUMER', 'OVERRIDE OF', 'NUMBERS', 'SINCE (UTC), BY', 'UNTIL (UTC)'], rows)
}

const sinceText = ({ at, by }: Override) => (at ? `${time(at)}, ${by}` : '')

function numbersOf(override: Override, config: LoadedConfig): string {
  const { mode, numbers } = override
  const atOnce = atOnceOf(override, config.input)
  const parts = [
    ...(numbers ? [`limit ${numbers.limit}`] : []),
    ...(numbers && atOnce && atOnce.units !== numbers.limit ? [`${atOnce.parameter} ${atOnce.units}`] : []),
    ...(mode ? [`mode ${mode}`] : []),
  ]
  return parts.join(', ')
}

function ending(override: Override): string {
  const until = untilOf(override)
  return until ? `, until ${timeAhead(until, ' UTC')}` : ', until it is removed'
}
