/** `npx sluicegate tokens …`: service tokens for the HTTP API. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import {
  createdTokenDocument,
  revokedTokenDocument,
  rotatedTokenDocument,
  tokenDocument,
} from '../../ops/documents/tokens.ts'
import { parseNewToken, parseOverlap } from '../../ops/inputs.ts'
import { printable } from '../../ops/names.ts'
import { time, timeAhead } from '../../ops/times.ts'
import {
  type CreatedToken,
  createToken,
  findToken,
  listTokens,
  revokeToken,
  rotateToken,
  type TokenInfo,
} from '../../ops/tokens.ts'
import { SCOPES } from '../../scope-table.ts'
import {
  addAuthorOptions,
  addStoreAndConfirmOptions,
  addStoreOptions,
  authorOf,
  mustConfirm,
  openStore,
  type StoreFlags,
  secretOf,
} from './administration.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'
import { columns, print, table } from './output.ts'

const TOKEN = "ID of the token, such as '0f3a9c1d2b4e', or the token itself; - reads it from standard input"

const SCOPES_HELP = `\nScopes:\n${columns(Object.entries(SCOPES), '  ')}`

export function tokensCommand(load: ConfigLoader): Command {
  const of = (name: string, summary: string, description: string, addOptions = addStoreOptions) =>
    addOptions(new Command(name)).summary(summary).description(description).argument('<token>', TOKEN)
  return new Command('tokens')
    .summary('create, list and revoke service tokens for the HTTP API')
    .description(
      'Create, list, rotate and revoke service tokens for the HTTP API. A change takes effect within a second.',
    )
    .addCommand(
      withExamples(
        addAuthorOptions(addStoreOptions(new Command('create')))
          .summary('create a service token')
          .description('Create a service token. It is shown once; the store keeps its SHA-256 digest.')
          .requiredOption('--name <text>', 'owner or purpose of the token, for the audit trail')
          .requiredOption('--scopes <scopes>', 'what the token may do, separated by commas')
          .option('--expires <when>', "duration such as '90d', or time such as '2030-12-31' (default: never)")
          .action(create.bind(null, load)),
        'tokens create --name support --scopes consumers:block,stats:read --expires 90d',
        'tokens create --name nightly-jobs --scopes limits:use:exports',
      ).addHelpText('after', SCOPES_HELP),
    )
    .addCommand(
      withExamples(
        addStoreOptions(new Command('list'))
          .summary('list service tokens')
          .description('List the service tokens. The tokens themselves are not shown.')
          .action(list.bind(null, load)),
        'tokens list',
      ),
    )
    .addCommand(
      withExamples(
        of(
          'show',
          'show a service token',
          'Show the name, the scopes and the end of a service token.',
        ).action(show.bind(null, load)),
        'tokens show 0f3a9c1d2b4e',
      ),
    )
    .addCommand(
      withExamples(
        of('revoke', 'revoke a service token', 'Revoke a service token for good, within a second.', command =>
          addAuthorOptions(addStoreAndConfirmOptions(command)),
        ).action(revoke.bind(null, load)),
        'tokens revoke 0f3a9c1d2b4e',
      ),
    )
    .addCommand(
      withExamples(
        of(
          'rotate',
          'replace a service token by a new one',
          'Create a token with the name, scopes and lifetime of an old one, and let the old one end.',
          command => addAuthorOptions(addStoreOptions(command)),
        )
          .option('--overlap <duration>', 'how long the old token stays valid; 0 revokes it at once', '24h')
          .option('--yes', "do not ask for confirmation; without a terminal, '--overlap 0' needs this")
          .action(rotate.bind(null, load)),
        'tokens rotate 0f3a9c1d2b4e --overlap 1h',
      ),
    )
}

async function create(
  load: ConfigLoader,
  flags: StoreFlags & { name: string; scopes: string; expires?: string; by?: string },
): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const scopes = flags.scopes.split(',').map(scope => scope.trim())
  const created = await createToken(store, {
    ...parseNewToken({ ...flags, scopes }, config.limits.keys()),
    by: authorOf(flags),
  })
  if (flags.json) print(flags, createdTokenDocument(created), String)
  else printCreatedToken(created)
}

async function list(load: ConfigLoader, flags: StoreFlags): Promise<void> {
  const { store } = await openStore(flags, load)
  const tokens = await listTokens(store)
  const where =
    store.environment === undefined ? 'in the unnamed environment' : `in environment '${store.environment}'`
  print(flags, tokens.map(tokenDocument), () =>
    tokens.length > 0
      ? tokenTable(tokens)
      : `There are no service tokens ${where}. To list the tokens of another environment, use --env <name>.`,
  )
}

async function show(load: ConfigLoader, token: string, flags: StoreFlags): Promise<void> {
  const { store } = await openStore(flags, load)
  const { id, record } = await findToken(store, await secretOf(token))
  print(flags, tokenDocument({ id, ...record }), () => tokenTable([{ id, ...record }]))
}

async function revoke(
  load: ConfigLoader,
  token: string,
  flags: StoreFlags & { yes?: boolean },
): Promise<void> {
  const { store } = await openStore(flags, load)
  const found = await findToken(store, await secretOf(token))
  const { id, record } = found
  await mustConfirm(`Revoke token '${id}' (${printable(record.name)})?`, flags)
  await revokeToken(store, found)
  print(flags, revokedTokenDocument(id), () => `Token '${id}' is revoked.`)
}

async function rotate(
  load: ConfigLoader,
  token: string,
  flags: StoreFlags & { overlap: string; by?: string; yes?: boolean },
): Promise<void> {
  const overlapMs = parseOverlap(flags.overlap, '--overlap')
  const { store } = await openStore(flags, load)
  const found = await findToken(store, await secretOf(token))
  const { id } = found
  if (overlapMs === 0 && !found.record.replacedBy) await mustConfirm(`Revoke token '${id}' now?`, flags)
  const rotated = await rotateToken(store, found, overlapMs, { by: authorOf(flags) })
  const { created, oldEndsAt, failure } = rotated
  if (flags.json) print(flags, rotatedTokenDocument(id, rotated), String)
  else printCreatedToken(created)
  if (failure) throw new AdminError('store', `The old token '${id}' is still valid: ${failure.message}`)
  if (flags.json) return
  console.error(
    `The old token '${id}' ${overlapMs === 0 ? 'is revoked' : `expires at ${timeAhead(oldEndsAt!, ' UTC')}`}.`,
  )
}

/** The token alone on standard output, so that it can be piped into a secret store. */
export function printCreatedToken({
  token,
  id,
  name,
  scopes,
  expiresAt,
}: Omit<CreatedToken, 'digest'>): void {
  const until = expiresAt ? `, valid until ${time(expiresAt)} UTC` : ''
  console.error(
    `Created a service token for '${printable(name)}' with the scopes ${scopes.join(', ')}${until}. It cannot be shown again. To revoke it: npx sluicegate tokens revoke ${id}`,
  )
  console.log(token)
}

export function tokenTable(tokens: readonly TokenInfo[]): string {
  const rows = tokens.map(({ id, name, scopes, createdAt, by, expiresAt, replacedBy }) => [
    ...[id, name, scopes.join(', '), time(createdAt), by ?? ''],
    (expiresAt ? timeAhead(expiresAt) : 'never') + (replacedBy ? `, replaced by ${replacedBy}` : ''),
  ])
  return table(['TOKEN', 'NAME', 'SCOPES', 'CREATED (UTC)', 'BY', 'EXPIRES'], rows)
}
