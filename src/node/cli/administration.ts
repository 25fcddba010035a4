/** What the commands that administer have in common: the store they work on, and how they ask before they destroy. */
import { userInfo } from 'node:os'
import { text } from 'node:stream/consumers'
import { type Command, Option } from 'commander'
import { ENVIRONMENT } from '../../config/forms.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { type AdminStore, adminStore } from '../../ops/admin-store.ts'
import type { ChangeResult } from '../../ops/consumers.ts'
import { parseFutureTime, shortText } from '../../ops/names.ts'
import { restStore } from './arguments.ts'
import { blockDocument } from './blocks.ts'
import type { ConfigLoader, LoadedConfig } from './load-config.ts'
import { print } from './output.ts'

export interface StoreFlags {
  url?: string
  token?: string
  env?: string
  json?: boolean
}

/** The options that every one of them takes. */
export function onStore(command: Command): Command {
  return command
    .option('--url <url>', 'of the store (default: $UPSTASH_REDIS_REST_URL)')
    .option('--token <token>', 'of the store (default: $UPSTASH_REDIS_REST_TOKEN)')
    .option('--env <name>', "whose keys (default: $SLUICE_ENVIRONMENT, else the config's environment)")
    .option('--json', 'one JSON document on standard output')
}

/** One that destroys. */
export function destructive(command: Command): Command {
  return onStore(command).option('--yes', 'do not ask; needed where no terminal is there to ask on')
}

/** Who does it, why, and for how long. */
export interface SignedFlags {
  by?: string
  reason?: string
  for?: string
  until?: string
}

/** The options of a change that is to be undone one day, by whoever comes upon it. */
export function signed(command: Command): Command {
  return command
    .addOption(
      new Option('--for <duration>', "how long, as in '1h' (default: until it is undone)").conflicts('until'),
    )
    .option('--until <time>', "as in '2030-12-31T18:00:00Z'")
    .option('--by <who>', 'who does it (default: the user of this machine)')
    .option('--reason <text>', 'for those who administer; callers are not told')
}

/** `until` is null for what has no end although one was asked about: `never`. */
export function signatureOf(flags: SignedFlags): { by: string; reason?: string; until?: Date | null } {
  const time = flags.for ?? flags.until
  return {
    by: shortText(flags.by ?? userInfo().username, 'name'),
    ...(flags.reason !== undefined && { reason: shortText(flags.reason, 'reason') }),
    ...(time !== undefined && { until: parseFutureTime(time) ?? null }),
  }
}

export async function openStore(
  flags: StoreFlags,
  load: ConfigLoader,
): Promise<{ store: AdminStore; config: LoadedConfig }> {
  const rest = restStore(flags)
  const config = await configOf(flags, load)
  const { environment, keyLocking, cluster, credentials } = config
  const store = adminStore({ ...rest, environment, keyLocking, cluster, keyPrefix: credentials.keyPrefix })
  return { store, config }
}

/** The config, as the deployment has it. */
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
    `${where} is not an environment name. Use 1 to 16 lower case letters and digits.`,
  )
}

/** An argument that may be a secret: `-` reads it from standard input, which no shell remembers. */
export async function secretOf(argument: string): Promise<string> {
  if (argument !== '-') return argument
  const read = (await text(process.stdin)).trim()
  if (read) return read
  throw new AdminError('usage', 'There was nothing on standard input.')
}

/** @throws AdminError unless the user confirms */
export async function mustConfirm(question: string, { yes }: { yes?: boolean }): Promise<void> {
  if (yes) return
  if (!process.stdin.isTTY)
    throw new AdminError('usage', `${question} There is no terminal to ask on: add --yes.`)
  const { default: confirm } = await import('@inquirer/confirm')
  // On standard error: standard output is for what was asked for.
  const isSure = await confirm({ message: question, default: false }, { output: process.stderr }).catch(
    () => false,
  )
  if (!isSure) throw new AdminError('refused', 'Nothing was changed.')
}

/** What a consumer has been set to, and a hint where its name may be misspelled. */
export function tell(
  flags: StoreFlags,
  consumer: string,
  { record, isNew }: ChangeResult,
  human: string,
): void {
  if (isNew)
    console.error(`The consumer ${consumer} is new here. Check the spelling if you expected it to exist.`)
  const { plan, overrides } = record
  const rules = overrides.map(({ rule }) => rule)
  const all = { consumer, plan: plan ?? null, ...blockDocument(record) }
  print(flags, { ...all, overrides: rules }, () => human)
}
