/** Sets and removes overrides in the record of a consumer. */
import { findFreeTag } from '../config/tags.ts'
import { readStoreTime } from '../store/admin-connection.ts'
import { type ConsumerRecord, formatConsumer, MAX_CONSUMER_LENGTH, type Override } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import type { Advice } from './advice.ts'
import { type ConsumerChange, changeConsumer, type RecordPlace, readConsumer } from './consumers.ts'
import { hasEnded, type OverrideRules } from './override-rules.ts'

export interface OverrideChange extends ConsumerChange {
  /** The other overrides that were removed: those that had ended, and stale ones if that was wished. */
  removed: readonly Override[]
}

export interface SetOptions {
  /** An override is stale if these rules have none of its family any more. Another deployment can still have it. */
  rules?: Pick<OverrideRules, 'isStale'>
  /** Removes stale overrides too. */
  removeStale?: boolean | undefined
}

/**
 * Sets an override of a consumer, or of an identity of a limit by name. It replaces another override of the same rule, and removes overrides that have ended by the clock of the store.
 * @throws AdminError `refused` if the record of the consumer would become too long
 */
export async function setOverride(
  store: AdminStore,
  consumer: string | RecordPlace,
  override: Override,
  { rules, removeStale = false }: SetOptions = {},
): Promise<OverrideChange> {
  const now = await readStoreTime(store)
  const isStale = (other: Override) => rules?.isStale(other) ?? false
  const isRemoved = (other: Override) => hasEnded(other, now) || (removeStale && isStale(other))
  let removed: readonly Override[] = []
  const change = await changeConsumer(store, consumer, 'overrides.set', record => {
    const others = record.overrides.filter(({ rule }) => rule !== override.rule)
    removed = others.filter(isRemoved)
    const kept = others.filter(other => !isRemoved(other))
    const changed = { ...record, overrides: [...kept, withUniqueTag(override, kept)] }
    checkLength(consumer, record, changed, kept.filter(isStale).length, store.advice)
    return changed
  })
  return { ...change, removed }
}

/** Refuses a change that lengthens a record beyond the maximum. A record that is longer already can still become shorter. */
function checkLength(
  consumer: string | RecordPlace,
  before: ConsumerRecord,
  after: ConsumerRecord,
  stale: number,
  advice: Advice | undefined,
): void {
  const { length } = formatConsumer(after)
  if (length <= MAX_CONSUMER_LENGTH || length <= formatConsumer(before).length) return
  const problem =
    `${typeof consumer === 'string' ? `Consumer '${consumer}'` : `'${consumer.target}'`} would have ${after.overrides.length} overrides, and its record ${length} bytes. The maximum is ` +
    `${MAX_CONSUMER_LENGTH} bytes, because Redis reads it for each of its requests. Nothing was changed.`
  throw new AdminError(
    'refused',
    problem,
    typeof consumer === 'string' ? advice?.longRecord(consumer, stale) : undefined,
  )
}

/** The override with a tag that no other override of the consumer has. */
function withUniqueTag(override: Override, others: readonly Override[]): Override {
  const { rule, numbers } = override
  if (!numbers) return override
  const owners = new Map(others.flatMap(other => (other.numbers ? [[other.numbers.tag, other.rule]] : [])))
  return { ...override, numbers: { ...numbers, tag: findFreeTag(rule, numbers.tag, owners) } }
}

/** @throws AdminError `not-found` for an unknown consumer: the name is misspelled, and the intended consumer still has its override */
export async function removeOverride(
  store: AdminStore,
  consumer: string | RecordPlace,
  rule: string,
): Promise<ConsumerChange> {
  const result = await changeConsumer(store, consumer, 'overrides.remove', record => ({
    ...record,
    overrides: record.overrides.filter(other => other.rule !== rule),
  }))
  if (!result.isChanged && typeof consumer === 'string') await readConsumer(store, consumer, 1)
  return result
}
