/** What is left of limits by name and of the rules of the gateway; resets and corrections. */
import type { CallNumbers } from '../../set-ups/limits/arguments.ts'
import type { LimitIdentity } from '../../set-ups/limits/limiter.ts'
import { AdminError } from '../admin-error.ts'
import { giving } from '../call-numbers.ts'
import { type CallerIdentity, rulesByMore } from '../caller-identity.ts'
import { type AdminContext, signedBy } from '../context.ts'
import { correctCaller, correctLimit, MAX_CORRECTION, ruleOfCaller, ruleOfLimit } from '../corrections.ts'
import {
  type CallerDocument,
  type CorrectionDocument,
  callerDocument,
  callerResetDocument,
  correctionDocument,
  type LimitDocument,
  limitDocument,
  limitPauseDocument,
  limitResetDocument,
} from '../documents/limits.ts'
import { type LoadDocument, loadDocument } from '../documents/stats.ts'
import { checkRuleMode, parseEnd } from '../inputs.ts'
import { listLimitOverrides, removeLimitOverride, setLimitOverride } from '../limit-overrides.ts'
import { pauseLimit, peekCaller, peekLimit, planReset, resetCaller, resetLimit } from '../limits.ts'
import { parseConsumerName, parseMode, parsePlan, parseShortText } from '../names.ts'
import { readLoad } from '../origin-load.ts'
import { limitOverrideRules } from '../overrides.ts'
import type { OverrideSettings } from './consumers.ts'

export type LimitAdmin = ReturnType<typeof administerLimits>

/** A caller is given by parts, such as `{ consumer: 'acme' }` or `{ address: '192.0.2.7' }`. */
export function administerLimits(context: AdminContext) {
  const { store, config } = context
  const contextOf = (limit: string) => ({ store, config, overrides: limitOverrideRules(config, limit) })
  return {
    /** What is left of a limit by name. Spends nothing. */
    async peek(limit: string, by: LimitIdentity = {}, numbers?: CallNumbers): Promise<LimitDocument> {
      return limitDocument(limit, by, await peekLimit(store, config, limit, by, giving(limit, numbers)))
    },

    /** What is left for a caller of the gateway. Spends nothing. @param plan default: that of its keys, else of the consumer */
    async peekCaller(caller: CallerIdentity, plan?: string): Promise<CallerDocument> {
      const chosen = plan === undefined ? undefined : parsePlan(plan, config.plans)
      const parts = await parseCaller(caller)
      const standings = await peekCaller(store, config, parts, chosen)
      return callerDocument(parts, standings, rulesByMore(config, Object.keys(parts)).keys())
    },

    /** Makes the whole budget available again. @param rule default: all rules of the limit */
    async reset(limit: string, by: LimitIdentity = {}, rule?: string, numbers?: CallNumbers) {
      await resetLimit(store, config, limit, by, rule, giving(limit, numbers))
      return limitResetDocument(limit, by, rule)
    },

    /** Refuses all calls until a time. Never ends a longer pause. @param forMs above 0, at most `longestPause` */
    async pause(limit: string, by: LimitIdentity, forMs: number) {
      if (!(forMs > 0))
        throw new AdminError('usage', 'forMs is not valid. Use a number of milliseconds above 0.')
      return limitPauseDocument(limit, by, await pauseLimit(store, config, limit, by, forMs))
    },

    /** Ends the pause of an identity. */
    async resume(limit: string, by: LimitIdentity = {}) {
      return limitPauseDocument(limit, by, await pauseLimit(store, config, limit, by, 0))
    },

    /** Overrides an `overridable` rule for one identity. It replaces an earlier override of the rule. */
    async setOverride(
      limit: string,
      identity: LimitIdentity,
      rule: string,
      { until, by: own = context.by, removeStale, ...settings }: OverrideSettings,
    ) {
      checkRuleMode(settings.mode)
      const end = until === undefined ? undefined : parseEnd(until)
      const by = parseShortText(own, 'name')
      const input = { rule, ...settings, ...(end && { until: end }) }
      const signed = { ...contextOf(limit), store: signedBy(context, { by }) }
      return await setLimitOverride(signed, limit, identity, input, { at: new Date(), by, removeStale })
    },

    /** @returns the overrides of the identity that are left */
    removeOverride: async (limit: string, identity: LimitIdentity, rule: string) =>
      await removeLimitOverride(contextOf(limit), limit, identity, rule),

    /** Those of all identities. */
    overrides: async (limit: string) => await listLimitOverrides(contextOf(limit), limit),

    async resetCaller(caller: CallerIdentity) {
      const parts = await parseCaller(caller)
      const planned = await planReset(store, config, parts)
      await resetCaller(store, config, parts)
      return callerResetDocument(parts, planned)
    },

    /** Mends a wrong settlement. @param units to spend; below 0: to give back */
    async correct(
      limit: string,
      by: LimitIdentity,
      rule: string,
      units: number,
    ): Promise<CorrectionDocument> {
      checkUnits(units)
      const found = ruleOfLimit(config, limit, rule)
      const correction = await correctLimit(store, config, limit, by, rule, units)
      return correctionDocument({ limit, by }, found, units, correction)
    },

    /** As `correct`, for a rule of the gateway. @param plan as of `peekCaller` */
    async correctCaller(
      caller: CallerIdentity,
      rule: string,
      units: number,
      plan?: string,
    ): Promise<CorrectionDocument> {
      checkUnits(units)
      const chosen = plan === undefined ? undefined : parsePlan(plan, config.plans)
      const parts = await parseCaller(caller)
      const found = ruleOfCaller(config, parts, rule)
      const correction = await correctCaller(store, config, parts, rule, units, chosen)
      return correctionDocument(parts, found, units, correction)
    },

    /** How much room the origin has now. */
    async load(): Promise<LoadDocument> {
      return loadDocument(await readLoad(store, config))
    },
  }
}

async function parseCaller({ consumer, mode, ...parts }: CallerIdentity): Promise<CallerIdentity> {
  const caller = {
    ...(consumer !== undefined && { consumer: await parseConsumerName(consumer) }),
    ...(mode !== undefined && { mode: parseMode(mode) }),
    ...parts,
  }
  if (Object.keys(caller).length > 0) return caller
  throw new AdminError('usage', 'No caller is given. Use parts such as consumer or address.')
}

function checkUnits(units: number): void {
  const amount = Math.abs(units)
  if (Number.isInteger(units) && amount >= 1 && amount <= MAX_CORRECTION) return
  throw new AdminError(
    'usage',
    `The units are not valid. Use a whole number from 1 to ${MAX_CORRECTION}, or below 0 to give units back.`,
  )
}
