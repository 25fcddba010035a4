/**
 * Operations on consumers: list, show, set the plan, block. A change applies from the next request that reaches the store.
 * Changes are made by compare-and-set, so that concurrent changes are not lost.
 */
import { knownPlan } from '../config/compile-rule.ts'
import { consumerKey } from '../store/keys.ts'
import { type ConsumerRecord, formatConsumer, isBlocked, parseConsumer } from '../store/records.ts'
import type { AdminStore, Listed } from './admin-store-shape.ts'
import { consumerFacts } from './audit-facts.ts'
import type { AuditAction } from './change.ts'
import { type ConsumerKeys, mustBeListed, readFirstKeys, readKeyPage } from './key-pages.ts'
import { type KeyInfo, listConsumerNames, listedConsumer, listKeys } from './keys.ts'
import { changeText } from './write.ts'

export interface ConsumerInfo extends ConsumerRecord, ConsumerKeys {}

/** All consumers with all of their keys. */
export async function listConsumers(store: AdminStore): Promise<ConsumerInfo[]> {
  const consumers = await listConsumerNames(store)
  const keys = Map.groupBy(await listKeys(store, consumers), ({ consumer }) => consumer)
  return await withRecords(
    store,
    consumers.map(consumer => ({ consumer, keys: keys.get(consumer) ?? [] })),
  )
}

/** @param mostKeys of each consumer */
export const readConsumers = async (
  store: AdminStore,
  consumers: readonly string[],
  mostKeys: number,
): Promise<ConsumerInfo[]> => await withRecords(store, await readFirstKeys(store, consumers, mostKeys))

async function withRecords<C extends Pick<ConsumerKeys, 'consumer'>>(
  store: AdminStore,
  all: readonly C[],
): Promise<(C & ConsumerRecord)[]> {
  const texts = await store.runEach<string | null>(
    all.map(({ consumer }) => ['GET', store.at(consumerKey(consumer))]),
  )
  return all.map((each, i) => ({ ...each, ...parseConsumer(texts[i] ?? '') }))
}

/** Consumers that are blocked now, or have overrides that have not ended. */
export async function listExceptionalConsumers(
  store: AdminStore,
): Promise<(Pick<ConsumerInfo, 'consumer'> & ConsumerRecord)[]> {
  const consumers = await listConsumerNames(store)
  const records = await withRecords(
    store,
    consumers.map(consumer => ({ consumer })),
  )
  return records
    .map(record => ({ ...record, overrides: record.overrides.filter(({ until }) => !isPast(until)) }))
    .filter(record => isBlocked(record, Date.now() * 1000) || record.overrides.length > 0)
}

const isPast = (until: number | undefined) => until !== undefined && until <= Date.now() * 1000

/**
 * Shows a consumer with all of its keys.
 * @throws AdminError `not-found` if the store has no key and no setting of the consumer, and its list of consumers lacks it
 */
export async function showConsumer(store: AdminStore, consumer: string): Promise<ConsumerInfo> {
  const { hasMoreKeys, ...first } = await readConsumer(store, consumer, 1)
  return hasMoreKeys ? { ...first, keys: await listKeys(store, consumer) } : first
}

/** As showConsumer, with a part of its keys. */
export async function readConsumer(
  store: AdminStore,
  consumer: string,
  mostKeys: number,
): Promise<ConsumerInfo> {
  const [found] = await readConsumers(store, [consumer], mostKeys)
  if (textOf(found!) === undefined && found!.keys.length === 0) await mustBeListed(store, consumer)
  return found!
}

export interface ConsumerChange {
  /** The record before the change. */
  before: ConsumerRecord
  record: ConsumerRecord
  /** False: the record was like this before, and nothing was written. */
  isChanged: boolean
  /** With `advice`: the store did not know the consumer before, so its name may be misspelled. */
  isNew?: true
}

/** The record of an identity of a limit by name (limit-overrides.ts), which has overrides alone. */
export interface RecordPlace {
  /** Without the environment. */
  key: string
  /** For the audit trail. */
  target: string
  listed: Listed
}

/**
 * Changes the record of a consumer, or of an identity of a limit by name.
 * @param action for the audit trail
 * @param change returns the new record. It is called again if another writer was faster.
 * @throws AdminError `conflict`, `store`, and errors of `change`
 */
export async function changeConsumer(
  store: AdminStore,
  consumer: string | RecordPlace,
  action: AuditAction,
  change: (record: ConsumerRecord) => ConsumerRecord,
): Promise<ConsumerChange> {
  const { key, target, listed } =
    typeof consumer === 'string'
      ? { key: consumerKey(consumer), target: consumer, listed: listedConsumer(store, consumer) }
      : consumer
  const stored = (await store.run<string | null>('GET', store.at(key))) ?? undefined
  let before = parseConsumer(stored ?? '')
  let record = change(before)
  // A change without effect must not list a consumer that has nothing stored.
  if (textOf(record) === stored) return { before, record, isChanged: false }
  const changed = (text: string | undefined) => {
    before = parseConsumer(text ?? '')
    record = change(before)
    const facts = { before: consumerFacts(before), after: consumerFacts(record) }
    return { text: textOf(record), entry: { action, target, ...facts } }
  }
  const isNew = typeof consumer === 'string' && (await store.advice?.isNew(store, consumer))
  await changeText(store, key, changed, listed)
  return { before, record, isChanged: true, ...(isNew && { isNew }) }
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

/** The most keys that are looked at for one with another plan, and the most that are shown. */
const MAX_LOOKED_AT = 1000
const MAX_SHOWN = 100

export interface PlanChange extends ConsumerChange {
  keysOnOtherPlans: readonly KeyInfo[]
  /** Others may keep another plan, too. Absent: these are all. */
  hasMoreKeys?: true
}

/** As `setPlan`, and finds keys that keep another plan, in a bounded number of requests. @param plans of the config */
export async function changePlan(
  store: AdminStore,
  consumer: string,
  plan: string | undefined,
  plans: readonly string[],
): Promise<PlanChange> {
  const change = await setPlan(store, consumer, plan)
  const { items, next } = await readKeyPage(store, consumer, { limit: MAX_LOOKED_AT })
  const found = keysOnOtherPlans(items, knownPlan(plans, plan))
  return {
    ...{ ...change, keysOnOtherPlans: found.slice(0, MAX_SHOWN) },
    ...((next || found.length > MAX_SHOWN) && { hasMoreKeys: true }),
  }
}

export interface Block {
  by?: string
  /** null: until the consumer is unblocked. */
  until?: Date | null
  reason?: string | undefined
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
    const { blockedUntil, removedAt: _, ...before } = isBlockedNow ? record : withoutBlock(record)
    const endsAt = until === undefined ? blockedUntil : until && until.getTime() * 1000
    return {
      ...{ blockedAt: now, ...before },
      ...(endsAt && { blockedUntil: endsAt }),
      ...(by && { blockedBy: by }),
      ...(reason && { reason }),
    }
  })
}

function withoutBlock(record: ConsumerRecord): ConsumerRecord {
  const { blockedAt: _, blockedUntil: __, blockedBy: ___, reason: ____, removedAt: _____, ...others } = record
  return others
}

/** @throws AdminError `not-found` for an unknown consumer: the name is misspelled, and the intended consumer is still blocked */
export async function unblockConsumer(store: AdminStore, consumer: string): Promise<ConsumerChange> {
  const result = await changeConsumer(store, consumer, 'consumers.unblock', withoutBlock)
  if (!result.isChanged) await readConsumer(store, consumer, 1)
  return result
}
