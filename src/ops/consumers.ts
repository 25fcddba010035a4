/**
 * Operations on consumers: list, show, set the plan, block, remove. A change applies from the next request that reaches the store.
 * Changes are made by compare-and-set, so that concurrent changes are not lost.
 */
import { didYouMean } from '../config/check/did-you-mean.ts'
import { knownPlan, type Rule } from '../config/compile-rule.ts'
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
import { type ConsumerRecord, formatConsumer, isBlocked, parseConsumer } from '../store/records.ts'
import type { Command } from './admin-connection.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { consumerFacts } from './audit-facts.ts'
import type { AuditAction } from './change.ts'
import { eraseCaller, hasRefusals } from './erase-caller.ts'
import { pointersToDrop } from './key-changes.ts'
import { namesNear, readFirstKeys } from './key-pages.ts'
import {
  type KeyInfo,
  listConsumerNames,
  listKeys,
  readKeys,
  removeFromIndexIfEmpty,
  withIds,
  writeOfConsumer,
} from './keys.ts'
import { removeFromIndex, sortedKey } from './sorted-index.ts'
import { changeText, write } from './write.ts'

export interface ConsumerInfo extends ConsumerRecord {
  consumer: string
  keys: readonly KeyInfo[]
  /** Absent: these are all. */
  hasMoreKeys?: true
}

export const listConsumers = async (store: AdminStore): Promise<ConsumerInfo[]> =>
  await readConsumers(store, await listConsumerNames(store))

/** @param mostKeys of each consumer. Absent: all */
export async function readConsumers(
  store: AdminStore,
  consumers: readonly string[],
  mostKeys?: number,
): Promise<ConsumerInfo[]> {
  const texts = await textsOf(store, consumers)
  const keys = await keysOf(store, consumers, mostKeys)
  return consumers.map((consumer, i) => ({ consumer, ...parseConsumer(texts[i] ?? ''), ...keys[i]! }))
}

async function keysOf(
  store: AdminStore,
  consumers: readonly string[],
  most: number | undefined,
): Promise<Pick<ConsumerInfo, 'keys' | 'hasMoreKeys'>[]> {
  if (most !== undefined) {
    const first = await readFirstKeys(store, consumers, most)
    return first.map(({ keys, hasMore }) => ({ keys, ...(hasMore && { hasMoreKeys: true as const }) }))
  }
  const keys = Map.groupBy(await listKeys(store, consumers), ({ consumer }) => consumer)
  return consumers.map(consumer => ({ keys: keys.get(consumer) ?? [] }))
}

/** Consumers that are blocked now, or have overrides that have not ended. */
export async function listExceptionalConsumers(
  store: AdminStore,
): Promise<(Pick<ConsumerInfo, 'consumer'> & ConsumerRecord)[]> {
  const consumers = await listConsumerNames(store)
  const texts = await textsOf(store, consumers)
  return consumers
    .map((consumer, i) => ({ consumer, ...parseConsumer(texts[i] ?? '') }))
    .map(record => ({ ...record, overrides: record.overrides.filter(({ until }) => !isPast(until)) }))
    .filter(record => isBlocked(record, Date.now() * 1000) || record.overrides.length > 0)
}

const isPast = (until: number | undefined) => until !== undefined && until <= Date.now() * 1000

function textsOf(store: AdminStore, consumers: readonly string[]): Promise<(string | null)[]> {
  return store.runEach<string | null>(consumers.map(consumer => ['GET', store.at(consumerKey(consumer))]))
}

/**
 * @param mostKeys absent: all
 * @throws AdminError `not-found` if the store has no key and no setting of the consumer, and its list of consumers lacks it
 */
export async function showConsumer(
  store: AdminStore,
  consumer: string,
  mostKeys?: number,
): Promise<ConsumerInfo> {
  const text = await store.run<string | null>('GET', store.at(consumerKey(consumer)))
  const [keys] = await keysOf(store, [consumer], mostKeys)
  if (text === null && keys!.keys.length === 0) {
    const all = await namesNear(store, consumer)
    if (!all.includes(consumer)) throw unknownConsumerError(consumer, all)
  }
  return { consumer, ...parseConsumer(text ?? ''), ...keys! }
}

/** Only `showConsumer` throws this: the store does not know consumers of tokens before something is set for them. */
function unknownConsumerError(consumer: string, all: readonly string[]): AdminError {
  const others = all.slice(0, 10)
  const list = others.length > 0 ? ` Consumers: ${others.join(', ')}${all.length > 10 ? ', …' : ''}.` : ''
  const meant = didYouMean(consumer, all)
  return new AdminError('not-found', `The store has no consumer '${consumer}'.${meant}${list}`)
}

export interface ConsumerChange {
  /** The record before the change. */
  before: ConsumerRecord
  record: ConsumerRecord
  /** False: the record was like this before, and nothing was written. */
  isChanged: boolean
  /** The store did not know the consumer before, so its name may be misspelled. */
  isNew: boolean
}

/**
 * Changes the record of a consumer.
 * @param action for the audit trail
 * @param change returns the new record. It is called again if another writer was faster.
 * @throws AdminError `conflict`, `store`, and errors of `change`
 */
export async function changeConsumer(
  store: AdminStore,
  consumer: string,
  action: AuditAction,
  change: (record: ConsumerRecord) => ConsumerRecord,
): Promise<ConsumerChange> {
  const key = consumerKey(consumer)
  const stored = (await store.run<string | null>('GET', store.at(key))) ?? undefined
  let before = parseConsumer(stored ?? '')
  let record = change(before)
  // Returns before the consumer is listed: a change without effect must not list a consumer that has nothing stored.
  if (textOf(record) === stored) return { before, record, isChanged: false, isNew: false }
  let isNew = false
  await writeOfConsumer(store, consumer, async isListed => {
    isNew = isListed
    await changeText(
      store,
      key,
      text => {
        before = parseConsumer(text ?? '')
        record = change(before)
        const after = textOf(record)
        return after === undefined ? undefined : { text: after }
      },
      () => ({ action, target: consumer, before: consumerFacts(before), after: consumerFacts(record) }),
    )
  })
  return { before, record, isChanged: true, isNew }
}

/** The text of a record. @returns undefined for an empty record, which is not stored */
function textOf(record: ConsumerRecord): string | undefined {
  const { plan, blockedAt, overrides } = record
  return plan || blockedAt || overrides.length > 0 ? formatConsumer(record) : undefined
}

/** @param plan undefined: the default plan. A plan of a key takes precedence. */
export function setPlan(
  store: AdminStore,
  consumer: string,
  plan: string | undefined,
): Promise<ConsumerChange> {
  return changeConsumer(store, consumer, 'consumers.plan', ({ plan: _, ...rest }) => ({
    ...rest,
    ...(plan && { plan }),
  }))
}

/** The plan of a key comes before that of its consumer, so these keys stay on their plans. */
export function keysOnOtherPlans(keys: readonly KeyInfo[], plan: string): KeyInfo[] {
  return keys.filter(key => key.plan !== undefined && key.plan !== plan)
}

export interface PlanChange extends ConsumerChange {
  keysOnOtherPlans: readonly KeyInfo[]
}

/** As `setPlan`, and finds the keys that keep another plan. @param plans of the config */
export async function changePlan(
  store: AdminStore,
  consumer: string,
  plan: string | undefined,
  plans: readonly string[],
): Promise<PlanChange> {
  const change = await setPlan(store, consumer, plan)
  const keys = await listKeys(store, consumer)
  return { ...change, keysOnOtherPlans: keysOnOtherPlans(keys, knownPlan(plans, plan)) }
}

export interface Block {
  by?: string
  /** null: until the consumer is unblocked. */
  until?: Date | null
  reason?: string
}

/** Blocks a consumer. If it is blocked already, the start stays. The end and the reason stay too, unless new ones are given. */
export function blockConsumer(
  store: AdminStore,
  consumer: string,
  { by, until, reason }: Block = {},
): Promise<ConsumerChange> {
  return changeConsumer(store, consumer, 'consumers.block', record => {
    const now = new Date()
    const isBlockedNow = isBlocked(record, now.getTime() * 1000)
    if (isBlockedNow && until === undefined && !reason) return record
    const others = withoutBlock(record)
    const before = isBlockedNow ? record : others
    const { blockedAt = now } = before
    const endsAt = until === undefined ? before.blockedUntil : until && until.getTime() * 1000
    const [blockedBy, newReason] = [by ?? before.blockedBy, reason ?? before.reason]
    return {
      ...others,
      blockedAt,
      ...(endsAt && { blockedUntil: endsAt }),
      ...(blockedBy && { blockedBy }),
      ...(newReason && { reason: newReason }),
    }
  })
}

function withoutBlock(record: ConsumerRecord): ConsumerRecord {
  const { blockedAt: _, blockedUntil: __, blockedBy: ___, reason: ____, ...others } = record
  return others
}

/** @throws AdminError `not-found` for an unknown consumer: the name is misspelled, and the intended consumer is still blocked */
export async function unblockConsumer(store: AdminStore, consumer: string): Promise<ConsumerChange> {
  const result = await changeConsumer(store, consumer, 'consumers.unblock', withoutBlock)
  if (!result.isChanged) await showConsumer(store, consumer)
  return result
}

/**
 * The keys that `removeConsumer` will remove.
 * @throws AdminError `not-found` for an unknown consumer
 */
export async function keysToRemove(store: AdminStore, consumer: string): Promise<readonly KeyInfo[]> {
  try {
    return (await showConsumer(store, consumer)).keys
  } catch (error) {
    // Isolates may have sent refusals after the consumer was removed.
    if (await hasRefusals(store, consumer)) return []
    throw error
  }
}

/**
 * Removes all keys of a consumer, its record, the counters of rules `by: 'consumer'` in both modes, and its refusals in the statistics.
 * Counters of combinations such as `['consumer', 'route']` have Redis keys that cannot be listed. They expire by themselves.
 * @param rules the rules of the config; some of them keep their counters in Redis keys of their own
 * @returns the number of keys that were valid until now
 */
export async function removeConsumer(
  store: AdminStore,
  consumer: string,
  rules: readonly Rule[],
): Promise<{ keys: number }> {
  const index = store.at(credentialIndexKey(consumer))
  const digests = await store.run<string[]>('SMEMBERS', index)
  const { length: validKeys } = await readKeys(store, withIds(consumer, digests))
  const both = identityStateKey({ consumer }, [[BOTH_MODES, undefined]])
  const states = [consumerStateKey(consumer), consumerStateKey(consumer, 'test'), both]
  const sideKeys = rules.flatMap(({ counting: { state: kind }, tag }) => {
    if (kind !== 'log' && kind !== 'held') return []
    const own = states.map(state => sideKey(state, kind, tag))
    return kind === 'log' ? own.flatMap(key => [key, chunksKey(key)]) : own
  })
  const keys = digests.map(digest => credentialKey(consumer, digest))
  const all = [
    ...keys,
    consumerKey(consumer),
    ...states,
    ...states.map(reservedKey),
    ...new Set(sideKeys),
  ].map(store.at)
  const record = parseConsumer((await store.run<string | null>('GET', store.at(consumerKey(consumer)))) ?? '')
  const { plan, blockedAt, overrides } = record
  // Comes first, because a repeated call still finds the keys if this one ends in between.
  await eraseCaller(store, consumer)
  const pointers = await pointersToDrop(store, consumer, digests)
  await write(store, {
    keys: [...all, index, sortedKey(index), ...pointers.keys],
    commands: [
      ...pointers.commands,
      ...chunksOf(all).map((some): Command => ['DEL', ...some]),
      // The index itself stays, because a key that is being created at this moment is added to it.
      ...chunksOf(digests).flatMap(some => removeFromIndex(index, some)),
    ],
    entry: {
      action: 'consumers.remove',
      target: consumer,
      before: {
        keys: validKeys,
        ...(plan && { plan }),
        ...(blockedAt && { blockedAt }),
        overrides: overrides.length,
      },
    },
  })
  await removeFromIndexIfEmpty(store, consumer)
  return { keys: validKeys }
}

/** Lua can unpack about 8,000 values at once. */
function chunksOf(values: readonly string[]): string[][] {
  const chunks: string[][] = []
  for (let from = 0; from < values.length; from += 1000) chunks.push(values.slice(from, from + 1000))
  return chunks
}
