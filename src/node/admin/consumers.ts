/**
 * Consumers: their plan, whether they are blocked, and everything else of theirs. Each change counts from the next request,
 * and is made by what the record was, so that two people cannot lose each other's.
 */

import type { Rule } from '../../config/compile-rule.ts'
import {
  CONSUMER_INDEX_KEY,
  consumerKey,
  consumerStateKey,
  credentialIndexKey,
  credentialKey,
  logKey,
} from '../../store/keys.ts'
import { type ConsumerRecord, formatConsumer, parseConsumer } from '../../store/records.ts'
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
  const texts = await store.askEach<string, string | null>(consumers, (pipeline, consumer) =>
    pipeline.get(store.at(consumerKey(consumer))),
  )
  const keys = Map.groupBy(await listKeys(store), ({ consumer }) => consumer)
  return consumers.map((consumer, i) => ({
    consumer,
    ...parseConsumer(texts[i] ?? ''),
    keys: keys.get(consumer) ?? [],
  }))
}

/** @throws AdminError when nothing is known of the consumer */
export async function showConsumer(store: AdminStore, consumer: string): Promise<ConsumerInfo> {
  const text = await store.ask(redis => redis.get<string>(store.at(consumerKey(consumer))))
  const keys = await listKeys(store, consumer)
  if (text === null && keys.length === 0) throw await unknown(store, consumer)
  return { consumer, ...parseConsumer(text ?? ''), keys }
}

/** Tokens name consumers that nothing is known of here until something is set for them, so that is no error elsewhere. */
async function unknown(store: AdminStore, consumer: string): Promise<AdminError> {
  const all = await consumersOf(store)
  const others = all.filter(name => name !== consumer).slice(0, 10)
  const list = others.length > 0 ? ` There are ${others.join(', ')}${all.length > 10 ? ', …' : ''}.` : ''
  return new AdminError(
    'not-found',
    `Nothing is known of ${consumer}: no keys, no plan, no overrides.${list}`,
  )
}

export interface ChangeResult {
  record: ConsumerRecord
  /** Nobody of this name was known before: perhaps it is misspelled. */
  isNew: boolean
}

export async function changeConsumer(
  store: AdminStore,
  consumer: string,
  change: (record: ConsumerRecord) => ConsumerRecord,
): Promise<ChangeResult> {
  const isNew = await enlist(store, consumer)
  let record: ConsumerRecord = { overrides: [] }
  await store.change(consumerKey(consumer), text => {
    record = change(parseConsumer(text ?? ''))
    const { plan, blockedAt, overrides } = record
    // Nothing is left to tell.
    if (!plan && !blockedAt && overrides.length === 0) return undefined
    return { text: formatConsumer(record), expiry: 'never' }
  })
  return { record, isNew }
}

/** @param plan undefined: the default plan, where a key names none */
export function setPlan(
  store: AdminStore,
  consumer: string,
  plan: string | undefined,
): Promise<ChangeResult> {
  return changeConsumer(store, consumer, ({ plan: _, ...rest }) => ({ ...rest, ...(plan && { plan }) }))
}

export function blockConsumer(store: AdminStore, consumer: string, reason?: string): Promise<ChangeResult> {
  return changeConsumer(store, consumer, ({ reason: _, ...rest }) => ({
    ...rest,
    blockedAt: new Date(),
    ...(reason && { reason }),
  }))
}

export function unblockConsumer(store: AdminStore, consumer: string): Promise<ChangeResult> {
  return changeConsumer(store, consumer, ({ blockedAt: _, reason: __, ...rest }) => rest)
}

/**
 * All keys, the record, and what has been counted for the consumer as a whole. What is counted for parts of what it does
 * (`consumer` and `route`, say) has keys that cannot be listed; it expires by itself.
 * @param rules of the config, for the logs they keep
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
  const logs = rules
    .filter(({ algorithm }) => algorithm === 'sliding-log')
    .map(({ tag }) => logKey(state, tag))
  const keys = digests.map(digest => credentialKey(consumer, digest))
  const all = [...keys, consumerKey(consumer), state, ...new Set(logs)]
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
