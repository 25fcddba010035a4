/** Indexes on a cluster that are in other slots than their records. A Worker without `store.cluster` does not carry it. */
import { AdminError } from './admin-error.ts'
import type { AdminStore, Listed, OnCluster } from './admin-store-shape.ts'
import { addToIndex, removeFromIndex } from './sorted-index.ts'

/**
 * The member is in the index from before the write to after it: before, so that everything valid can be listed even if this process ends; and
 * after, because another process may have removed it meanwhile.
 */
export async function writeListed(
  store: AdminStore,
  { index, member, records }: Listed,
  write: () => Promise<boolean>,
): Promise<boolean> {
  const list = () => store.run(...addToIndex(index, [member]))
  const isNew = (await list()) === 1
  const undo = async () => {
    if (isNew) await unlistIfGone(store, index, [member], records).catch(() => {})
  }
  try {
    if (await write()) {
      await list()
      return true
    }
  } catch (error) {
    // If the store has failed, the write may have been made.
    if (!(error instanceof AdminError && error.kind === 'store')) await undo()
    throw error
  }
  await undo()
  return false
}

/** No transaction covers an index and the records: members whose records were written meanwhile are listed again. */
export const unlistIfGone: OnCluster['unlistIfGone'] = async (store, index, members, records) => {
  const each = records.length / members.length
  const all = members.map((member, i) => ({ member, records: records.slice(i * each, (i + 1) * each) }))
  const goneOf = async (some: typeof all) => {
    const counts = await store.runEach<number>(some.map(({ records }) => ['EXISTS', ...records]))
    return some.filter((_, i) => counts[i] === 0)
  }
  const gone = await goneOf(all)
  if (gone.length === 0) return
  const names = (some: typeof all) => some.map(({ member }) => member)
  await store.runEach([removeFromIndex(index, names(gone))])
  const stillGone = new Set(await goneOf(gone))
  const written = gone.filter(each => !stillGone.has(each))
  if (written.length > 0) await store.runEach([addToIndex(index, names(written))])
}
