/** What was decided, and about whom. */
import { didYouMean } from '../../config/check/did-you-mean.ts'
import { AdminError } from '../admin-error.ts'
import type { AdminContext } from '../context.ts'
import {
  type StatsDocument,
  statsDocument,
  type TopCallersDocument,
  type TopDocument,
  topCallersDocument,
  topDocument,
} from '../documents/stats.ts'
import { type WhyDocument, whyDocument } from '../documents/why.ts'
import { readLoadIfPermitted } from '../origin-load.ts'
import { filterByRule, listRuleNames, parseLookBack, readStats } from '../stats.ts'
import { readTop } from '../top.ts'
import { MAX_CALLERS_BACK_MS, readTopCallersOf } from '../top-callers.ts'
import { parseWhyTarget, readWhy, withLastChange } from '../why.ts'
import { verdictOf } from '../why-verdict.ts'

/** Which part of the statistics to read. */
export interface StatsInput {
  /** How far back, from `1m` to `400d`. Default: `24h`. */
  since?: string
  /** Only this rule. */
  rule?: string
}

export interface TopCallersInput extends StatsInput {
  /** Whom shadow rules would have refused. */
  shadow?: boolean
}

export type StatsAdmin = ReturnType<typeof administerStats>

export function administerStats({ store, config }: Pick<AdminContext, 'store' | 'config'>) {
  return {
    /** What each rule decided, and the outcomes of requests. Without a rule, also the load of the origin. */
    async stats({ since, rule }: StatsInput = {}): Promise<StatsDocument> {
      const now = new Date()
      const all = await readStats(store, startOf(since, now), now)
      if (rule !== undefined) return statsDocument(filterByRule(all, rule, listRuleNames(config), didYouMean))
      return statsDocument(all, await readLoadIfPermitted(store, config))
    },

    /** Whom each rule has refused most, by the hour, up to `7d` back. */
    async topCallers({ since, rule, shadow }: TopCallersInput = {}): Promise<TopCallersDocument> {
      const now = new Date()
      const start = startOf(since, now)
      if (now.getTime() - start.getTime() > MAX_CALLERS_BACK_MS)
        throw new AdminError('usage', 'Callers are kept for 8 days. Use at most 7d.')
      const mode = shadow ? 'shadow' : 'enforce'
      const read = await readTopCallersOf(store, config, start, { mode, rule, now, suggest: didYouMean })
      return topCallersDocument(read)
    },

    /** What rules refuse now, and whom: the last five minutes. */
    async top(): Promise<TopDocument> {
      return topDocument(await readTop(store))
    },

    /**
     * Why a caller is refused, or that it is not. If the state is `unknown`, the rules did not answer.
     * @param caller a consumer, an address, the id of a key, a key, or an identity of limits by name such as `account=42`
     */
    async why(caller: string): Promise<WhyDocument> {
      const known = await readWhy(store, config, await parseWhyTarget(caller, store))
      const facts = await withLastChange(store, known)
      return whyDocument(facts, verdictOf(facts, config))
    },
  }
}

function startOf(since = '24h', now: Date): Date {
  const ms = parseLookBack(since)
  if (ms !== undefined) return new Date(now.getTime() - ms)
  throw new AdminError('usage', 'since is not valid. Use a duration from 1m to 400d.')
}
