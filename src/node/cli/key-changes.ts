/** `npx sluicegate keys label`, `plan`, `expire`, `revoke` and `rotate`: changes of an existing key. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import {
  keyExpiryDocument,
  keyLabelDocument,
  keyPlanDocument,
  revokedKeyDocument,
  rotatedKeyDocument,
} from '../../ops/documents/keys.ts'
import { parseOverlap } from '../../ops/inputs.ts'
import { expireKey, revokeKey, rotateKey, setKeyLabel, setKeyPlan } from '../../ops/key-changes.ts'
import { findKey } from '../../ops/key-reference.ts'
import { parsePlan, parseShortText, parseTime, printable } from '../../ops/names.ts'
import { timeAhead } from '../../ops/times.ts'
import {
  addAuthorOptions,
  addStoreAndConfirmOptions,
  addStoreOptions,
  mustConfirm,
  openStore,
  openStoreForNewKey,
  type StoreFlags,
  secretOf,
} from './administration.ts'
import { withExamples } from './help.ts'
import { printCreatedKey } from './key-output.ts'
import type { ConfigLoader } from './load-config.ts'
import { print } from './output.ts'

const KEY = "ID of the key, such as 'acme/0f3a9c1d2b4e', or the key itself; - reads it from standard input"

export function keyChangeCommands(load: ConfigLoader): Command[] {
  const of = (name: string, summary: string, description: string, addOptions = addStoreOptions) =>
    addAuthorOptions(addOptions(new Command(name)))
      .summary(summary)
      .description(description)
      .argument('<key>', KEY)
  return [
    withExamples(
      of('label', 'change the label of a key', 'Change or remove the label of a key.')
        .argument('[text]', 'new label')
        .option('--clear', 'remove the label')
        .action(label.bind(null, load)),
      'keys label acme/0f3a9c1d2b4e ci',
      'keys label acme/0f3a9c1d2b4e --clear',
    ),
    withExamples(
      of('plan', 'change the plan of a key', 'Set or remove the plan of a key.')
        .argument('[plan]', 'one of the plans in the config')
        .option('--clear', "remove the plan of the key: the consumer's plan applies")
        .action(plan.bind(null, load)),
      'keys plan acme/0f3a9c1d2b4e pro',
      'keys plan acme/0f3a9c1d2b4e --clear',
    ),
    withExamples(
      of('expire', 'set when a key expires', 'Set when a key expires.')
        .argument('<when>', "'now', 'never', a duration such as '24h', or a time such as '2030-12-31'")
        .option('--yes', "do not ask for confirmation; without a terminal, 'now' needs this")
        .action(expire.bind(null, load)),
      'keys expire acme/0f3a9c1d2b4e 24h',
      'keys expire acme/0f3a9c1d2b4e never',
    ),
    withExamples(
      of(
        'revoke',
        'revoke a key',
        'Revoke a key for good, from the next request that reaches the store.',
        addStoreAndConfirmOptions,
      ).action(revoke.bind(null, load)),
      'keys revoke acme/0f3a9c1d2b4e',
    ),
    withExamples(
      of(
        'rotate',
        'replace a key by a new one',
        'Create a new key with the plan, label and lifetime of an old one, and let the old one expire.',
      )
        .option('--overlap <duration>', 'how long the old key stays valid; 0 revokes it at once', '24h')
        .option('--yes', "do not ask for confirmation; without a terminal, '--overlap 0' needs this")
        .action(rotate.bind(null, load)),
      'keys rotate acme/0f3a9c1d2b4e --overlap 7d',
    ),
  ]
}

async function label(
  load: ConfigLoader,
  key: string,
  text: string | undefined,
  flags: StoreFlags & { clear?: boolean },
): Promise<void> {
  const given = oneOf(text, flags, 'a label')
  const chosen = given === undefined ? undefined : parseShortText(given, 'label')
  const { store } = await openStore(flags, load)
  const found = await findKey(store, await secretOf(key))
  await setKeyLabel(store, found, chosen)
  const { id } = found
  print(flags, keyLabelDocument(id, chosen), () =>
    chosen ? `The label of key '${id}' is '${chosen}'.` : `Key '${id}' has no label.`,
  )
}

async function plan(
  load: ConfigLoader,
  key: string,
  text: string | undefined,
  flags: StoreFlags & { clear?: boolean },
): Promise<void> {
  const given = oneOf(text, flags, 'a plan')
  const { store, config } = await openStore(flags, load)
  const chosen = given === undefined ? undefined : parsePlan(given, config.plans)
  const found = await findKey(store, await secretOf(key))
  await setKeyPlan(store, found, chosen)
  const { id } = found
  print(
    flags,
    keyPlanDocument(id, chosen),
    () => `Key '${id}' is on ${chosen ? `plan '${chosen}'` : "the consumer's plan"}.`,
  )
}

async function expire(
  load: ConfigLoader,
  key: string,
  when: string,
  flags: StoreFlags & { yes?: boolean },
): Promise<void> {
  const at = parseTime(when)
  const isNow = at !== undefined && at <= new Date()
  const { store } = await openStore(flags, load)
  const found = await findKey(store, await secretOf(key))
  const { id } = found
  if (isNow) await mustConfirm(`Revoke key '${id}' now?`, flags)
  await expireKey(store, found, at)
  print(flags, keyExpiryDocument(id, at), () =>
    isNow ? `Key '${id}' is revoked.` : `Key '${id}' ${at ? expiryText(at) : 'never expires'}.`,
  )
}

async function revoke(load: ConfigLoader, key: string, flags: StoreFlags & { yes?: boolean }): Promise<void> {
  const { store } = await openStore(flags, load)
  const found = await findKey(store, await secretOf(key))
  const { label } = found.record
  await mustConfirm(`Revoke key '${found.id}'${label ? ` (${printable(label)})` : ''}?`, flags)
  await revokeKey(store, found)
  print(flags, revokedKeyDocument(found.id), () => `Key '${found.id}' is revoked.`)
}

async function rotate(
  load: ConfigLoader,
  key: string,
  flags: StoreFlags & { overlap: string; yes?: boolean },
): Promise<void> {
  const overlap = parseOverlap(flags.overlap, '--overlap')
  const { store, config } = await openStoreForNewKey(flags, load)
  const found = await findKey(store, await secretOf(key))
  if (overlap === 0 && !found.record.replacedBy) await mustConfirm(`Revoke key '${found.id}' now?`, flags)
  const rotated = await rotateKey(store, found, overlap)
  const { created, oldEndsAt } = rotated
  const { id } = found
  if (flags.json) print(flags, rotatedKeyDocument(id, rotated), String)
  else printCreatedKey(created, config.plans)
  if (flags.json) return
  console.error(`The old key '${id}' ${overlap === 0 ? 'is revoked' : expiryText(oldEndsAt)}.`)
}

export const expiryText = (at: Date) => `expires at ${timeAhead(at, ' UTC')}`

/** @returns undefined for --clear */
export function oneOf(
  text: string | undefined,
  { clear }: { clear?: boolean },
  what: string,
): string | undefined {
  if ((text === undefined) === Boolean(clear)) return text
  throw new AdminError('usage', `Use either ${what} or --clear.`)
}
