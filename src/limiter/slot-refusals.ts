/**
 * Remembers which rules the slots of a cluster have refused lately, and until when they would refuse again. cluster.ts then asks the
 * slots without spending first. Requests of other callers with the same refusing rule profit too, unlike from the remembered answers
 * of `answers/`: a consumer that is over its limit can call from many addresses.
 *
 * An entry only chooses how the slots are asked, so a wrong one costs a trip and never changes a decision. It is removed when the store
 * admits the rule. Refusals because of units in flight are not remembered, because they can end at any time.
 *
 * Plain data, bounded in number and time.
 */
import { countsInFlight } from '../config/compile-rule.ts'
import { Lru } from '../lru.ts'
import type { BoundRule, Verdict } from '../script/evaluation.ts'

/** About 200 bytes each; up to twice as many are kept. */
const MAX_REFUSALS = 4000

/** How long a refusal stays likely at most, if the limit is raised or reset meanwhile (ms). */
const MAX_MS = 60_000

interface SlotRefusal {
  /** A request with a lower cost may be admitted. */
  cost: number
  /** ms */
  until: number
}

export class SlotRefusals {
  readonly #refusals = new Lru<SlotRefusal>({ size: MAX_REFUSALS })

  /** Whether the store would probably refuse one of these rules. @param now ms */
  areLikely(rules: readonly BoundRule[], now: number): boolean {
    return rules.some(bound => {
      const refusal = this.#refusals.get(idOf(bound))
      return refusal !== undefined && bound.cost >= refusal.cost && now < refusal.until
    })
  }

  /**
   * Notes the answer of a slot.
   * @param rules that it was asked about
   * @param verdicts undefined: it has not answered
   * @param sentAt ms
   * @param answeredAt ms
   */
  note(
    rules: readonly BoundRule[],
    verdicts: readonly Verdict[] | undefined,
    sentAt: number,
    answeredAt: number,
  ): void {
    for (const bound of rules) {
      const verdict = verdicts?.find(({ rule }) => rule.tag === bound.rule.tag)
      // The next request may take as long as this one until it is decided.
      const until = sentAt + waitOf(verdict) - (answeredAt - sentAt)
      if (until > answeredAt) this.#refusals.set(idOf(bound), { cost: bound.cost, until })
      // A slot whose credential is bad or whose consumer is blocked says nothing about its limits.
      else if (verdict || !verdicts) this.#refusals.delete(idOf(bound))
    }
  }
}

/** Rules of one tag have different states under different keys. */
const idOf = ({ key, rule }: BoundRule) => `${key} ${rule.tag}`

/** How long the store would refuse the same cost (ms). Negative `retryAfter`: for ever. */
function waitOf(verdict: Verdict | undefined): number {
  if (!verdict || verdict.allowed || verdict.mode === 'shadow' || countsInFlight(verdict.rule)) return 0
  return verdict.retryAfter < 0 ? MAX_MS : Math.min(verdict.retryAfter / 1e3, MAX_MS)
}
