/**
 * The claims of one request: the units that it takes under rules that count units in flight (`concurrency`). They are made before
 * the request is decided, settled by the answer of the store, and released when the request is over.
 */
import { countsInFlight } from '../../config/compile-rule.ts'
import type { CallFate } from '../../errors.ts'
import type { BoundRule, Outcome, Verdict } from '../../script/evaluation.ts'
import type { Decision } from '../decision.ts'
import type { Claim, Holdings } from './holdings.ts'

export class Claims {
  readonly #holdings: Holdings
  readonly #claims: readonly Claim[]
  /** The claims that are in flight until the request is over. */
  inFlight: readonly Claim[] = []
  /** The rules that the store has to decide, each with the message about what the isolate holds. */
  readonly rulesForStore: readonly BoundRule[]

  /** A rule can be in `rules` once for each plan. These entries have one key, and share one claim. */
  constructor(rules: readonly BoundRule[], holdings: Holdings) {
    this.#holdings = holdings
    const claimed = new Map(
      // Not those that another holder will hold.
      rules.filter(rule => needsClaim(rule) && !rule.holding).map(rule => [rule.sideKey, rule]),
    )
    const claims = new Map([...claimed].map(([key, rule]) => [key, holdings.claim(rule)]))
    this.#claims = [...claims.values()]
    this.rulesForStore = rules.map(rule => {
      const claim = claims.get(rule.sideKey)
      if (!claim) return rule
      // The limit of this request, if it differs from that in the script: it adapts, or depends on the traffic class.
      const { limit, quota } = rule.rule
      return { ...rule, holding: { ...claim.holding, ...(limit !== quota.burst && { limit }) } }
    })
  }

  /** Settles the claims by the outcome. */
  settle({ status, verdicts, consumer, isBySlot }: Outcome): void {
    const admitted = this.#claims.filter(claim => {
      const { rule } = claim.rule
      const verdict = verdicts.find(verdict => verdict.rule.tag === rule.tag)
      const use = verdict && useOf(verdict)
      const isAdmitted = status === 'admitted' && verdict?.allowed === true
      this.#holdings.settle(claim, isAdmitted ? 'admitted' : isBySlot ? 'lost' : 'refused', use, consumer)
      return isAdmitted
    })
    if (status === 'admitted') this.inFlight = admitted
  }

  /**
   * Settles the claims if the store has not decided.
   * @returns the rules with the units that the isolate holds for sure, so that it can decide by itself
   */
  markUndecided(fate: CallFate): readonly BoundRule[] {
    for (const claim of this.#claims) this.#holdings.settle(claim, fate === 'not-sent' ? 'refused' : 'lost')
    return this.rulesForStore.map(rule => (needsClaim(rule) ? this.#holdings.withHeldUnits(rule) : rule))
  }

  /** Settles the claims if the isolate has decided by itself. An admitted request is in flight even if no rule has counted it. */
  holdLocally({ kind }: Decision): void {
    if (kind !== 'allowed') return
    for (const claim of this.#claims) this.#holdings.hold(claim)
    this.inFlight = this.#claims
  }

  /** The state keys of the claims that are in flight. */
  get keys(): string[] {
    return this.inFlight.map(({ rule }) => rule.key)
  }
}

const needsClaim = ({ rule, role }: BoundRule) => countsInFlight(rule) && role === 'spend'

/** The used part of the limit, from 0 to 1. */
const useOf = ({ rule: { limit }, remaining }: Verdict) => (limit - remaining) / limit
