/**
 * Consumers: their plan, whether they are blocked, and everything else of theirs. Each change counts from the next request that the
 * store decides, and is made by what the record was, so that two people cannot lose each other's.
 */
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Rule } from '../config/compile-rule.ts'
import {
  CONSUMER_INDEX_KEY,
  consumerKey,
  consumerStateKey,
  credentialIndexKey,
  credentialKey,
  ownKey,
} from '../store/keys.ts'
import { type ConsumerRecord, formatConsumer, isBlocked, parseConsumer } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'
import { dropPointers } from './key-changes.ts'
import { consumersOf, enlist, type KeyInfo, listKeys } from './keys.ts'

export interface ConsumerInfo extends ConsumerRecord {
  consumer: string
  keys: readonly KeyInfo[]
}

export async function listConsumers(store: AdminStore): Promise<ConsumerInfo[]> {
  const consumers = await consumersOf(store)
  const texts = await textsOf(store, consumers)
  const keys = Map.groupBy(await listKeys(store), ({ consumer }) => consumer)
  return consumers.map((consumer, i) => ({
    consumer,
    ...parseConsumer(texts[i] ?? ''),
    keys: keys.get(consumer) ?? [],
  }))
}

/** Those who are blocked now, or have overrides that have not ended. */
export async function exceptionalConsumers(
  store: AdminStore,
): Promise<(Pick<ConsumerInfo, 'consumer'> & ConsumerRecord)[]> {
  const consumers = await consumersOf(store)
  const texts = await textsOf(store, consumers)
  return consumers
    .map((consumer, i) => ({ consumer, ...parseConsumer(texts[i] ?? '') }))
    .map(record => ({ ...record, overrides: record.overrides.filter(({ until }) => !isPast(until)) }))
    .filter(record => isBlocked(record, Date.now() * 1000) || record.overrides.length > 0)
}

const isPast = (until: number | undefined) => until !== undefined && until <= Date.now() * 1000

function textsOf(store: AdminStore, consumers: readonly string[]): Promise<(string | null)[]> {
  return store.askEach<string, string | null>(consumers, (pipeline, consumer) =>
    pipeline.get(store.at(consumerKey(consumer))),
  )
}

/** @throws AdminError when nothing is known of the consumer, not even that it had something once */
export async function showConsumer(store: AdminStore, consumer: string): Promise<ConsumerInfo> {
  const text = await store.ask(redis => redis.get<string>(store.at(consumerKey(consumer))))
  const keys = await listKeys(store, consumer)
  if (text === null && keys.length === 0) {
    const all = await consumersOf(store)
    if (!all.includes(consumer)) throw unknown(consumer, all)
  }
  return { consumer, ...parseConsumer(text ?? ''), keys }
}

/** Tokens name consumers that nothing is known of here until something is set for them, so that is no error elsewhere. */
function unknown(consumer: string, all: readonly string[]): AdminError {
  const others = all.slice(0, 10)
  const list = others.length > 0 ? ` Consumers: ${others.join(', ')}${all.length > 10 ? ', …' : ''}.` : ''
  const meant = didYouMean(consumer, all)
  return new AdminError('not-found', `The store has no consumer '${consumer}'.${meant}${list}`)
}

export interface ChangeResult {
  /** What it was until now. */
  before: ConsumerRecord
  record: ConsumerRecord
  /** Otherwise it was like this already, and nothing was written. */
  isChanged: boolean
  /** The store knew no consumer of this name before: perhaps it is misspelled. */
  isNew: boolean
  /** If it is new: the names of the other consumers in the store. */
  others?: readonly string[]
}

export async function changeConsumer(
  store: AdminStore,
  consumer: string,
  change: (record: ConsumerRecord) => ConsumerRecord,
): Promise<ChangeResult> {
  const key = consumerKey(consumer)
  const now = (await store.ask(redis => redis.get<string>(store.at(key)))) ?? undefined
  let before = parseConsumer(now ?? '')
  let record = change(before)
  // A change that is refused, or is none, must leave no name in the list with nothing behind it.
  if (textOf(record) === now) return { before, record, isChanged: false, isNew: false }
  const isNew = await enlist(store, consumer)
  const others = isNew ? (await consumersOf(store)).filter(name => name !== consumer) : undefined
  await store.change(key, text => {
    before = parseConsumer(text ?? '')
    record = change(before)
    const after = textOf(record)
    return after === undefined ? undefined : { text: after, expiry: 'never' }
  })
  return { before, record, isChanged: true, isNew, ...(others && { others }) }
}

/** @returns undefined where nothing is left to tell */
function textOf(record: ConsumerRecord): string | undefined {
  const { plan, blockedAt, overrides } = record
  return plan || blockedAt || overrides.length > 0 ? formatConsumer(record) : undefined
}

/** @param plan undefined: the default plan, where a key names none */
export function setPlan(
  store: AdminStore,
  consumer: string,
  plan: string | undefined,
): Promise<ChangeResult> {
  return changeConsumer(store, consumer, ({ plan: _, ...rest }) => ({ ...rest, ...(plan && { plan }) }))
}

export interface Block {
  by?: string
  /** null: until it is unblocked. */
  until?: Date | null
  reason?: string
}

/** One that is blocked stays so since then, as long and for the reason it was unless another is given. */
export function blockConsumer(
  store: AdminStore,
  consumer: string,
  { by, until, reason }: Block = {},
): Promise<ChangeResult> {
  return changeConsumer(store, consumer, record => {
    const now = new Date()
    const isStill = isBlocked(record, now.getTime() * 1000)
    if (isStill && until === undefined && !reason) return record
    const others = withoutBlock(record)
    const before = isStill ? record : others
    const { blockedAt = now } = before
    const endsAt = until === undefined ? before.blockedUntil : until && until.getTime() * 1000
    const [who, why] = [by ?? before.blockedBy, reason ?? before.reason]
    return {
      ...others,
      blockedAt,
      ...(endsAt && { blockedUntil: endsAt }),
      ...(who && { blockedBy: who }),
      ...(why && { reason: why }),
    }
  })
}

function withoutBlock(record: ConsumerRecord): ConsumerRecord {
  const { blockedAt: _, blockedUntil: __, blockedBy: ___, reason: ____, ...others } = record
  return others
}

/** @throws AdminError when nothing is known of the consumer: then another is meant, and is blocked still */
export async function unblockConsumer(store: AdminStore, consumer: string): Promise<ChangeResult> {
  const result = await changeConsumer(store, consumer, withoutBlock)
  if (!result.isChanged) await showConsumer(store, consumer)
  return result
}

/**
 * All keys, the record, and what has been counted for the consumer as a whole. What is counted for parts of what it does
 * (`consumer` and `route`, say) has keys that cannot be listed; it expires by itself.
 * @param rules of the config, for the keys of their own that they have
 * @returns the number of keys that were good until now
 */
export async function removeConsumer(
  store: AdminStore,
  consumer: string,
  rules: readonly Rule[],
): Promise<{ keys: number }> {
  const index = credentialIndexKey(consumer)
  const { length: good } = await listKeys(store, consumer)
  const digests = await store.ask(redis => redis.smembers(store.at(index)))
  const state = consumerStateKey(consumer)
  const ownKeys = rules.flatMap(({ counting: { state: kind }, tag }) =>
    kind === 'log' || kind === 'held' ? [ownKey(state, kind, tag)] : [],
  )
  const keys = digests.map(digest => credentialKey(consumer, digest))
  const all = [...keys, consumerKey(consumer), state, ...new Set(ownKeys)]
  await store.ask(redis => {
    const transaction = redis.multi().del(...all.map(store.at))
    // Not the index itself: a key that is being made just now stays in it.
    if (digests.length > 0) transaction.srem(store.at(index), ...digests)
    return transaction.exec()
  })
  await store.ask(redis => redis.srem(store.at(CONSUMER_INDEX_KEY), consumer))
  await dropPointers(store, consumer, digests)
  return { keys: good }
}
