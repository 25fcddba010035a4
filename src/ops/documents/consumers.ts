/** Documents about consumers: plan, block, keys, overrides. */
import type { ConsumerRecord, Override } from '../../store/records.ts'
import { isBlockedNow } from '../blocks.ts'
import type { ConsumerChange, ConsumerInfo, PlanChange } from '../consumers.ts'
import type { CheckedConfig } from '../context.ts'
import type { OverrideChange } from '../override-changes.ts'
import { type OverrideStatus, untilOf } from '../override-rules.ts'
import { toJson } from './json.ts'
import { type KeyDocument, keyDocument } from './keys.ts'

/** A block that has ended counts as no block. */
export interface BlockDocument {
  /** null: the consumer is not blocked. */
  blockedAt: string | null
  /** Absent: until somebody unblocks it. */
  blockedUntil?: string
  blockedBy?: string
  reason?: string
}

/** An override of a rule. Its numbers are absent if it only changes the mode. */
export interface OverrideDocument {
  rule: string
  limit?: number
  /** What can be spent at once, under the name that the algorithm has for it. */
  burst?: number
  queue?: number
  mode?: 'enforce' | 'shadow' | 'off'
  /** null: it has no end. */
  until: string | null
  at?: string
  by?: string
  status: OverrideStatus
}

/** The settings of a consumer. */
export interface SettingsDocument extends BlockDocument {
  consumer: string
  /** null: the first plan of the config. */
  plan: string | null
  overrides: OverrideDocument[]
}

export interface ConsumerDocument extends SettingsDocument {
  keys: KeyDocument[]
  /** The HTTP API shows the first 100 keys. Absent: these are all. */
  hasMoreKeys?: true
}

/** The settings after a change; of the overrides, the names of their rules. */
export interface ConsumerChangeDocument extends BlockDocument {
  consumer: string
  plan: string | null
  overrides: string[]
}

export interface PlanChangeDocument extends ConsumerChangeDocument {
  /** Keys that keep another plan, because it is their own. */
  keysOnOtherPlans: { id: string; plan?: string }[]
  /** Only the first 1,000 keys were looked at, or only 100 are shown. Absent: these are all. */
  hasMoreKeys?: true
}

export interface OverrideChangeDocument extends OverrideDocument {
  consumer: string
  /** The other overrides that were removed. */
  removed: OverrideDocument[]
}

type WithOverrides = Pick<CheckedConfig, 'overrides'>

type BlockRecord = Pick<ConsumerRecord, 'blockedAt' | 'blockedUntil' | 'blockedBy' | 'reason'>

export function blockDocument(record: BlockRecord): BlockDocument {
  const { blockedAt, blockedBy, reason } = record
  if (!blockedAt || !isBlockedNow(record)) return { blockedAt: null }
  const until = untilOf({ until: record.blockedUntil })
  return toJson({
    blockedAt,
    ...(until && { blockedUntil: until }),
    ...(blockedBy && { blockedBy }),
    ...(reason && { reason }),
  })
}

export function overrideDocument(override: Override, { overrides }: WithOverrides): OverrideDocument {
  const { rule, mode, numbers, at, by } = override
  const atOnce = overrides.atOnceOf(override)
  return toJson({
    rule,
    ...(numbers && { limit: numbers.limit, ...(atOnce && { [atOnce.parameter]: atOnce.units }) }),
    ...(mode && { mode }),
    until: untilOf(override) ?? null,
    ...(at && { at, ...(by !== undefined && { by }) }),
    status: overrides.statusOf(override),
  })
}

export function settingsDocument(
  consumer: string,
  { plan, overrides, ...record }: ConsumerRecord,
  config: WithOverrides,
): SettingsDocument {
  return {
    consumer,
    plan: plan ?? null,
    ...blockDocument(record),
    overrides: overrides.map(override => overrideDocument(override, config)),
  }
}

export function consumerDocument(
  { consumer, keys, hasMoreKeys, ...record }: ConsumerInfo,
  config: WithOverrides,
): ConsumerDocument {
  const settings = settingsDocument(consumer, record, config)
  return { ...settings, keys: keys.map(keyDocument), ...(hasMoreKeys && { hasMoreKeys }) }
}

export function consumerChangeDocument(
  consumer: string,
  { record }: Pick<ConsumerChange, 'record'>,
): ConsumerChangeDocument {
  const { plan, overrides } = record
  const rules = overrides.map(({ rule }) => rule)
  return { consumer, plan: plan ?? null, ...blockDocument(record), overrides: rules }
}

export const planChangeDocument = (consumer: string, change: PlanChange): PlanChangeDocument => ({
  ...consumerChangeDocument(consumer, change),
  keysOnOtherPlans: change.keysOnOtherPlans.map(({ id, plan }) => ({ id, ...(plan && { plan }) })),
  ...(change.hasMoreKeys && { hasMoreKeys: true }),
})

export const overrideChangeDocument = (
  consumer: string,
  override: Override,
  { removed }: Pick<OverrideChange, 'removed'>,
  config: WithOverrides,
): OverrideChangeDocument => ({
  consumer,
  ...overrideDocument(override, config),
  removed: removed.map(each => overrideDocument(each, config)),
})

/** @param result.keys how many were valid until now */
export const removedConsumerDocument = (consumer: string, { keys }: { keys: number }) => ({
  consumer,
  removed: true as const,
  keys,
})
