/**
 * Overrides of limits by name: other numbers, or another mode, of a rule for one identity. The record of an identity is as that of a
 * consumer, with overrides alone, and in the slot of the limit.
 */
import type { Config } from '../config/compile.ts'
import { checkIdentity, type LimitIdentity } from '../set-ups/limits/arguments.ts'
import { limitRuleKey, limitStateKey, overriddenIndexKey, overridesKey } from '../store/keys.ts'
import { parseConsumer } from '../store/records.ts'
import type { AdminStore } from './admin-store-shape.ts'
import type { RecordPlace } from './consumers.ts'
import { overrideDocument } from './documents/consumers.ts'
import type { LimitOverridesDocument } from './documents/switches.ts'
import { limitOf, targetOf, withUsageErrors } from './limits.ts'
import { removeOverride, setOverride } from './override-changes.ts'
import type { OverrideInput, OverrideRules } from './override-rules.ts'
import { allOf, unlistIfGone } from './sorted-index.ts'

export interface LimitContext {
  store: AdminStore
  config: Pick<Config, 'limits'>
  /** Those of the limit. */
  overrides: OverrideRules
}

/** What precedes the identity in a state key. */
const stateStart = (limit: string) => limitStateKey(limit, [])

/** A rule that a later deployment has removed has counted by the parts of the identity, in their order. */
function placeOf(
  { store, config }: LimitContext,
  limit: string,
  name: string,
  by: LimitIdentity,
): RecordPlace {
  const rules = limitOf(config, limit).filter(rule => rule.name === name)
  if (rules.length > 0) withUsageErrors(() => checkIdentity(limit, by, rules))
  const stateKey = limitRuleKey(limit, rules[0] ?? { by: Object.keys(by) }, by)
  const key = overridesKey(stateKey)
  const member = stateKey.slice(stateStart(limit).length)
  const listed = { index: store.at(overriddenIndexKey(limit)), member, records: [store.at(key)] }
  return { key, target: targetOf(limit, by), listed }
}

/** @throws AdminError for numbers that the rule cannot have, and for other parts than those that it counts by */
export async function setLimitOverride(
  context: LimitContext,
  limit: string,
  by: LimitIdentity,
  input: OverrideInput,
  { removeStale, ...signature }: { at: Date; by: string; removeStale?: boolean | undefined },
) {
  const { store, overrides } = context
  const override = { ...overrides.compile(input), ...signature }
  const place = placeOf(context, limit, input.rule, by)
  const { removed } = await setOverride(store, place, override, { rules: overrides, removeStale })
  const others = removed.map(each => overrideDocument(each, context))
  // Not with the name of the limit: `limit` is the number.
  return { identity: by, ...overrideDocument(override, context), removed: others }
}

/** @returns the overrides of the identity that are left */
export async function removeLimitOverride(
  context: LimitContext,
  limit: string,
  by: LimitIdentity,
  rule: string,
) {
  const { record, isChanged } = await removeOverride(context.store, placeOf(context, limit, rule, by), rule)
  // Without an override, the name of the rule may be misspelled.
  if (!isChanged) context.overrides.find(rule)
  return { limit, identity: by, overrides: record.overrides.map(each => overrideDocument(each, context)) }
}

/** The overrides of all identities of a limit. A part that is too long for a key is shown as `#` and a digest. */
export async function listLimitOverrides(
  context: LimitContext,
  limit: string,
): Promise<LimitOverridesDocument> {
  const { store } = context
  const index = store.at(overriddenIndexKey(limit))
  const members = await store.run<readonly string[]>(...allOf(index))
  const keys = members.map(member => store.at(overridesKey(stateStart(limit) + member)))
  const texts = keys.length > 0 ? await store.run<readonly (string | null)[]>('MGET', ...keys) : []
  const isGone = (_: string, i: number) => texts[i] === null
  const gone = members.filter(isGone)
  if (gone.length > 0) await unlistIfGone(store, index, gone, keys.filter(isGone))
  const overrides = members.flatMap((member, i) =>
    parseConsumer(texts[i] ?? '').overrides.map(each => ({
      identity: identityOf(member),
      ...overrideDocument(each, context),
    })),
  )
  return { limit, overrides }
}

/** @param member `:account=42` */
const identityOf = (member: string): Record<string, string> =>
  Object.fromEntries(
    member
      .slice(1)
      .split(',')
      .filter(Boolean)
      .map(part => part.split('=').map(decodeURIComponent)),
  )
