/** What the commands for administration share: their store, their options, and the confirmation before destructive changes. */
import { userInfo } from 'node:os'
import { text } from 'node:stream/consumers'
import { type Command, Option } from 'commander'
import { auditKeepMs } from '../../config/audit-keep.ts'
import { didYouMean } from '../../config/check/did-you-mean.ts'
import { ENVIRONMENT } from '../../config/forms.ts'
import { KEY_SECRET, type KeySecret, readKeySecrets } from '../../credentials/key-signature.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { type AdminStore, withActor } from '../../ops/admin-store.ts'
import type { Change } from '../../ops/change.ts'
import type { ConsumerChange } from '../../ops/consumers.ts'
import { consumerChangeDocument } from '../../ops/documents/consumers.ts'
import { parseSignature, type Signature } from '../../ops/inputs.ts'
import { namesNear } from '../../ops/key-pages.ts'
import { mustSignNewKeys } from '../../ops/key-signing.ts'
import { parseShortText } from '../../ops/names.ts'
import { CHANGE_OPTIONS, optionIn, STORE_OPTIONS } from './help.ts'
import type { ConfigLoader, LoadedConfig } from './load-config.ts'
import { openAdminStore } from './open-store.ts'
import { print } from './output.ts'

export interface StoreFlags {
  url?: string
  api?: string
  token?: string
  env?: string
  json?: boolean
}

export const JSON_HELP = 'print one JSON document on standard output'
export const ENVIRONMENT_HELP = 'environment (default: $SLUICE_ENVIRONMENT, else the one in the config)'
export const CONSUMER_HELP = 'name of the consumer; if it is identified by tokens: <issuer>~<subject>'
export const UNTIL_HELP = "end of the change, such as '2030-12-31T18:00:00Z'"
export const BY_HELP = 'who makes the change (default: your user name on this machine)'
export const YES_HELP = 'do not ask for confirmation; required without a terminal'

/** Adds the options of every command that uses the store, or the API in place of it: `--url`, `--token`, `--api`, `--env` and `--json`. */
export function addStoreOptions(command: Command): Command {
  optionIn(
    STORE_OPTIONS,
    command,
    '--url <url>',
    'REST URL of the store, or redis:// URL (default: $UPSTASH_REDIS_REST_URL, else $REDIS_URL)',
  )
  optionIn(
    STORE_OPTIONS,
    command,
    '--token <token>',
    'REST token (default: $UPSTASH_REDIS_REST_TOKEN); with --api: service token (default: $SLUICE_API_TOKEN)',
  )
  const api = new Option(
    '--api <url>',
    'URL of a gateway, to use its HTTP API in place of the store (default: $SLUICE_API_URL)',
  )
  command.addOption(api.conflicts('url').helpGroup(STORE_OPTIONS))
  optionIn(STORE_OPTIONS, command, '--env <name>', ENVIRONMENT_HELP)
  return command.option('--json', JSON_HELP)
}

/** Adds the options of the store, and `--yes`: for commands that ask for confirmation. */
export function addStoreAndConfirmOptions(command: Command): Command {
  return addStoreOptions(command).option('--yes', YES_HELP)
}

/** The author of a change, the reason, and how long it lasts. */
export interface SignedFlags {
  by?: string
  reason?: string
  for?: string
  until?: string
}

/** Adds the options of a temporary change: its author, its reason and its end, which other administrators can see. */
export function addChangeOptions(command: Command): Command {
  const duration = new Option(
    '--for <duration>',
    "duration of the change, such as '1h' (default: until undone)",
  )
  command.addOption(duration.conflicts('until').helpGroup(CHANGE_OPTIONS))
  optionIn(CHANGE_OPTIONS, command, '--until <time>', UNTIL_HELP)
  return addAuthorOptions(command)
}

/**
 * Adds the author and the reason of a change, for the audit trail.
 * @param name of the option of the author, which `limits` uses for something else
 */
export function addAuthorOptions(command: Command, name: 'by' | 'as' = 'by'): Command {
  optionIn(CHANGE_OPTIONS, command, `--${name} <name>`, BY_HELP)
  return optionIn(CHANGE_OPTIONS, command, '--reason <text>', 'reason, shown to administrators only')
}

/** The author and the reason of a change. `by` is something else in the flags of `limits`. */
interface AuthorFlags {
  by?: unknown
  as?: string
  reason?: string
}

/** The user that has started this command. A container can run as a user without a name. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return 'unknown'
  }
}

/** @throws AdminError `usage` */
export const authorOf = ({ by, as: own = typeof by === 'string' ? by : userName() }: AuthorFlags): string =>
  parseShortText(own, 'name')

function changeOf({ reason, ...flags }: AuthorFlags): Change {
  return {
    actor: { kind: 'operator', name: authorOf(flags) },
    ...(reason !== undefined && { reason: parseShortText(reason, 'reason') }),
  }
}

/** As parseSignature, with the user of this machine as the author unless another is given. */
export const signatureOf = ({ by, reason, ...flags }: SignedFlags): Signature =>
  parseSignature({ by, reason, until: flags.for ?? flags.until }, userName())

/**
 * The store, whose changes are recorded in the audit trail.
 * @param keySecret signs new keys
 */
export async function openStore(
  flags: StoreFlags & AuthorFlags,
  load: ConfigLoader,
  keySecret?: KeySecret,
): Promise<{ store: AdminStore; config: LoadedConfig }> {
  const change = changeOf(flags)
  const config = await configOf(flags, load)
  const { environment, keyLocking, cluster, credentials } = config
  const store = await openAdminStore(flags, {
    environment,
    keyLocking,
    cluster,
    keyPrefix: credentials.keyPrefix,
    keySecret,
  })
  return { store: withActor(store, change, auditKeepMs(config.input.audit)), config }
}

/** As `openStore`, with the secret that signs. @throws AdminError if the gateway would refuse the new key */
export async function openStoreForNewKey(
  flags: StoreFlags & AuthorFlags,
  load: ConfigLoader,
): ReturnType<typeof openStore> {
  const opened = await openStore(flags, load, keySecretOf(process.env))
  mustSignNewKeys(opened.store, opened.config.credentials.signature)
  return opened
}

/** The secret that signs new API keys. @throws ConfigError if the variable is not valid */
export function keySecretOf({ [KEY_SECRET]: text }: NodeJS.Dict<string>): KeySecret | undefined {
  return text ? readKeySecrets(text)[0] : undefined
}

/** The config with the environment that the command works on: `--env`, else `SLUICE_ENVIRONMENT`, else that of the config. */
export async function configOf<C extends LoadedConfig>(
  { env }: Pick<StoreFlags, 'env'>,
  load: () => Promise<C>,
): Promise<C> {
  const config = await load()
  const environment = env ?? (process.env.SLUICE_ENVIRONMENT || config.environment)
  if (environment === undefined) return config
  if (ENVIRONMENT.test(environment)) return { ...config, environment }
  const where = env === undefined ? 'SLUICE_ENVIRONMENT' : '--env'
  throw new AdminError(
    'usage',
    `${where}: '${environment.slice(0, 60)}' is not an environment name. Use 1 to 16 lowercase letters and digits.`,
  )
}

/** An argument that may be a secret. With `-` it is read from standard input, so that it does not get into the history of the shell. */
export async function secretOf(argument: string): Promise<string> {
  if (argument !== '-') return argument
  const read = (await text(process.stdin)).trim()
  if (read) return read
  throw new AdminError('usage', 'Standard input is empty. Pipe the key or the token into this command.')
}

/** @throws AdminError unless the user confirms */
export async function mustConfirm(question: string, { yes }: { yes?: boolean }): Promise<void> {
  if (yes) return
  if (!process.stdin.isTTY)
    throw new AdminError(
      'usage',
      `${question} There is no terminal to confirm this on. Add --yes to proceed.`,
    )
  if (!(await askUser(question))) throw new AdminError('refused', 'Canceled. Nothing was changed.')
}

/**
 * Asks on the terminal. Enter alone means no.
 * @throws AdminError after Ctrl-C
 */
export async function askUser(question: string): Promise<boolean> {
  const { default: confirm } = await import('@inquirer/confirm')
  // On standard error, because standard output is for the result.
  return await confirm({ message: question, default: false }, { output: process.stderr }).catch(() => {
    throw new AdminError('refused', 'Canceled. Nothing was changed.')
  })
}

/** A consumer need not exist before something is set for it, so a misspelled name is not an error. */
export async function noteIfNew(
  store: AdminStore,
  consumer: string,
  { isNew }: ConsumerChange,
): Promise<void> {
  if (!isNew) return
  // The change is made, whether or not the names can be read.
  const names = await namesNear(store, consumer).catch(() => [])
  const others = names.filter(name => name !== consumer)
  const hint = didYouMean(consumer, others) || ' Check the spelling if you expected it to exist.'
  console.error(`Consumer '${consumer}' is new in this store.${hint}`)
}

/** Prints the settings of a consumer after a change, and a hint if its name may be misspelled. */
export async function printChange(
  flags: StoreFlags,
  store: AdminStore,
  consumer: string,
  change: ConsumerChange,
  human: string,
): Promise<void> {
  await noteIfNew(store, consumer, change)
  print(flags, consumerChangeDocument(consumer, change), () => human)
}
