/**
 * Leases: one decision of the store spends for several similar requests (script/lease.ts), and the isolate serves the others without
 * a trip. The units of every admitted request were spent before, so a limit is never exceeded, whatever is lost.
 *
 *     size       about the number of requests that the caller sends within the lease. The store grants at most 1/16 of what is left
 *     duration   the shortest `lease: { for }` of the rules that apply, counted from the start of the last trip, because the store may
 *                have decided right after it. If a trip takes longer, its answer serves only the requests that have waited for it
 *     renewal    one request asks the store for more, in time (renewal.ts). The isolate serves the others meanwhile, keeps its unused
 *                units, and asks for fewer
 *     return     unused units are given back (active-leases.ts)
 *     loss       if the platform ends the isolate, its unused units stay spent
 *
 * A changed switch ends the lease. Blocks, revoked keys and other plans take effect when the lease ends. docs/hot-callers.md describes
 * leases for users.
 */
import type { BoundRule, Outcome, Verdict } from '../../script/evaluation.ts'
import { refusesGuesses } from '../decision.ts'
import { createActiveLeases, type LeaseOptions } from './active-leases.ts'
import { isOnItsWay, pauseFor } from './asked.ts'
import { answerKeyOf, type KnownAnswers, type KnownRequest, type Lease } from './known.ts'
import {
  addUnitsLeft,
  countServable,
  type LeaseGrant,
  takeUnits,
  toMicroseconds,
  unitsSpentAhead,
} from './lease-units.ts'
import { countDown } from './outcomes.ts'
import { type Renewal, RequestRate, renewalShare, wantedBy } from './renewal.ts'

/** With fewer requests than this in the time of a lease, no units are leased. */
const MIN_REQUESTS = 4

/**
 * The minimum if unused units would be lost to the caller. Places in a queue cannot be given back. A budget that refills steadily can
 * take back only the units that cannot have refilled since; this matters only while it is scarce.
 */
const MIN_REQUESTS_WHERE_REST_IS_LOST = 16
const MAX_REQUESTS = 10_000

/** The shortest pause of a request that waits for a renewal (ms). */
const MIN_PAUSE_MS = 4

/** An isolate keeps at most as many units as its requests use in the time of this many leases. */
const MAX_KEPT_LEASES = 2

/** The lease of one request. */
interface RequestLease {
  readonly request: KnownRequest
  readonly lease: Lease
  readonly rules: readonly BoundRule[]
  /** Requests that come in the time of a lease. */
  readonly rate: number
  /** Whether enough requests come to lease units for them. */
  readonly isFrequent: boolean
  /** Set if this request renews the lease. */
  renewal: Renewal | undefined
}

export type Leases = ReturnType<typeof createLeases>

export function createLeases(known: KnownAnswers, options: LeaseOptions) {
  const { now, isValid } = known
  const active = createActiveLeases(known, options)
  /** How long a slow trip takes (ms): follows slower trips at once, and faster ones gradually. 0 before the first answer. */
  let tripMs = 0

  function findGrant({ lease, request, rules }: RequestLease, time: number): LeaseGrant | undefined {
    const { lastAnswer, grants } = lease
    if (!lastAnswer) return undefined
    if (active.isOver(lease, time) || !isValid(lastAnswer, request.recall)) {
      active.end(lease)
      return undefined
    }
    // A lease that is over serves the requests that have waited for this answer.
    const { renewal } = lastAnswer
    const hasWaited = !request.trip && renewal !== undefined && request.wait?.asked === renewal
    if (time >= lastAnswer.endsAt && !hasWaited) return undefined
    return grants.find(({ units }) => units.every(each => each.left >= rules[each.ruleIndex]!.cost))
  }

  /** Whether this request has to make a trip to renew the lease. */
  function isRenewalDue({ lease, rules, rate, isFrequent }: RequestLease, time: number): boolean {
    if (!mayRenew(lease, time)) return false
    const { leaseMs, lastAnswer, grants } = lease
    const share = renewalShare(leaseMs, tripMs)
    if (lastAnswer!.endsAt - time <= leaseMs * share) return true
    return isFrequent && countServable(grants, rules) <= rate * share
  }

  /** @param answeredAt ms */
  function takeGrant(requestLease: RequestLease, outcome: Outcome, answeredAt: number): void {
    const { lease, request, rules, rate } = requestLease
    // The caller has become slower.
    const isTooMuch = countServable(lease.grants, rules) > MAX_KEPT_LEASES * rate
    // Units that were spent under other rules or other limits cannot serve these requests.
    const isOther = lease.lastAnswer && !hasSameRules(lease.lastAnswer.outcome, outcome)
    if (isTooMuch || isOther) active.end(lease)
    if (outcome.granted) {
      const units = unitsSpentAhead(rules, outcome)
      lease.grants.push({ evaluation: request.demand, outcome, units, answeredAt })
    }
    lease.grants = lease.grants.filter(({ units }) => units.some(({ left }) => left > 0))
  }

  /** The store has confirmed that this caller is admitted. A reply that was overtaken by a later one confirms nothing new. */
  function prolong(requestLease: RequestLease, outcome: Outcome, answeredAt: number): void {
    const { lease, request } = requestLease
    const { lastAnswer } = lease
    const { asOf, notSentBefore } = request.trip!
    const endsAt = notSentBefore + lease.leaseMs
    if (lastAnswer && !active.isOver(lease, answeredAt) && endsAt < lastAnswer.endsAt) return
    const keptUntil = Math.max(endsAt, answeredAt + tripMs)
    const renewal = requestLease.renewal ?? lastAnswer?.renewal
    const { switches } = request
    lease.lastAnswer = { outcome, switches, asOf, answeredAt, endsAt, keptUntil, renewal }
  }

  return {
    active,

    /** @returns undefined if a rule that applies cannot be leased */
    forRequest(request: KnownRequest): RequestLease | undefined {
      const { ruleSet, rules } = request.demand
      const leaseMs = ruleSet.leases && !active.isStopped ? findShortestLease(rules) : undefined
      if (leaseMs === undefined) return undefined
      const key = answerKeyOf(rules, request.demand)
      const entry = known.find(key) ?? known.add(key)
      entry.lease ??= newLease(leaseMs)
      const { lease } = entry
      const time = now()
      lease.lastUsedAt = time
      const rate = Math.min(lease.rate.count(time, leaseMs), MAX_REQUESTS)
      const losesUnusedUnits = lease.isScarce || rules.some(({ rule }) => rule.counting.isQueue)
      const isFrequent = rate >= (losesUnusedUnits ? MIN_REQUESTS_WHERE_REST_IS_LOST : MIN_REQUESTS)
      return { request, lease, rules, rate, isFrequent, renewal: undefined }
    },

    /**
     * Serves the request from the units that the isolate holds.
     * @param isNeeded serve even if a renewal is due, because the store has not admitted the request
     * @returns undefined if the request has to make a trip
     */
    serve(requestLease: RequestLease, isNeeded: boolean): Outcome | undefined {
      const time = now()
      const grant = findGrant(requestLease, time)
      if (!grant || (!isNeeded && isRenewalDue(requestLease, time))) return undefined
      if (!requestLease.request.trip) active.savedTrips += 1
      const { grants, lastAnswer } = requestLease.lease
      const { outcome, answeredAt } = lastAnswer!
      const delays = takeUnits(grant, requestLease.rules, time)
      const counted = countDown(outcome, toMicroseconds(time - answeredAt))
      // The units may be older than the last answer, and a refund of this request needs the time when they were spent.
      return { ...addUnitsLeft(counted, grants, delays), at: grant.outcome.at }
    },

    /** Whether the request would be served if it is needed. */
    canServe: (requestLease: RequestLease): boolean => findGrant(requestLease, now()) !== undefined,

    /** How long the request should wait for the units of a renewal, and then look again (ms). 0: it has to make a trip. */
    pauseBeforeTrip({ lease: { renewal }, request }: RequestLease): number {
      const time = now()
      if (!isOnItsWay(renewal, time)) return 0
      // The answer is due after a trip's time. If it is late, the request looks a few more times.
      const dueIn = renewal.at + tripMs - time
      return pauseFor(request, renewal, tripMs, Math.max(MIN_PAUSE_MS, dueIn > 0 ? dueIn : tripMs / 4))
    },

    /** Notes that the trip of the request begins. @returns for how many requests the store is to spend; 1: for this request only */
    beginTrip(requestLease: RequestLease): number {
      const { lease, rate, rules, isFrequent, request } = requestLease
      const { begunAt } = request.trip!
      active.tripsUnderWay += 1
      if (!mayRenew(lease, begunAt)) return 1
      const servable = countServable(lease.grants, rules)
      const wanted = isFrequent ? wantedBy(rate, servable, lease.leaseMs, tripMs) : 1
      // Close to a limit the store grants few, and a request that waits in vain takes the time of two trips.
      const places = Math.floor(wanted * Math.min(1, 2 * lease.grantedShare)) - 1
      // Until the answer arrives, other requests that make a trip ask for themselves only.
      requestLease.renewal = { at: begunAt, wanted, places }
      lease.renewal = requestLease.renewal
      return wanted
    },

    /**
     * Notes that the trip has ended, and takes the granted units.
     * @param outcome undefined: the store has not answered
     * @returns the outcome to show to the caller: its `remaining` includes the unused leased units
     */
    endTrip(requestLease: RequestLease, outcome: Outcome | undefined): Outcome | undefined {
      const { lease, renewal, request } = requestLease
      const time = now()
      active.tripsUnderWay -= 1
      if (lease.renewal === renewal) lease.renewal = undefined
      if (!outcome) return outcome
      const tookMs = time - request.trip!.begunAt
      tripMs = tookMs > tripMs ? tookMs : tripMs + (tookMs - tripMs) / 8
      if (renewal) lease.grantedShare = (outcome.granted ?? 1) / renewal.wanted
      lease.isScarce = outcome.verdicts.some(isScarce)
      if (outcome.status !== 'admitted') {
        const isPaused = outcome.pausedUntil !== undefined
        const isOverLimit = outcome.status === 'refused' && !isPaused && !refusesGuesses(outcome.verdicts)
        if (isOverLimit) lease.refusedUntil = time + lease.leaseMs
        // The limit is paused, the credential is no longer valid, its consumer is blocked, or there were too many guesses: then valid and bad credentials
        // get the same reply.
        else active.end(lease)
        return outcome
      }
      takeGrant(requestLease, outcome, time)
      if (lease.grants.length === 0) return outcome
      prolong(requestLease, outcome, time)
      active.add(lease)
      const adjusted = addUnitsLeft(outcome, lease.grants)
      if (active.isStopped) active.end(lease)
      return adjusted
    },
  }
}

const newLease = (leaseMs: number): Lease => ({
  ...{ leaseMs, rate: new RequestRate(), grants: [], lastAnswer: undefined, lastUsedAt: 0 },
  ...{ isScarce: false, renewal: undefined, grantedShare: 1, refusedUntil: Number.NEGATIVE_INFINITY },
})

const mayRenew = ({ refusedUntil, renewal }: Lease, time: number): boolean =>
  time >= refusedUntil && !isOnItsWay(renewal, time)

/** Whether the same rules apply in both outcomes, with the same numbers. */
function hasSameRules(one: Outcome, other: Outcome): boolean {
  const rulesOf = ({ verdicts }: Outcome) =>
    verdicts.map(({ rule: { name, limit, quota }, mode }) => `${name} ${mode} ${limit} ${quota.burst}`).join()
  return one.plan === other.plan && one.consumer === other.consumer && rulesOf(one) === rulesOf(other)
}

const isScarce = ({ rule: { counting, quota }, remaining }: Verdict) =>
  counting.state === 'time' && remaining < 0.9 * quota.burst

/** The duration of the shortest lease of the rules that spend (ms); undefined if one of them has none, or if no rule spends. */
function findShortestLease(rules: readonly BoundRule[]): number | undefined {
  let leaseMs = Number.POSITIVE_INFINITY
  for (const { rule, role } of rules) {
    // Leases are for valid credentials, which rules on guesses do not count. A rule with cost 0 only reports.
    if (rule.on === 'auth-failure' || role === 'peek') continue
    if (!rule.lease) return undefined
    leaseMs = Math.min(leaseMs, rule.lease.forMs)
  }
  return Number.isFinite(leaseMs) ? leaseMs : undefined
}
