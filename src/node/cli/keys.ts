/** `npx sluicegate keys …`: API keys, and opaque keys that were made elsewhere. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { createKey, importKey, listKeys, type NewKey } from '../../ops/keys.ts'
import { consumerName, parseFutureTime, planName, shortText } from '../../ops/names.ts'
import { onStore, openStore, type StoreFlags, secretOf } from './administration.ts'
import { keyChangeCommands } from './key-changes.ts'
import { keyTable, tellOfKey } from './key-output.ts'
import type { ConfigLoader } from './load-config.ts'
import { print } from './output.ts'

interface NewKeyFlags extends StoreFlags {
  consumer: string
  plan?: string
  label?: string
  expires?: string
}

export function keysCommand(load: ConfigLoader): Command {
  const newKey = (command: Command) =>
    onStore(command)
      .requiredOption('--consumer <name>', 'whose key it is: letters, digits, . _ -')
      .option('--plan <name>', "one of the plans in sluice.config.ts (default: the consumer's)")
      .option('--label <text>', 'to tell it from others')
      .option('--expires <when>', "a duration such as '90d', or a time such as '2030-12-31' (default: never)")
  const group = new Command('keys')
    .description('API keys, and keys that were made elsewhere.')
    .addCommand(
      newKey(new Command('create'))
        .description('Make a key for a consumer. It is shown this once; the store keeps its SHA-256.')
        .action(create.bind(null, load)),
    )
    .addCommand(
      newKey(new Command('import'))
        .description('Take a key that was made elsewhere (credentials.opaqueKeys).')
        .argument('[key]', 'the key; - reads it from standard input')
        .option('--sha256 <digest>', 'in the place of the key, where only its SHA-256 is known')
        .action(bringIn.bind(null, load)),
    )
    .addCommand(
      onStore(new Command('list'))
        .description('List the keys of all consumers, or of one. Never the secret.')
        .option('--consumer <name>', 'whose')
        .action(list.bind(null, load)),
    )
  for (const command of keyChangeCommands(load)) group.addCommand(command)
  return group
}

async function create(load: ConfigLoader, flags: NewKeyFlags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const created = await createKey(store, await newKeyOf(flags, config.plans))
  if (flags.json) print(flags, created, String)
  else tellOfKey(created, config.plans)
}

async function bringIn(
  load: ConfigLoader,
  argument: string | undefined,
  flags: NewKeyFlags & { sha256?: string },
): Promise<void> {
  if ((argument === undefined) === (flags.sha256 === undefined)) {
    throw new AdminError('usage', 'Give the key, - to read it from standard input, or --sha256: one of them.')
  }
  const { store, config } = await openStore(flags, load)
  const opaque = flags.sha256 === undefined ? { key: await secretOf(argument!) } : { digest: flags.sha256 }
  const imported = await importKey(store, opaque, await newKeyOf(flags, config.plans))
  if (!config.credentials.opaqueKeys) {
    console.error('The gateway does not take it yet: the config has no credentials: { opaqueKeys: {} }.')
  }
  print(flags, imported, () => `${imported.id} is a key of ${imported.consumer} now.`)
}

async function newKeyOf(flags: NewKeyFlags, plans: readonly string[]): Promise<NewKey> {
  const { plan, label, expires } = flags
  const expiresAt = expires === undefined ? undefined : parseFutureTime(expires)
  return {
    consumer: await named('--consumer', () => consumerName(flags.consumer)),
    ...(plan !== undefined && { plan: await named('--plan', () => planName(plan, plans)) }),
    ...(label !== undefined && { label: shortText(label, 'label') }),
    ...(expiresAt && { expiresAt }),
  }
}

async function list(load: ConfigLoader, flags: StoreFlags & { consumer?: string }): Promise<void> {
  const { store } = await openStore(flags, load)
  const consumer = flags.consumer === undefined ? undefined : await consumerName(flags.consumer)
  const keys = await listKeys(store, consumer)
  print(flags, keys, () => (keys.length > 0 ? keyTable(keys) : noKeysText(store, consumer)))
}

/** Keys of another environment are not seen, and look as if they were not there. */
function noKeysText({ environment }: Pick<AdminStore, 'environment'>, consumer: string | undefined): string {
  const where = environment === undefined ? 'without an environment' : `in the environment ${environment}`
  return `There are no keys${consumer === undefined ? '' : ` of ${consumer}`} ${where}. --env <name> looks into another one.`
}

/** Says which option an error is about. */
async function named(option: string, value: () => string | Promise<string>): Promise<string> {
  try {
    return await value()
  } catch (error) {
    throw error instanceof AdminError ? new AdminError(error.kind, `${option}: ${error.message}`) : error
  }
}
