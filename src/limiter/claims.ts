/**
 * The claims of one request, under all its rules that count what is in flight: made before it is decided, settled by what the store
 * has answered, and released when it is over.
 */
import type { BoundRule, Outcome, Verdict } from '../script/evaluation.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import type { Decision, DegradedCause } from './decision.ts'
import type { Claim, Holdings } from './holdings.ts'

export class Claims {
  readonly #holdings: Holdings
  readonly #claims: readonly Claim[]
  #inFlight: readonly Claim[] = []
  /** The rules of the request, with the holding that goes to the store with each. */
  readonly rules: readonly BoundRule[]

  /** The rows of several plans are one rule, with one key, and one claim. */
  constructor(rules: readonly BoundRule[], holdings: Holdings) {
    this.#holdings = holdings
    const claimed = new Map(rules.filter(isClaimed).map(rule => [rule.ownKey!, rule]))
    const claims = new Map([...claimed].map(([key, rule]) => [key, holdings.claim(rule)]))
    this.#claims = [...claims.values()]
    this.rules = rules.map(rule => {
      const claim = rule.ownKey === undefined ? undefined : claims.get(rule.ownKey)
      return claim ? { ...rule, holding: claim.holding } : rule
    })
  }

  /** @param isCluster the slots decide one by one, so one may have counted what another has refused */
  settle({ status, verdicts, consumer }: Outcome, isCluster: boolean): void {
    this.#inFlight = this.#claims.filter(claim => {
      const { ownKey = '', rule } = claim.rule
      const verdict = verdicts.find(verdict => verdict.rule.tag === rule.tag)
      const use = verdict && useOf(verdict)
      if (consumer !== undefined)
        this.#holdings.rename(claim, ownKey.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`))
      const isAdmitted = status === 'admitted' && verdict?.allowed === true
      this.#holdings.settle(claim, isAdmitted ? 'admitted' : isCluster ? 'lost' : 'refused', use)
      return isAdmitted
    })
  }

  /**
   * The store has not decided.
   * @returns the rules with what the isolate surely holds: to decide by itself
   */
  lose(cause: DegradedCause): readonly BoundRule[] {
    const isUnsent = cause === 'overload' || cause === 'breaker-open'
    for (const claim of this.#claims) this.#holdings.settle(claim, isUnsent ? 'refused' : 'lost')
    return this.rules.map(rule => (isClaimed(rule) ? this.#holdings.known(rule) : rule))
  }

  /** The isolate has decided by itself. What is admitted is in flight, also where no rule has counted it. */
  hold({ kind }: Decision): void {
    if (kind !== 'allowed') return
    for (const claim of this.#claims) this.#holdings.hold(claim)
    this.#inFlight = this.#claims
  }

  /** Those that are in flight until the request is over. */
  get inFlight(): readonly Claim[] {
    return this.#inFlight
  }
}

const isClaimed = ({ rule, role }: BoundRule) => rule.counting.state === 'held' && role === 'spend'

const useOf = ({ rule: { quota }, remaining }: Verdict) => (quota.burst - remaining) / quota.burst
