/**
 * The claims of one request, under all its rules that count what is in flight: made before it is decided, settled by what the store
 * has answered, and released when it is over.
 */
import type { Rule } from '../config/compile-rule.ts'
import { type BoundRule, type Outcome, type Verdict, withAgreement } from '../script/evaluation.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import type { Decision, DegradedCause } from './decision.ts'
import type { Claim, Holdings } from './holdings.ts'
import type { InAdvance } from './in-advance.ts'

/** The limit of a rule now; undefined: it is fixed. */
export type LimitOf = (rule: Rule) => number | undefined

export class Claims {
  readonly #holdings: Holdings
  readonly #stock: InAdvance
  /** All rules of the request. */
  readonly #all: readonly BoundRule[]
  readonly #claims: readonly Claim[]
  /** Of rules whose limit adapts, by their tags. */
  readonly #limits = new Map<string, number>()
  /** Units that the isolate had in advance. */
  readonly #taken: readonly { rule: BoundRule; claim: Claim }[]
  #inFlight: readonly Claim[] = []
  /** The rules that the store has to decide, with the holding that goes to it with each. */
  readonly rules: readonly BoundRule[]

  /**
   * The rows of several plans are one rule, with one key, and one claim.
   * @param limitOf the limit of a rule now, where it adapts
   */
  constructor(
    rules: readonly BoundRule[],
    holdings: Holdings,
    stock: InAdvance,
    limitOf: LimitOf = () => undefined,
  ) {
    this.#holdings = holdings
    this.#stock = stock
    this.#all = rules
    const claimed = new Map(rules.filter(isClaimed).map(rule => [rule.ownKey!, rule]))
    this.#taken = [...claimed.values()].flatMap(rule => {
      const claim = stock.take(rule)
      return claim ? [{ rule, claim }] : []
    })
    const taken = new Set(this.#taken.map(({ rule }) => rule.ownKey!))
    const asked = [...claimed].filter(([key]) => !taken.has(key))
    const claims = new Map(asked.map(([key, rule]) => [key, holdings.claim(rule)]))
    this.#claims = [...claims.values()]
    this.rules = rules.flatMap(rule => {
      if (rule.ownKey === undefined) return [rule]
      if (isClaimed(rule) && taken.has(rule.ownKey)) return []
      const claim = claims.get(rule.ownKey)
      if (!claim) return [rule]
      const limit = limitOf(rule.rule)
      if (limit !== undefined) this.#limits.set(rule.rule.tag, limit)
      return [{ ...rule, holding: { ...claim.holding, ...(limit !== undefined && { limit }) } }]
    })
  }

  /** @param isCluster the slots decide one by one, so one may have counted what another has refused */
  settle({ status, verdicts, consumer }: Outcome, isCluster: boolean): void {
    const admitted = this.#claims.filter(claim => {
      const { ownKey = '', rule } = claim.rule
      const verdict = verdicts.find(verdict => verdict.rule.tag === rule.tag)
      const use = verdict && useOf(verdict, this.#limits.get(rule.tag))
      if (verdict) this.#stock.learn(claim.rule, verdict)
      if (consumer !== undefined)
        this.#holdings.rename(claim, ownKey.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`))
      const isAdmitted = status === 'admitted' && verdict?.allowed === true
      this.#holdings.settle(claim, isAdmitted ? 'admitted' : isCluster ? 'lost' : 'refused', use)
      return isAdmitted
    })
    if (status === 'admitted') this.#inFlight = [...this.#taken.map(({ claim }) => claim), ...admitted]
    else this.putBack()
  }

  /** The outcome with the rules that the store was not asked about, each in its place. */
  completed(outcome: Outcome): Outcome {
    const { status, verdicts } = outcome
    if (this.#taken.length === 0 || (status !== 'admitted' && status !== 'refused')) return outcome
    const places = new Map(this.#all.map(({ rule }, i) => [rule.name, i]))
    const all = [...verdicts, ...this.#taken.map(({ rule }) => this.#stock.verdictOf(rule))]
    all.sort((a, b) => places.get(a.rule.name)! - places.get(b.rule.name)!)
    return { ...outcome, verdicts: withAgreement(all) }
  }

  /**
   * The store has not decided.
   * @returns the rules with what the isolate surely holds: to decide by itself
   */
  lose(cause: DegradedCause): readonly BoundRule[] {
    const isUnsent = cause === 'overload' || cause === 'breaker-open'
    for (const claim of this.#claims) this.#holdings.settle(claim, isUnsent ? 'refused' : 'lost')
    return this.rules.map(rule => {
      if (!isClaimed(rule)) return rule
      const known = this.#holdings.known(rule)
      const { limit } = rule.holding ?? {}
      return known.holding && limit !== undefined ? { ...known, holding: { ...known.holding, limit } } : known
    })
  }

  /** The isolate has decided by itself. What is admitted is in flight, also where no rule has counted it. */
  hold({ kind }: Decision): void {
    if (kind !== 'allowed') {
      this.putBack()
      return
    }
    for (const claim of this.#claims) this.#holdings.hold(claim)
    this.#inFlight = [...this.#taken.map(({ claim }) => claim), ...this.#claims]
  }

  /** The request has no use for the units that were taken. */
  putBack(): void {
    for (const { claim } of this.#taken) if (!this.#stock.putBack(claim)) this.#holdings.release(claim)
  }

  /** Those that are in flight until the request is over. */
  get inFlight(): readonly Claim[] {
    return this.#inFlight
  }
}

const isClaimed = ({ rule, role }: BoundRule) => rule.counting.state === 'held' && role === 'spend'

/** @param limit where it adapts */
function useOf({ rule: { quota }, remaining }: Verdict, limit = quota.burst): number {
  return (limit - remaining) / limit
}
