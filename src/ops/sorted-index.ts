/** Indexes. Each is a sorted set whose members have the score 0: Redis keeps them in the order of their texts, so that pages can be read. */
import { type Command, evalCommand } from '../store/admin-connection.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { DROP_IF_GONE } from './lua.generated.ts'

/** @param index with the environment @returns a command that replies how many members are new */
export const addToIndex = (index: string, members: readonly string[]): Command => [
  ...(['ZADD', index] as const),
  ...members.flatMap(member => [0, member]),
]

/** @param index with the environment */
export const removeFromIndex = (index: string, members: readonly string[]): Command => [
  'ZREM',
  index,
  ...members,
]

/**
 * Removes members whose records are gone, in one step: a record that was written again meanwhile keeps its member.
 * @param index with the environment, as the records; all are in one slot of a cluster
 * @param records of all members in turn, the same number for each
 */
export const removeIfGone = (
  index: string,
  members: readonly string[],
  records: readonly string[],
): Command => evalCommand(DROP_IF_GONE, [index, ...records], members)

/** As removeIfGone, also if the records are in other slots of a cluster than the index. */
export async function unlistIfGone(
  store: AdminStore,
  index: string,
  members: readonly string[],
  records: readonly string[],
): Promise<void> {
  if (store.decisions.isCluster) return await store.onCluster.unlistIfGone(store, index, members, records)
  // As arguments of a call, thousands of members would be too many for the stack.
  await store.runEach([removeIfGone(index, members, records)])
}

/** A list of all records reads this many at once. One command removes those of them that have ended from the index. */
export const READ_AT_ONCE = 2000

/** All members of an index, in their order. @param index with the environment */
export const allOf = (index: string): Command => ['ZRANGE', index, 0, -1]

/** Where to begin to read. */
export interface IndexStart {
  /** The first member that is not before this text. Absent: the first. */
  from?: string | undefined
  /** The first member after all that begin with this text. */
  after?: string | undefined
}

export interface IndexPart {
  members: readonly string[]
  /** The members, and those before and after them, from which these have to be distinguished. */
  known: readonly string[]
}

/** Reads `count` members of each index, in one request for up to 500 indexes. @param indexes with their environment */
export async function readIndexes(
  store: AdminStore,
  indexes: readonly (IndexStart & { index: string })[],
  count: number,
): Promise<IndexPart[]> {
  const starts = indexes.map(({ index, from = '', after }) => ({
    index,
    // Members are ASCII, so the last code of a byte is after them.
    first: after === undefined ? from : `${after}\x7f`,
  }))
  const replies = await store.runEach<readonly string[]>([
    ...starts.map(
      ({ index, first }) => ['ZRANGE', index, `[${first}`, '+', 'BYLEX', 'LIMIT', 0, count + 1] as const,
    ),
    ...starts.flatMap(({ index, first }) =>
      first === '' ? [] : [['ZRANGE', index, `(${first}`, '-', 'BYLEX', 'REV', 'LIMIT', 0, 1] as const],
    ),
  ])
  const before = replies.slice(indexes.length).flat()
  return replies
    .slice(0, indexes.length)
    .map(some => ({ members: some.slice(0, count), known: [...before, ...some] }))
}

/** As readIndexes, of one index. */
export async function readIndex(
  store: AdminStore,
  index: IndexStart & { index: string },
  count: number,
): Promise<IndexPart> {
  const [part] = await readIndexes(store, [index], count)
  return part!
}

/** Of an item in a list: what it is sorted by. */
export type Position = readonly string[]

export interface PageRequest {
  /** The position of the last item of the page before. Absent: the first page. */
  after?: Position | undefined
  limit: number
}

export interface Page<T> {
  items: T[]
  /** Where the next page begins. Absent: nothing is left. A page can be short, or empty, and have it. */
  next?: Position
}

/** How often a page reads on, if much of what it finds has expired. */
const MAX_ROUNDS = 4

/** How many members it then reads at once. They leave the index, so that the next reader does not find them. */
const ROUND = 400

/**
 * Reads a page in a bounded number of requests.
 * @param readSome reads up to `count` members after a position; `end` is that of the last one, or absent if nothing is left
 */
export async function readPage<T>(
  { after, limit }: PageRequest,
  positionOf: (item: T) => Position,
  readSome: (after: Position | undefined, count: number) => Promise<{ items: T[]; end?: Position }>,
): Promise<Page<T>> {
  const found: T[] = []
  let end = after
  for (let round = 0; round < MAX_ROUNDS && found.length <= limit; round++) {
    const some = await readSome(end, round === 0 ? limit + 1 : ROUND)
    found.push(...some.items)
    if (!some.end && found.length <= limit) return { items: found }
    end = some.end
  }
  const items = found.slice(0, limit)
  return { items, next: found.length > limit ? positionOf(items.at(-1)!) : end! }
}
