/** `npx sluicegate consumers …`: plans, blocks and overrides, live. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import { blockText, endedBlock, isBlockedNow } from '../../ops/blocks.ts'
import { rulesByMore } from '../../ops/caller-identity.ts'
import {
  blockConsumer,
  type ConsumerInfo,
  changePlan,
  keysOnOtherPlans,
  listConsumers,
  type PlanChange,
  showConsumer,
  unblockConsumer,
} from '../../ops/consumers.ts'
import {
  consumerDocument,
  planChangeDocument,
  removedConsumerDocument,
} from '../../ops/documents/consumers.ts'
import { parseConsumerName, parsePlan, printable } from '../../ops/names.ts'
import { keysToRemove, removeConsumer } from '../../ops/remove-consumer.ts'
import { time } from '../../ops/times.ts'
import {
  addAuthorOptions,
  addChangeOptions,
  addStoreAndConfirmOptions,
  addStoreOptions,
  CONSUMER_HELP,
  mustConfirm,
  noteIfNew,
  openStore,
  printChange,
  type SignedFlags,
  type StoreFlags,
  signatureOf,
} from './administration.ts'
import { withExamples } from './help.ts'
import { keyTable } from './key-output.ts'
import { type ConfigLoader, type LoadedConfig, loadConfig } from './load-config.ts'
import { alert, alertCell, print, table } from './output.ts'
import { noteOfLength, overrideCommand, overrideTable } from './overrides.ts'

type Flags = StoreFlags & { yes?: boolean }

export function consumersCommand(load: ConfigLoader = loadConfig): Command {
  const of = (name: string, summary: string, description: string, addOptions = addStoreOptions) =>
    addOptions(new Command(name))
      .summary(summary)
      .description(description)
      .argument('<consumer>', CONSUMER_HELP)
  return new Command('consumers')
    .summary('manage consumers: plans, blocks and overrides')
    .description(
      'Manage consumers: their plans, blocks and overrides. A change applies from the next request that reaches the store.',
    )
    .addCommand(
      withExamples(
        addStoreOptions(new Command('list'))
          .summary('list all consumers')
          .description('List the consumers that have keys or settings.')
          .action(list.bind(null, load)),
        'consumers list',
      ),
    )
    .addCommand(
      withExamples(
        of(
          'show',
          'show a consumer',
          'Show the plan, the block, the keys and the overrides of a consumer.',
        ).action(show.bind(null, load)),
        'consumers show acme',
      ),
    )
    .addCommand(
      withExamples(
        of(
          'set',
          'set the plan of a consumer',
          'Set or remove the plan of a consumer. It applies to credentials that name no plan themselves.',
          command => addAuthorOptions(addStoreOptions(command)),
        )
          .option('--plan <name>', 'one of the plans in the config')
          .option('--no-plan', 'remove the plan: the first plan in the config applies')
          .action(set.bind(null, load)),
        'consumers set acme --plan pro',
        'consumers set acme --no-plan',
      ),
    )
    .addCommand(blockCommand(load, 'consumers'))
    .addCommand(unblockCommand(load, 'consumers'))
    .addCommand(overrideCommand(load, 'consumers'))
    .addCommand(
      withExamples(
        of(
          'remove',
          'remove a consumer',
          'Remove a consumer with its keys, its settings and its counters.',
          command => addAuthorOptions(addStoreAndConfirmOptions(command)),
        ).action(remove.bind(null, load)),
        'consumers remove acme',
      ),
    )
}

/** @param group that it stands in: `consumers` or `switch` */
export function blockCommand(load: ConfigLoader, group: string): Command {
  return withExamples(
    addChangeOptions(addStoreAndConfirmOptions(new Command('block')))
      .summary('block a consumer')
      .description(
        'Refuse all requests of a consumer with a 403, from the next request that reaches the store.',
      )
      .argument('<consumer>', CONSUMER_HELP)
      .action(block.bind(null, load)),
    `${group} block acme --for 24h --reason unpaid`,
  )
}

export function unblockCommand(load: ConfigLoader, group: string): Command {
  return withExamples(
    addAuthorOptions(addStoreOptions(new Command('unblock')))
      .summary('unblock a consumer')
      .description('Admit a blocked consumer again.')
      .argument('<consumer>', CONSUMER_HELP)
      .action(unblock.bind(null, load)),
    `${group} unblock acme`,
  )
}

async function list(load: ConfigLoader, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const consumers = await listConsumers(store)
  print(
    flags,
    consumers.map(consumer => consumerDocument(consumer, config)),
    () => (consumers.length > 0 ? consumerTable(consumers) : 'There are no consumers.'),
  )
}

export function consumerTable(consumers: readonly ConsumerInfo[]): string {
  const rows = consumers.map(({ consumer, plan, keys, overrides, ...record }) => [
    consumer,
    plan ?? '(default)',
    String(keys.length),
    overrides.map(({ rule }) => rule).join(', '),
    alertCell(blockText(record)),
  ])
  return table(['CONSUMER', 'PLAN', 'KEYS', 'OVERRIDES', 'BLOCKED (UTC)'], rows)
}

async function show(load: ConfigLoader, argument: string, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const info = await showConsumer(store, await parseConsumerName(argument))
  print(flags, consumerDocument(info, config), () => describe(info, config))
}

function describe(info: ConsumerInfo, config: LoadedConfig): string {
  const { consumer, plan, keys, overrides } = info
  const first = config.plans[0]
  const isUnknown = plan !== undefined && !config.plans.includes(plan)
  const note = isUnknown ? `, which is not in the config: plan '${first}' applies` : ''
  const others = keysOnOtherPlans(keys, plan && !isUnknown ? plan : first!)
  // The plan is that in the store.
  const on = plan ? `'${printable(plan)}'${note}` : `'${first}' (the default)`
  const lines = [
    `Consumer '${consumer}' is on plan ${on}.${noteOfKeys(consumer, { keysOnOtherPlans: others })}`,
  ]
  const ended = endedBlock(info)
  if (isBlockedNow(info)) lines.push(`${alert('Blocked')} ${blockText(info, ' UTC')}.`)
  else if (ended) lines.push(`It was blocked until ${time(ended)} UTC.`)
  lines.push('', keys.length > 0 ? keyTable(keys) : 'It has no keys.')
  lines.push('', overrides.length > 0 ? overrideTable(overrides, config) : 'It has no overrides.')
  const ofLength = noteOfLength(consumer, info)
  if (ofLength) lines.push('', ofLength)
  return lines.join('\n')
}

async function set(
  load: ConfigLoader,
  argument: string,
  flags: Flags & { plan?: string | false },
): Promise<void> {
  if (flags.plan === undefined)
    throw new AdminError('usage', 'No plan is given. Use --plan <name> or --no-plan.')
  const { store, config } = await openStore(flags, load)
  const plan = flags.plan === false ? undefined : parsePlan(flags.plan, config.plans)
  const consumer = await parseConsumerName(argument)
  const result = await changePlan(store, consumer, plan, config.plans)
  const already = result.isChanged ? '' : ' already'
  const what = plan
    ? `is${already} on plan '${plan}'`
    : `${already ? 'already has' : 'has'} no plan of its own`
  await noteIfNew(store, consumer, result)
  print(
    flags,
    planChangeDocument(consumer, result),
    () => `Consumer '${consumer}' ${what}.${noteOfKeys(consumer, result)}`,
  )
}

const MOST_KEYS = 10

/** @param change its keys on other plans, as far as they are known */
export function noteOfKeys(
  consumer: string,
  {
    keysOnOtherPlans: keys,
    hasMoreKeys,
  }: Pick<PlanChange, 'hasMoreKeys'> & {
    keysOnOtherPlans: readonly { id: string; plan?: string }[]
  },
): string {
  const [first] = keys
  const all = `To see all keys: npx sluicegate keys list --consumer ${consumer}`
  if (!first)
    return hasMoreKeys ? ` It has many keys, some of which may have a plan of their own. ${all}` : ''
  const shown = keys.slice(0, MOST_KEYS).map(({ id, plan }) => printable(`${id} (${plan})`))
  const more = keys.length > MOST_KEYS ? `, and ${keys.length - MOST_KEYS} more` : ''
  const others = hasMoreKeys ? ` Others may do so, too. ${all}\n` : ' '
  return ` These keys have a plan of their own and keep it: ${shown.join(', ')}${more}.${others}To put a key on the consumer's plan: npx sluicegate keys plan ${first.id} --clear`
}

async function block(load: ConfigLoader, argument: string, flags: Flags & SignedFlags): Promise<void> {
  const signature = signatureOf(flags)
  const { store } = await openStore(flags, load)
  const consumer = await parseConsumerName(argument)
  await mustConfirm(`Block consumer '${consumer}'?`, flags)
  const result = await blockConsumer(store, consumer, signature)
  const already = result.isChanged ? '' : ' already'
  await printChange(
    flags,
    store,
    consumer,
    result,
    `Consumer '${consumer}' is${already} blocked, ${blockText(result.record, ' UTC')}.`,
  )
}

async function unblock(load: ConfigLoader, argument: string, flags: Flags): Promise<void> {
  const { store } = await openStore(flags, load)
  const consumer = await parseConsumerName(argument)
  const result = await unblockConsumer(store, consumer)
  const text = result.isChanged
    ? `Consumer '${consumer}' is no longer blocked.`
    : `Consumer '${consumer}' was not blocked: nothing was changed.`
  await printChange(flags, store, consumer, result, text)
}

async function remove(load: ConfigLoader, argument: string, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const consumer = await parseConsumerName(argument)
  const owned = await keysToRemove(store, consumer)
  await mustConfirm(
    `Remove consumer '${consumer}', with ${owned.hasMoreKeys ? 'more than ' : ''}${count(owned.keys.length)}?`,
    flags,
  )
  const { keys } = await removeConsumer(store, consumer, config.rules)
  if (consumer.includes('~')) {
    console.error(
      'Its tokens are still accepted, because their issuer vouches for them. To refuse them, block the consumer.',
    )
  }
  const others = [...rulesByMore(config, ['consumer']).keys()]
  if (others.length > 0) {
    console.error(
      `Rules that count by more than the consumer keep their counters until these expire: ${others.join(', ')}.`,
    )
  }
  print(
    flags,
    removedConsumerDocument(consumer, { keys }),
    () => `Consumer '${consumer}' is removed, with ${count(keys)}.`,
  )
}

export const count = (keys: number) => (keys === 1 ? '1 key' : `${keys} keys`)
