/**
 * What the store has last reported about each identity: the units left under each rule. While the store does not answer, the isolate
 * admits no more than that (local.ts). Otherwise each outage, and each moment in which a flood makes the store late, would give a
 * caller the whole limit once more.
 */
import type { Rule } from '../../config/compile-rule.ts'
import { Lru } from '../../lru.ts'
import type { BoundRule, Outcome } from '../../script/evaluation.ts'
import { withConsumer } from '../../store/keys.ts'
import { followsStore } from './fallbacks.ts'

/** What an answer of the store reports: to a decision, or to settlements. */
export type Report = Partial<Outcome> & Pick<Outcome, 'verdicts' | 'at'>
export type ReportedRule = Pick<BoundRule, 'rule' | 'key'>

interface StoreReport {
  /** Units. */
  remaining: number
  /**
   * When the store has answered (ms): by its own clock, because the windows are those of the store, but not later than now by the
   * clock of this machine.
   */
  answeredAt: number
  /** When the units that are not left were spent, as far as the isolate counts them (ms). */
  spentAt: number
}

/** About 200 bytes each. The LRU keeps up to twice as many. */
const MAX_IDENTITIES = 10_000

/**
 * Creates the reports of an isolate. Without reports, an identity has its whole budget.
 * @param unreportedUnits returns the units that this isolate has spent and that the store did not know when it answered
 */
export function createStoreReports(unreportedUnits: (key: string, rule: Rule) => number) {
  const identities = new Lru<Map<string, StoreReport>>({ size: MAX_IDENTITIES })

  return {
    /** Notes what an outcome reports about the rules that the isolate would count. @param now ms, by the clock of this machine */
    note(rules: readonly ReportedRule[], { verdicts, consumer, at }: Report, now: number): void {
      const answeredAt = Math.min(at / 1e3, now)
      for (const { rule, mode, remaining: reported, resetAfter } of verdicts) {
        const bound = rules.find(bound => bound.rule.name === rule.name)
        if (mode !== 'enforce' || !followsStore(rule) || !bound) continue
        const key = withConsumer(bound.key, consumer)
        const reports = identities.get(key) ?? new Map<string, StoreReport>()
        if (reports.size === 0) identities.set(key, reports)
        const last = reports.get(rule.name)
        // Replies can arrive in another order than the store has decided.
        if (last && last.answeredAt > answeredAt) continue
        const most = last?.answeredAt === answeredAt ? last.remaining : Number.POSITIVE_INFINITY
        const remaining = Math.min(most, Math.max(0, reported - unreportedUnits(key, rule)))
        // A window that has started with a request ends here when it ends in the store.
        const isStarted = rule.quota.startsWithRequest && resetAfter > 0
        const windowStart = Math.round(answeredAt * 1e3 + resetAfter - rule.period) / 1e3
        const spentAt = isStarted ? windowStart : answeredAt
        reports.set(rule.name, { remaining, answeredAt, spentAt })
      }
    },

    /** Returns and removes the last report about a rule of an identity. */
    take({ key, rule }: Pick<BoundRule, 'key' | 'rule'>): StoreReport | undefined {
      const reports = identities.peek(key)
      const report = reports?.get(rule.name)
      if (report && reports!.delete(rule.name) && reports!.size === 0) identities.delete(key)
      return report
    },

    /** Removes what is known about these identities. */
    forget(keys: readonly string[]): void {
      for (const key of keys) identities.delete(key)
    },
  }
}
