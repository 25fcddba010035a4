/** `npx sluicegate consumers …`: plans, blocks and overrides, live. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import {
  blockConsumer,
  type ConsumerInfo,
  listConsumers,
  removeConsumer,
  setPlan,
  showConsumer,
  unblockConsumer,
} from '../../ops/consumers.ts'
import { rulesNotShown } from '../../ops/limits.ts'
import { consumerName, planName } from '../../ops/names.ts'
import {
  destructive,
  mustConfirm,
  onStore,
  openStore,
  type SignedFlags,
  type StoreFlags,
  signatureOf,
  signed,
  tell,
} from './administration.ts'
import { blockText, endedBlock, isBlockedNow } from './blocks.ts'
import { keyTable } from './key-output.ts'
import { type ConfigLoader, type LoadedConfig, loadConfig } from './load-config.ts'
import { print, table, time } from './output.ts'
import { overrideCommand, overrideTable, settingsOf } from './overrides.ts'

type Flags = StoreFlags & { yes?: boolean }

export function consumersCommand(load: ConfigLoader = loadConfig): Command {
  const of = (name: string, description: string, make = onStore) =>
    make(new Command(name)).description(description).argument('<consumer>', 'of tokens: <method>~<subject>')
  return new Command('consumers')
    .description(
      'Consumers: their plan, blocks and overrides. Each change counts from the next request that the store decides.',
    )
    .addCommand(
      onStore(new Command('list'))
        .description('List the consumers that have keys or settings.')
        .action(list.bind(null, load)),
    )
    .addCommand(of('show', 'Show all that is set for a consumer.').action(show.bind(null, load)))
    .addCommand(
      of('set', 'Put a consumer on a plan, for credentials that name none.')
        .option('--plan <name>', 'one of the plans in sluice.config.ts')
        .option('--no-plan', 'take it away: the first plan counts')
        .action(set.bind(null, load)),
    )
    .addCommand(
      signed(of('block', 'Refuse whatever a consumer sends, with a 403.', destructive)).action(
        block.bind(null, load),
      ),
    )
    .addCommand(of('unblock', 'Let a consumer in again.').action(unblock.bind(null, load)))
    .addCommand(overrideCommand(load))
    .addCommand(
      of('remove', 'Remove a consumer: its keys, its settings, its counters.', destructive).action(
        remove.bind(null, load),
      ),
    )
}

async function list(load: ConfigLoader, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const consumers = await listConsumers(store)
  print(
    flags,
    consumers.map(consumer => documentOf(consumer, config)),
    () => (consumers.length > 0 ? consumerTable(consumers) : 'There are no consumers.'),
  )
}

function consumerTable(consumers: readonly ConsumerInfo[]): string {
  const rows = consumers.map(({ consumer, plan, keys, overrides, ...record }) => [
    consumer,
    plan ?? '(default)',
    String(keys.length),
    overrides.map(({ rule }) => rule).join(', '),
    blockText(record),
  ])
  return table(['CONSUMER', 'PLAN', 'KEYS', 'OVERRIDES', 'BLOCKED (UTC)'], rows)
}

async function show(load: ConfigLoader, argument: string, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const info = await showConsumer(store, await consumerName(argument))
  print(flags, documentOf(info, config), () => described(info, config))
}

function documentOf({ consumer, keys, ...record }: ConsumerInfo, config: LoadedConfig) {
  const { overrides, ...settings } = settingsOf(consumer, record, config)
  return { ...settings, keys, overrides }
}

function described(info: ConsumerInfo, config: LoadedConfig): string {
  const { consumer, plan, keys, overrides } = info
  const unknown =
    plan && !config.plans.includes(plan) ? `, which the config does not know: ${config.plans[0]} counts` : ''
  const lines = [`${consumer} is on plan ${plan ? plan + unknown : `${config.plans[0]} (the default)`}.`]
  const ended = endedBlock(info)
  if (isBlockedNow(info)) lines.push(`Blocked ${blockText(info, ' UTC')}.`)
  else if (ended) lines.push(`It was blocked until ${time(ended)} UTC.`)
  lines.push('', keys.length > 0 ? keyTable(keys) : 'It has no keys.')
  lines.push('', overrides.length > 0 ? overrideTable(overrides, config) : 'It has no overrides.')
  return lines.join('\n')
}

async function set(
  load: ConfigLoader,
  argument: string,
  flags: Flags & { plan?: string | false },
): Promise<void> {
  if (flags.plan === undefined) throw new AdminError('usage', 'Give --plan <name>, or --no-plan.')
  const { store, config } = await openStore(flags, load)
  const plan = flags.plan === false ? undefined : planName(flags.plan, config.plans)
  const consumer = await consumerName(argument)
  const result = await setPlan(store, consumer, plan)
  const is = plan ? `${consumer} is on plan ${plan}` : `${consumer} has no plan of its own`
  tell(flags, consumer, result, result.isChanged ? `${is}.` : `${is}: nothing to change.`)
}

export async function block(load: ConfigLoader, argument: string, flags: Flags & SignedFlags): Promise<void> {
  const signature = signatureOf(flags)
  const { store } = await openStore(flags, load)
  const consumer = await consumerName(argument)
  await mustConfirm(`Block ${consumer}?`, flags)
  const result = await blockConsumer(store, consumer, signature)
  const already = result.isChanged ? '' : ' already'
  tell(flags, consumer, result, `${consumer} is blocked${already}, ${blockText(result.record, ' UTC')}.`)
}

export async function unblock(load: ConfigLoader, argument: string, flags: Flags): Promise<void> {
  const { store } = await openStore(flags, load)
  const consumer = await consumerName(argument)
  const result = await unblockConsumer(store, consumer)
  const text = result.isChanged ? `${consumer} is let in again.` : `${consumer} was not blocked.`
  tell(flags, consumer, result, text)
}

async function remove(load: ConfigLoader, argument: string, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const consumer = await consumerName(argument)
  const { keys: owned } = await showConsumer(store, consumer)
  await mustConfirm(`Remove ${consumer}, with ${count(owned.length)}?`, flags)
  const { keys } = await removeConsumer(store, consumer, config.rules)
  if (consumer.includes('~')) {
    console.error('Its tokens are taken as before: their issuer vouches for it. To keep it out, block it.')
  }
  const others = rulesNotShown(config, 'consumer')
  if (others.length > 0) {
    console.error(`What ${others.join(', ')} have counted for parts of what it does expires by itself.`)
  }
  print(flags, { consumer, removed: true, keys }, () => `${consumer} is removed, with ${count(keys)}.`)
}

const count = (keys: number) => (keys === 1 ? '1 key' : `${keys} keys`)
