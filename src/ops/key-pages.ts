/** Keys and consumers in pages, in the order of consumers and of ids. A page costs a bounded number of requests, however many there are. */
import { CONSUMER_INDEX_KEY, credentialIndexKey } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { type IndexedKey, type KeyInfo, readKeys, withIds } from './keys.ts'
import {
  type Page,
  type PageRequest,
  type Position,
  readIndex,
  readIndexes,
  readPage,
} from './sorted-index.ts'

/** Consumers whose keys are looked for at once. */
const CONSUMERS_AT_ONCE = 100

/** Sorts after the digits of every key. */
const AFTER_ALL = '~'

/** @param of the consumer. Absent: all */
export const readKeyPage = (
  store: AdminStore,
  of: string | undefined,
  page: PageRequest,
): Promise<Page<KeyInfo>> =>
  readPage(
    page,
    ({ consumer, id }) => [consumer, id.slice(consumer.length + 1)],
    async (after, count) => {
      const { keys, end } = await keysAfter(store, of, after, count)
      return { items: await readKeys(store, keys), ...(end && { end }) }
    },
  )

async function keysAfter(
  store: AdminStore,
  of: string | undefined,
  [last, digits]: Position = [],
  count: number,
): Promise<{ keys: IndexedKey[]; end?: Position }> {
  const names = of === undefined ? await namesFrom(store, { from: last }, CONSUMERS_AT_ONCE) : [of]
  const found = await readIndexes(
    store,
    names.map(name => ({
      index: store.at(credentialIndexKey(name)),
      ...(name === last && { after: digits }),
    })),
    count,
  )
  const all = found.flatMap(({ members, known }, i) => withIds(names[i]!, members, known))
  if (all.length >= count) {
    const keys = all.slice(0, count)
    const { consumer, digest } = keys.at(-1)!
    return { keys, end: [consumer, digest] }
  }
  const isLast = of !== undefined || names.length < CONSUMERS_AT_ONCE
  return { keys: all, ...(!isLast && { end: [names.at(-1)!, AFTER_ALL] }) }
}

/** Reads a page of the names of all consumers that have or had keys or settings in the store. */
export const readNamePage = (store: AdminStore, page: PageRequest): Promise<Page<string>> =>
  readPage(
    page,
    name => [name],
    async (after, count) => {
      const names = await namesFrom(store, { from: after && `${after[0]}!` }, count)
      return { items: [...names], ...(names.length === count && { end: [names.at(-1)!] }) }
    },
  )

async function namesFrom(
  store: AdminStore,
  start: { from?: string | undefined },
  count: number,
): Promise<readonly string[]> {
  return (await readIndex(store, { index: store.at(CONSUMER_INDEX_KEY), ...start }, count)).members
}

/** How many names are read at each place of the index: 20 kB in all. */
const NEARBY = 200

/**
 * Names for a message about a consumer that may be misspelled, in one request, however many there are: the first ones, and those that begin
 * like it. The consumer itself is among them if the index has it.
 */
export async function namesNear(store: AdminStore, consumer: string): Promise<string[]> {
  const index = store.at(CONSUMER_INDEX_KEY)
  const starts = ['', consumer.slice(0, 2), consumer]
  const parts = await readIndexes(
    store,
    starts.map(from => ({ index, from })),
    NEARBY,
  )
  return [...new Set(parts.flatMap(({ members }) => members))].sort()
}

/** Whether the index does not have a consumer. */
export const isNew = async (store: AdminStore, consumer: string): Promise<boolean> =>
  !(await namesFrom(store, { from: consumer }, 1)).includes(consumer)

/** @throws AdminError `not-found` for a consumer that is not in the index. One of tokens is only after something is set for it */
export async function mustBeListed(store: AdminStore, consumer: string): Promise<void> {
  const { advice } = store
  const names = await (advice ? advice.namesNear(store, consumer) : namesFrom(store, { from: consumer }, 1))
  if (names.includes(consumer)) return
  const others = advice?.otherConsumers(consumer, names) ?? ''
  throw new AdminError('not-found', `The store has no consumer '${consumer}'.${others}`)
}

/** Keys of a consumer. */
export interface ConsumerKeys {
  consumer: string
  keys: readonly KeyInfo[]
  /** Absent: these are all. */
  hasMoreKeys?: true
}

/** Some keys of some consumers, in the order of their creation. @param most of each consumer */
export async function readFirstKeys(
  store: AdminStore,
  consumers: readonly string[],
  most: number,
): Promise<ConsumerKeys[]> {
  const parts = await readIndexes(
    store,
    consumers.map(consumer => ({ index: store.at(credentialIndexKey(consumer)) })),
    most + 1,
  )
  const keys = await readKeys(
    store,
    parts.flatMap(({ members }, i) => withIds(consumers[i]!, members).slice(0, most)),
  )
  const sorted = keys.sort((a, b) => a.createdAt.getTime() - b.createdAt.getTime())
  const byConsumer = Map.groupBy(sorted, ({ consumer }) => consumer)
  return consumers.map((consumer, i) => ({
    ...{ consumer, keys: byConsumer.get(consumer) ?? [] },
    ...(parts[i]!.members.length > most && { hasMoreKeys: true }),
  }))
}
