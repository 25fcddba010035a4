/** How administration writes: commands that run together, with their entry of the audit trail in the same script. */
import type { Command } from '../store/admin-connection.ts'
import { AdminError, notRedis } from './admin-error.ts'
import type { AdminStore, Listed, Write } from './admin-store-shape.ts'
import { auditedCommand } from './audited.ts'
import type { Entry } from './change.ts'
import { WRITE } from './lua.generated.ts'
import { addToIndex } from './sorted-index.ts'

/** Of a key that must exist, whatever its text. No record is like this. */
export const ANY = '*'

/** Of a key that must not exist. */
export const NONE = ''

/** How often a write is tried, if other writers are faster. */
const ATTEMPTS = 10

/**
 * Makes a change with its entry of the audit trail, all or nothing.
 * @returns false if it was not made, because of `onlyIf`
 * @throws AdminError `conflict` without the claim, `ended` without the author's token, `store`
 */
export async function write(store: AdminStore, change: Write): Promise<boolean> {
  const { keys, listed } = change
  if (!listed) return await run(store, change)
  const { index, member } = listed
  if (store.decisions.isCluster)
    return await store.onCluster.writeListed(store, listed, () => run(store, change))
  return await run(store, {
    ...change,
    keys: [...keys, index],
    commands: [addToIndex(index, [member]), ...change.commands],
  })
}

async function run(
  store: AdminStore,
  { keys, commands, onlyIf = [], claim, entry }: Write,
): Promise<boolean> {
  const conditions = [...onlyIf]
  // What adds to an index comes first: if Redis refuses it, there is no change, so there must be no entry either. A member without a record
  // does no harm.
  const isFirst = ([name]: Command) => name === 'ZADD'
  const all: Command[] = [
    ...commands.filter(isFirst),
    ['AUDIT'],
    ...commands.filter(command => !isFirst(command)),
  ]
  if (claim) {
    conditions.push([claim.key, claim.text])
    all.push(['SET', claim.key, claim.done, 'KEEPTTL'])
  }
  const command = await auditedCommand(store, {
    source: WRITE,
    keys: claim ? [...keys, claim.key] : keys,
    args: [conditions.length, ...conditions.flat(), ...all.flatMap(command => [command.length, ...command])],
    entry,
  })
  // As arguments of a call, the keys of a consumer with thousands of them would be too many for the stack.
  const [reply] = await store.runEach<string | number>([command])
  if (reply === 1) return true
  if (reply === 'ended') throw new AdminError(reply, reply)
  if (reply !== 0 || conditions.length === 0) throw notRedis()
  if (claim && onlyIf.length === 0) throw claimLost()
  return false
}

/**
 * Makes a write that depends on the text of a key, so that concurrent changes are not lost.
 * @param key with its environment
 * @param prepare is called again if another writer was faster. The key must be one of the write's. Undefined: there is nothing to write
 * @throws AdminError `conflict` if other writers are always faster, or have taken over the claim; `store`
 */
export async function writeFrom(
  store: AdminStore,
  key: string,
  prepare: (text: string | undefined) => Omit<Write, 'onlyIf'> | undefined,
): Promise<void> {
  let last: string | null | undefined
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const text = await store.run<string | null>('GET', key)
    const change = prepare(text ?? undefined)
    if (!change) return
    // The text is as it was, so the claim is not.
    if (change.claim && text === last) throw claimLost()
    last = text
    if (await write(store, { ...change, onlyIf: [[key, text ?? NONE]] })) return
  }
  throw new AdminError(
    'conflict',
    'Another process is changing the same record at this moment. Nothing was changed. Try again.',
  )
}

/** What becomes of a key. */
export interface NewText {
  /** Undefined: the key is deleted. */
  text: string | undefined
  /** Absent: never. */
  expiresAt?: Date | undefined
  /** What the change does. An unchanged text is then not written, and leaves no entry. Absent: a detail of another change. */
  entry?: Entry
}

/**
 * Changes the text of a key.
 * @param key without its environment
 * @param change is called again if another writer was faster
 * @param listed what the same write adds to an index
 * @throws AdminError `conflict` if other writers are always faster; `store`; errors of `change`
 */
export async function changeText(
  store: AdminStore,
  key: string,
  change: (text: string | undefined) => NewText,
  listed?: Listed,
): Promise<void> {
  const own = store.at(key)
  await writeFrom(store, own, before => {
    const { text, expiresAt, entry } = change(before)
    if (entry && text === before) return undefined
    const command: Command = text === undefined ? ['DEL', own] : setCommand(own, text, expiresAt)
    return { keys: [own], commands: [command], entry, listed }
  })
}

/** @param key with its environment. @param expiresAt undefined: never */
export const setCommand = (key: string, text: string, expiresAt: Date | undefined): Command => [
  ...(['SET', key, text] as const),
  ...(expiresAt ? ['PXAT', expiresAt.getTime()] : []),
]

/** Another request with the same Idempotency-Key may create what this one has claimed. */
export const claimLost = () =>
  new AdminError('conflict', 'A later request with the same Idempotency-Key has taken over. Use its reply.')
