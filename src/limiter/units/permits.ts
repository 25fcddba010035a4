/**
 * The permits of one request: the units that it takes under rules that count units in flight (`concurrency`). They are made before
 * the request is decided, resolved by the answer of the store, and released when the request is over.
 */
import { MAX_IN_FLIGHT } from '../../algorithms/concurrency.descriptor.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import type { CallFate } from '../../errors.ts'
import type { BoundRule, Outcome, Verdict } from '../../script/evaluation.ts'
import type { Decision } from '../decision.ts'
import type { Stake } from '../keeper.ts'
import type { Holdings, Permit } from './holdings.ts'

/** `Stake.keep` of permits. */
export type KeepPermits = (permits: Permits, ...args: Parameters<Stake['keep']>) => ReturnType<Stake['keep']>

export class Permits implements Stake {
  readonly #holdings: Holdings
  readonly #keep: KeepPermits
  readonly #permits: readonly Permit[]
  /** The permits that are in flight until the request is over. */
  inFlight: readonly Permit[] = []
  /** The rules that the store has to decide, each with the message about what the isolate holds. */
  readonly forStore: { readonly rules: readonly BoundRule[] }

  /** A rule can be in `rules` once for each plan. These entries have one key, and share one permit. */
  constructor(rules: readonly BoundRule[], holdings: Holdings, keep: KeepPermits) {
    this.#holdings = holdings
    this.#keep = keep
    const needed = new Map(
      // Not those that another holder will hold.
      rules.filter(rule => needsPermit(rule) && !rule.holding).map(rule => [rule.sideKey, rule]),
    )
    const permits = new Map(
      [...needed].map(([key, rule]) => {
        const variants = rules.filter(({ sideKey }) => sideKey === key)
        return [key, holdings.takePermit(rule, Math.max(...variants.map(mostAtOnce)))]
      }),
    )
    this.#permits = [...permits.values()]
    const rulesForStore = rules.map(rule => {
      const permit = permits.get(rule.sideKey)
      if (!permit) return rule
      // The limit of this request, if it differs from that in the script: it adapts, or depends on the traffic class.
      const { limit, quota } = rule.rule
      return { ...rule, holding: { ...permit.holding, ...(limit !== quota.burst && { limit }) } }
    })
    this.forStore = { rules: rulesForStore }
  }

  /** Resolves the permits by the outcome. */
  resolve({ status, verdicts, consumer, isBySlot }: Outcome): void {
    const admitted = this.#permits.filter(permit => {
      const { rule } = permit.rule
      const verdict = verdicts.find(verdict => verdict.rule.tag === rule.tag)
      const usedShare = verdict && usedShareOf(verdict)
      const isAdmitted = status === 'admitted' && verdict?.allowed === true
      this.#holdings.resolve(
        permit,
        isAdmitted ? 'admitted' : isBySlot ? 'lost' : 'refused',
        usedShare,
        consumer,
      )
      return isAdmitted
    })
    if (status === 'admitted') this.inFlight = admitted
  }

  /**
   * Resolves the permits if the store has not decided.
   * @returns the rules with the units that the isolate holds for sure, so that it can decide by itself
   */
  markUndecided(fate: CallFate): readonly BoundRule[] {
    for (const permit of this.#permits)
      this.#holdings.resolve(permit, fate === 'not-sent' ? 'refused' : 'lost')
    return this.forStore.rules.map(rule => (needsPermit(rule) ? this.#holdings.withHeldUnits(rule) : rule))
  }

  /** Resolves the permits if the isolate has decided by itself. An admitted request is in flight even if no rule has counted it. */
  holdLocally({ kind }: Decision): void {
    if (kind !== 'allowed') return
    for (const permit of this.#permits) this.#holdings.hold(permit)
    this.inFlight = this.#permits
  }

  keep(...args: Parameters<Stake['keep']>) {
    return this.#keep(this, ...args)
  }
}

export const needsPermit = ({ rule, role }: BoundRule) => countsInFlight(rule) && role === 'spend'

/** The highest limit that the store can apply: an override of a consumer can raise the limit of the config. */
const mostAtOnce = ({ rule: { limit, quota, takesOverrides } }: BoundRule) =>
  takesOverrides ? MAX_IN_FLIGHT : Math.max(limit, quota.burst)

/** The used part of the limit, from 0 to 1. */
const usedShareOf = ({ rule: { limit, exceedableLimit = limit }, remaining }: Verdict) =>
  (limit - remaining) / exceedableLimit
