/** `npx sluicegate keys label`, `plan`, `expire`, `revoke` and `rotate`: what becomes of a key. */
import { Command } from 'commander'
import { parseDuration } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { expireKey, revokeKey, rotateKey, setKeyLabel, setKeyPlan } from '../../ops/key-changes.ts'
import { findKey } from '../../ops/key-reference.ts'
import { parseTime, planName, shortText } from '../../ops/names.ts'
import { destructive, mustConfirm, onStore, openStore, type StoreFlags, secretOf } from './administration.ts'
import { tellOfKey } from './key-output.ts'
import type { ConfigLoader } from './load-config.ts'
import { print, timeAhead } from './output.ts'

const KEY = "its id as in 'acme/0f3a9c1d2b4e', or the key itself; - reads it from standard input"

export function keyChangeCommands(load: ConfigLoader): Command[] {
  return [
    onStore(new Command('label'))
      .description('Give a key another label.')
      .argument('<key>', KEY)
      .argument('[text]')
      .option('--clear', 'take the label away')
      .action(label.bind(null, load)),
    onStore(new Command('plan'))
      .description('Give a key a plan of its own.')
      .argument('<key>', KEY)
      .argument('[plan]')
      .option('--clear', "take it away: the consumer's plan counts")
      .action(plan.bind(null, load)),
    onStore(new Command('expire'))
      .description('Say when a key ends.')
      .argument('<key>', KEY)
      .argument('<when>', "'now', 'never', a duration such as '24h', or a time such as '2030-12-31'")
      .option('--yes', 'do not ask; `now` needs it where no terminal is there to ask on')
      .action(expire.bind(null, load)),
    destructive(new Command('revoke'))
      .description('End a key for good, from the next request that the store decides.')
      .argument('<key>', KEY)
      .action(revoke.bind(null, load)),
    onStore(new Command('rotate'))
      .description('Make a new key in the place of an old one: same plan, label and time to live.')
      .argument('<key>', KEY)
      .option('--overlap <duration>', 'how long the old one is still good; 0 ends it at once', '24h')
      .option('--yes', 'do not ask; `--overlap 0` needs it where no terminal is there to ask on')
      .action(rotate.bind(null, load)),
  ]
}

async function label(
  load: ConfigLoader,
  key: string,
  text: string | undefined,
  flags: StoreFlags & { clear?: boolean },
): Promise<void> {
  const given = oneOf(text, flags, 'a label')
  const chosen = given === undefined ? undefined : shortText(given, 'label')
  const { store } = await openStore(flags, load)
  const found = await findKey(store, await secretOf(key))
  await setKeyLabel(store, found, chosen)
  const { id } = found
  print(flags, { id, label: chosen ?? null }, () =>
    chosen ? `${id} is labelled ${chosen}.` : `${id} has no label.`,
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
  const chosen = given === undefined ? undefined : planName(given, config.plans)
  const found = await findKey(store, await secretOf(key))
  await setKeyPlan(store, found, chosen)
  const { id } = found
  print(
    flags,
    { id, plan: chosen ?? null },
    () => `${id} is on ${chosen ? `plan ${chosen}` : "the consumer's plan"}.`,
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
  if (isNow) await mustConfirm(`End ${id} now?`, flags)
  await expireKey(store, found, at)
  print(flags, { id, expiresAt: at ?? null }, () =>
    isNow ? `${id} has ended.` : at ? `${id} ends ${timeAhead(at)}, UTC.` : `${id} never expires.`,
  )
}

async function revoke(load: ConfigLoader, key: string, flags: StoreFlags & { yes?: boolean }): Promise<void> {
  const { store } = await openStore(flags, load)
  const found = await findKey(store, await secretOf(key))
  const { label } = found.record
  await mustConfirm(`Revoke ${found.id}${label ? ` (${label})` : ''}?`, flags)
  await revokeKey(store, found)
  print(flags, { id: found.id, revoked: true }, () => `${found.id} is revoked.`)
}

async function rotate(
  load: ConfigLoader,
  key: string,
  flags: StoreFlags & { overlap: string; yes?: boolean },
): Promise<void> {
  const overlap = flags.overlap === '0' ? 0 : parseDuration(flags.overlap)
  if (overlap === undefined) throw new AdminError('usage', "--overlap: write a duration such as '24h', or 0.")
  const { store, config } = await openStore(flags, load)
  const found = await findKey(store, await secretOf(key))
  if (overlap === 0 && !found.record.replacedBy) await mustConfirm(`End ${found.id} at once?`, flags)
  const { created, oldEndsAt, failure } = await rotateKey(store, found, overlap / 1000)
  const { id } = found
  if (flags.json) print(flags, { ...created, replaces: { id, expiresAt: oldEndsAt ?? null } }, String)
  else tellOfKey(created, config.plans)
  if (failure) throw new AdminError('store', `${id} is still good: ${failure.message}`)
  if (flags.json) return
  console.error(overlap === 0 ? `${id} has ended.` : `${id} ends ${timeAhead(oldEndsAt!)}, UTC.`)
}

/** @returns undefined for --clear */
function oneOf(text: string | undefined, { clear }: { clear?: boolean }, what: string): string | undefined {
  if ((text === undefined) === Boolean(clear)) return text
  throw new AdminError('usage', `Give ${what}, or --clear: one of them.`)
}
