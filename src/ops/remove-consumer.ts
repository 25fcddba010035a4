/**
 * Removes a consumer: its keys, its record, its counters, and its refusals in the statistics. As many keys as one script can remove go in one
 * step with the rest. If there are more, the consumer is blocked first, and the script that blocks it has the entry of the audit trail. Should this
 * process end in between, the consumer stays blocked, and a repeated removal finishes the first one.
 */
import type { Rule } from '../config/compile-rule.ts'
import { BOTH_MODES } from '../config/identity-parts.ts'
import {
  chunksKey,
  consumerKey,
  consumerStateKey,
  credentialIndexKey,
  credentialKey,
  identityStateKey,
  reservedKey,
  sideKey,
} from '../store/keys.ts'
import { type ConsumerRecord, formatConsumer, parseConsumer } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import type { Entry } from './change.ts'
import { readConsumer } from './consumers.ts'
import { eraseCaller, hasRefusals } from './erase-caller.ts'
import { pointersToDrop } from './key-changes.ts'
import type { ConsumerKeys } from './key-pages.ts'
import { listedConsumer, removeFromIndexIfEmpty } from './keys.ts'
import { readIndex, removeFromIndex } from './sorted-index.ts'
import { changeText, write } from './write.ts'

/**
 * The most keys that one script removes: 1 MB, and about 10 ms of Redis. Lua can unpack about 8,000 values at once. Three requests are made for
 * each script, so a Worker of the free plan, with its 50 subrequests, removes about 20,000 keys before the removal has to be repeated.
 */
const MAX_AT_ONCE = 2000

/** Why a consumer is blocked whose removal was interrupted. */
const UNFINISHED = 'Its removal was not finished. Remove it again.'

/**
 * A consumer before `removeConsumer`, with some of its keys.
 * @throws AdminError `not-found` for an unknown consumer
 */
export async function keysToRemove(store: AdminStore, consumer: string): Promise<ConsumerKeys> {
  try {
    return await readConsumer(store, consumer, MAX_AT_ONCE)
  } catch (error) {
    // Isolates may have sent refusals after the consumer was removed.
    if (error instanceof AdminError && error.kind === 'not-found' && (await hasRefusals(store, consumer)))
      return { consumer, keys: [] }
    throw error
  }
}

/**
 * Removes all keys of a consumer, its record, the counters of rules `by: 'consumer'` in both modes, and its refusals in the statistics.
 * Counters of combinations such as `['consumer', 'route']` have Redis keys that cannot be listed. They expire by themselves.
 * @param rules the rules of the config; some of them keep their counters in Redis keys of their own
 * @returns the number of keys that were valid until now
 * @throws AdminError `not-found` if nothing of the consumer is in the store
 */
export async function removeConsumer(
  store: AdminStore,
  consumer: string,
  rules: readonly Rule[],
): Promise<{ keys: number }> {
  // Comes first, because a repeated call still finds the consumer if this one ends in between.
  const erased = await eraseCaller(store, consumer)
  if (erased === 0) await readConsumer(store, consumer, 1)
  const index = store.at(credentialIndexKey(consumer))
  let keys = 0
  for (let batch = 0; ; batch++) {
    const { members } = await readIndex(store, { index }, MAX_AT_ONCE + 1)
    const isLast = members.length <= MAX_AT_ONCE
    const digests = members.slice(0, MAX_AT_ONCE)
    const records = digests.map(digest => store.at(credentialKey(consumer, digest)))
    // Not by `run`, because as arguments of a call they can be too many for the stack.
    const [valid = 0] = await store.runEach<number>(records.length > 0 ? [['EXISTS', ...records]] : [])
    keys += valid
    if (batch === 0 && !isLast) await beginRemoval(store, consumer, index)
    const rest = isLast ? await everythingElse(store, consumer, rules, valid) : {}
    await removeKeys(store, { consumer, index, digests, records }, rest)
    if (isLast) break
  }
  await removeFromIndexIfEmpty(store, consumer)
  return { keys }
}

/** Blocks the consumer until its removal is finished. Does nothing if an earlier call has done it. */
async function beginRemoval(store: AdminStore, consumer: string, index: string): Promise<void> {
  const keys = await store.run<number>('ZCARD', index)
  const blocked = (text: string | undefined) => {
    const before = parseConsumer(text ?? '')
    const { blockedUntil: _, blockedAt = new Date(), ...others } = before
    const after = { ...others, blockedAt, reason: UNFINISHED, removedAt: new Date() }
    return {
      text: text && before.removedAt ? text : formatConsumer(after),
      entry: entryOf(consumer, before, keys),
    }
  }
  // Another process may have removed the consumer meanwhile.
  await changeText(store, consumerKey(consumer), blocked, listedConsumer(store, consumer))
}

const entryOf = (consumer: string, { plan, blockedAt, overrides }: ConsumerRecord, keys: number): Entry => ({
  ...{ action: 'consumers.remove', target: consumer },
  before: { keys, plan, blockedAt, overrides: overrides.length },
})

/** What is removed together with the last keys. @param keys how many of these are valid */
async function everythingElse(
  store: AdminStore,
  consumer: string,
  rules: readonly Rule[],
  keys: number,
): Promise<{ others: string[]; entry?: Entry }> {
  const both = identityStateKey({ consumer }, [[BOTH_MODES, undefined]])
  const states = [consumerStateKey(consumer), consumerStateKey(consumer, 'test'), both]
  const sideKeys = rules.flatMap(({ counting: { state: kind }, tag }) => {
    if (kind !== 'log' && kind !== 'held') return []
    const own = states.map(state => sideKey(state, kind, tag))
    return kind === 'log' ? own.flatMap(key => [key, chunksKey(key)]) : own
  })
  const record = store.at(consumerKey(consumer))
  const before = parseConsumer((await store.run<string | null>('GET', record)) ?? '')
  return {
    others: [record, ...[...states, ...states.map(reservedKey), ...new Set(sideKeys)].map(store.at)],
    ...(!before.removedAt && { entry: entryOf(consumer, before, keys) }),
  }
}

interface SomeKeys {
  consumer: string
  index: string
  digests: readonly string[]
  records: readonly string[]
}

/** Removes some keys of a consumer. @param others what is removed in the same step */
async function removeKeys(
  store: AdminStore,
  { consumer, index, digests, records }: SomeKeys,
  { others = [], entry }: { others?: readonly string[]; entry?: Entry },
): Promise<void> {
  const pointers = await pointersToDrop(store, consumer, digests)
  const removed = [...records, ...others]
  await write(store, {
    keys: [...removed, index, ...pointers.keys],
    commands: [
      ...pointers.commands,
      ['DEL', ...removed],
      // The index itself stays, because a key that is being created at this moment is added to it.
      ...(digests.length > 0 ? [removeFromIndex(index, digests)] : []),
    ],
    entry,
  })
}
