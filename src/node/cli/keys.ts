/** `npx sluicegate keys …`: API keys, and opaque keys that were made elsewhere. */
import { Command } from 'commander'
import { didYouMean } from '../../config/check/did-you-mean.ts'
import { newKeySecret } from '../../credentials/key-signature.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { createdKeyDocument, keyDocument, keyStatsDocument } from '../../ops/documents/keys.ts'
import { parseNewKey, parseOpaqueKey } from '../../ops/inputs.ts'
import { namesNear } from '../../ops/key-pages.ts'
import { createKey, importKey, keyStatsOf, listKeys, type NewKey } from '../../ops/keys.ts'
import { parseConsumerName } from '../../ops/names.ts'
import {
  addAuthorOptions,
  addStoreOptions,
  openStore,
  openStoreForNewKey,
  type StoreFlags,
  secretOf,
} from './administration.ts'
import { withExamples } from './help.ts'
import { keyChangeCommands } from './key-changes.ts'
import { keyStatsText, keyTable, printCreatedKey } from './key-output.ts'
import type { ConfigLoader } from './load-config.ts'
import { print } from './output.ts'

interface NewKeyFlags extends StoreFlags {
  consumer: string
  plan?: string
  label?: string
  mode?: string
  expires?: string
}

export function keysCommand(load: ConfigLoader): Command {
  const newKey = (command: Command) =>
    addAuthorOptions(addStoreOptions(command))
      .requiredOption('--consumer <name>', 'consumer that the key belongs to: letters, digits, . _ -')
      .option(
        '--plan <name>',
        "plan of this key only, even if the consumer's changes (default: the consumer's plan)",
      )
      .option('--label <text>', 'label to recognize the key by')
      .option('--mode <mode>', 'live or test (default: live); a test key never spends a live budget')
      .option('--expires <when>', "duration such as '90d', or time such as '2030-12-31' (default: never)")
  const group = new Command('keys')
    .summary('create, import, change and revoke keys')
    .description(
      'Create, import, change and revoke keys. A change applies from the next request that reaches the store.',
    )
    .addCommand(
      withExamples(
        newKey(new Command('create'))
          .summary('create an API key')
          .description(
            'Create an API key for a consumer. The key is shown once; the store keeps its SHA-256 digest.',
          )
          .action(create.bind(null, load)),
        'keys create --consumer acme',
        'keys create --consumer acme --label ci --expires 90d',
        'keys create --consumer acme --mode test',
      ),
    )
    .addCommand(
      withExamples(
        newKey(new Command('import'))
          .summary('import a key that was created elsewhere')
          .description('Import a key that was created elsewhere. The config needs credentials.opaqueKeys.')
          .argument('[key]', 'key; - reads it from standard input')
          .option('--sha256 <digest>', 'SHA-256 digest of the key, instead of the key')
          .action(bringIn.bind(null, load)),
        'keys import - --consumer acme < key.txt',
      ),
    )
    .addCommand(
      withExamples(
        new Command('secret')
          .summary('make a secret that signs API keys')
          .description('Make a secret for SLUICE_KEY_SECRET. Keys that are created with it are signed.')
          .action(() => console.log(newKeySecret())),
        'keys secret',
      ),
    )
    .addCommand(
      withExamples(
        addStoreOptions(new Command('stats'))
          .summary('show how many keys are signed')
          .description(
            "Show how many API keys are signed, and whether signature: 'require' would refuse any.",
          )
          .action(stats.bind(null, load)),
        'keys stats',
      ),
    )
    .addCommand(
      withExamples(
        addStoreOptions(new Command('list'))
          .summary('list keys')
          .description('List the keys of all consumers, or of one. The keys themselves are not shown.')
          .option('--consumer <name>', 'list only the keys of this consumer')
          .action(list.bind(null, load)),
        'keys list --consumer acme',
      ),
    )
  for (const command of keyChangeCommands(load)) group.addCommand(command)
  return group
}

async function create(load: ConfigLoader, flags: NewKeyFlags): Promise<void> {
  const { store, config } = await openStoreForNewKey(flags, load)
  const created = await createKey(store, await newKeyOf(flags, config.plans))
  if (flags.json) print(flags, createdKeyDocument(created), String)
  else printCreatedKey(created, config.plans)
}

async function bringIn(
  load: ConfigLoader,
  argument: string | undefined,
  flags: NewKeyFlags & { sha256?: string },
): Promise<void> {
  mustHaveOneKey(argument, flags)
  const { store, config } = await openStore(flags, load)
  const opaque = flags.sha256 === undefined ? { key: await secretOf(argument!) } : { digest: flags.sha256 }
  const imported = await importKey(store, parseOpaqueKey(opaque), await newKeyOf(flags, config.plans))
  if (!config.credentials.opaqueKeys) {
    console.error(
      'This key is not accepted yet. Add credentials: { opaqueKeys: {} } to the config, and deploy.',
    )
  }
  print(
    flags,
    keyDocument(imported),
    () => `Key '${imported.id}' belongs to consumer '${imported.consumer}' now.`,
  )
}

export function mustHaveOneKey(argument: string | undefined, { sha256 }: { sha256?: string }): void {
  if ((argument === undefined) !== (sha256 === undefined)) return
  throw new AdminError(
    'usage',
    'Use either the key or --sha256. With - as the key, it is read from standard input.',
  )
}

async function newKeyOf(flags: NewKeyFlags, plans: readonly string[]): Promise<NewKey> {
  const { plan, label, mode, expires } = flags
  const consumer = await named('--consumer', () => parseConsumerName(flags.consumer))
  return await parseNewKey({ consumer, plan, label, mode, expires }, plans)
}

async function list(load: ConfigLoader, flags: StoreFlags & { consumer?: string }): Promise<void> {
  const { store } = await openStore(flags, load)
  const consumer = flags.consumer === undefined ? undefined : await parseConsumerName(flags.consumer)
  const keys = await listKeys(store, consumer)
  const others = keys.length === 0 && consumer !== undefined ? await namesNear(store, consumer) : []
  print(flags, keys.map(keyDocument), () =>
    keys.length > 0 ? keyTable(keys) : noKeysText(store, consumer, others),
  )
}

async function stats(load: ConfigLoader, flags: StoreFlags): Promise<void> {
  const { store } = await openStore(flags, load)
  const counted = keyStatsOf(await listKeys(store))
  print(flags, keyStatsDocument(counted), () => keyStatsText(counted))
}

/** Keys of other environments are not listed, so a wrong environment looks like missing keys. */
function noKeysText(
  { environment }: Pick<AdminStore, 'environment'>,
  consumer: string | undefined,
  others: readonly string[],
): string {
  const where = environment === undefined ? 'in the unnamed environment' : `in environment '${environment}'`
  const whose = consumer === undefined ? '' : ` of consumer '${consumer}'`
  const meant = consumer === undefined || others.includes(consumer) ? '' : didYouMean(consumer, others)
  return `There are no keys${whose} ${where}.${meant} To list the keys of another environment, use --env <name>.`
}

/** Names the option in an error about its value. */
async function named(option: string, value: () => string | Promise<string>): Promise<string> {
  try {
    return await value()
  } catch (error) {
    throw error instanceof AdminError ? new AdminError(error.kind, `${option}: ${error.message}`) : error
  }
}
