/**
 * Leases: one decision of the store spends for several similar requests (script/lease.ts), and the isolate serves the others without
 * a trip. The units of every admitted request were spent before, so a limit is never exceeded, whatever is lost.
 *
 *     size       about the number of requests that the caller sends within the lease. The store grants at most 1/16 of what is left
 *     duration   the shortest `lease: { for }` of the rules that apply, counted from the start of the last trip, because the store may
 *                have decided right after it. If a trip takes longer, its answer serves only the requests that have waited for it
 *     renewal    when a quarter of the units or of the time is left, or earlier if trips are slow, one request asks the store for
 *                more (lease-renewal.ts). The isolate serves the others meanwhile, keeps its unused units, and asks for fewer.
 *                Requests that find no units wait for the answer, without a trip of their own
 *     return     unused units are given back when the lease ends, or after 250 ms without a request. They travel with the next
 *                decision. A trip for them alone is made only if leases have saved one before, so leases never cost more trips
 *                than requests without leases
 *     loss       if the platform ends the isolate, its unused units stay spent
 *
 * A changed switch ends the lease. Blocks, revoked keys and other plans take effect when the lease ends. Plain data, bounded in
 * number and time. docs/hot-callers.md describes leases for users.
 */
import { latestOf, type Timer } from '../../clock.ts'
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import { GatewayError } from '../../errors.ts'
import { Lru } from '../../lru.ts'
import {
  type BoundRule,
  type Evaluation,
  type Outcome,
  onlyEnforced,
  type Verdict,
} from '../../script/evaluation.ts'
import { encodeRefund, type Refund } from '../../script/refund.ts'
import type { StoreCall } from '../../store/store.ts'
import type { Switches } from '../../switches/switches.ts'
import type { Rider } from '../../trips/rider.ts'
import {
  createRenewalWait,
  createTripTime,
  isOnItsWay,
  type Renewal,
  renewalShare,
  startRenewal,
  TRIP_TIMEOUT_MS,
  wantedBy,
} from './lease-renewal.ts'
import {
  addUnitsLeft,
  canGiveBack,
  countServable,
  type LeaseGrant,
  refundOf,
  setDelays,
  takeUnits,
  toMicroseconds,
  unitsSpentAhead,
} from './lease-units.ts'
import { answerKeyOf, countDown, isConsistent } from './validity.ts'

/** The lease of one request. */
export interface RequestLease {
  /**
   * Serves the request from the units that the isolate holds.
   * @param isNeeded serve even if a renewal is due, because the store has not admitted the request
   * @returns undefined if the request has to make a trip
   */
  serve(isNeeded?: boolean): Outcome | undefined
  /**
   * Whether `serve(true)` would serve the request. After `beginTrip` it is called only while the request waits for its turn at the
   * store, so the trip begins after the last call.
   */
  canServe(): boolean
  /**
   * How long the request should wait for the units of a renewal that is on its way, and then check `canServe` again (ms). 0: it has
   * to make a trip. The waits of a request end after the time of two trips.
   */
  pauseBeforeTrip(): number
  /** Notes that a trip begins. @returns for how many requests the store is to spend; 1: for this request only */
  beginTrip(): number
  /**
   * Notes that the trip has ended, and takes the granted units.
   * @param outcome undefined: the store has not answered
   * @returns the outcome to show to the caller: its `remaining` includes the unused leased units
   */
  endTrip<T extends Outcome | undefined>(outcome: T): T
}

export interface Leases {
  /** ms since an arbitrary instant. */
  now(): number
  /**
   * @param switches that are in force now
   * @param recall returns the last answers of the store about the credential
   * @returns undefined if a rule that applies cannot be leased
   */
  forRequest(
    demand: Omit<Evaluation, 'now'>,
    switches: Switches,
    recall?: () => RememberedCaller | undefined,
  ): RequestLease | undefined
  /** Gives back the unused units of leases that have ended, with the next trips. */
  readonly returns: Rider
  /**
   * Ends all leases and allows no new ones. Gives back all unused units, including those of replies that are still on their way.
   * @param send makes a trip for the returns; false: none can be made now
   */
  giveBack(send: (returns: Rider) => Promise<boolean>): Promise<void>
  /** Discards the leased units of these keys, because their state was reset: they must not be given back. */
  discard(keys: readonly string[]): void
}

export interface LeasesOptions {
  /** ms since an arbitrary instant; should never decrease. */
  now(): number
  timer: Timer
  /** The time to write by (µs). Absent, as always in production: the clock of the store. */
  writeAt?: (() => number) | undefined
  /** Builds the call that gives units back; simulations pass their own. */
  buildRefundCall?: (refund: Refund) => StoreCall
}

/** The last answer of the store that has admitted a request. */
interface LastAnswer {
  readonly outcome: Outcome
  readonly switches: Switches
  /** ms */
  readonly answeredAt: number
  /** When the lease ends. It may be over when the answer arrives. */
  readonly endsAt: number
  /** Until when the units are kept for the requests that have waited for this answer. */
  readonly keptUntil: number
  /** The renewal that this answers. */
  readonly renewal: Renewal | undefined
}

/** The requests with the same answer key (validity.ts), and the units that are leased for them. */
interface LeaseGroup {
  /** ms */
  readonly leaseMs: number
  /** The oldest grant first. All of them are valid as long as the last answer. */
  grants: LeaseGrant[]
  lastAnswer: LastAnswer | undefined
  /** The number of the current interval of `leaseMs`, and the requests in it and in the one before. */
  interval: number
  requests: number
  previousRequests: number
  lastUsedAt: number
  /** Whether a budget that refills steadily (`gcra`, `token-bucket`) has less than 90 % of its burst left. */
  isScarce: boolean
  renewal: Renewal | undefined
  /** The part of its wanted requests that the last renewal has got. */
  grantedShare: number
  /** Until when no lease is asked for, because the store has refused (ms). */
  refusedUntil: number
}

/** With fewer requests than this in the time of a lease, no units are leased. */
const MIN_REQUESTS = 4

/**
 * The minimum if unused units would be lost to the caller. Places in a queue cannot be given back. A budget that refills steadily can
 * take back only the units that cannot have refilled since; this matters only while it is scarce.
 */
const MIN_REQUESTS_WHERE_REST_IS_LOST = 16
const MAX_REQUESTS = 10_000

/** After this time without a request (ms), unused units are given back. */
const IDLE_MS = 250

/** An isolate keeps at most as many units as its requests use in the time of this many leases. */
const MAX_KEPT_LEASES = 2

/** How often the isolate checks whether units are to be given back (ms). */
const RETURN_CHECK_MS = 100

/** How often a process that stops checks for replies that are still on their way (ms). */
const STOP_CHECK_MS = 10

/** Refunds in one HTTP request, and refunds that wait for one. */
const MAX_RETURNS_PER_TRIP = 20
const MAX_RETURNS_DUE = 1000

/** How long refunds wait for another request if no saved trip is left for them (ms). Then they are dropped. */
const MAX_RETURN_WAIT_MS = 10_000

/** About 1 kB each. The LRU keeps up to twice as many. */
const MAX_GROUPS = 4000

/** Creates the leases of an isolate. */
export function createLeases({
  now: clock,
  timer,
  writeAt,
  buildRefundCall = encodeRefund,
}: LeasesOptions): Leases {
  const now = latestOf(clock, () => {
    for (const [key, group] of activeGroups) endLeases(key, group)
  })
  /** The groups that hold units. */
  const activeGroups = new Map<string, LeaseGroup>()
  const groups = new Lru<LeaseGroup>({
    size: MAX_GROUPS,
    onEviction: key => {
      const group = activeGroups.get(key)
      if (group) endLeases(key, group)
    },
  })
  /** Grants of leases that have ended, with units to give back. */
  let returnsDue: { grant: LeaseGrant; since: number }[] = []
  /** Trips that leases have saved, minus those that were made to give units back. */
  let savedTrips = 0
  /** Trips that have not ended: decisions and refunds. */
  let openTrips = 0
  const tripTime = createTripTime()
  let isStopped = false

  function endLeases(key: string, group: LeaseGroup): void {
    const since = now()
    for (const grant of group.grants) if (grant.units.some(canGiveBack)) returnsDue.push({ grant, since })
    returnsDue = returnsDue.slice(-MAX_RETURNS_DUE)
    group.grants = []
    group.lastAnswer = undefined
    activeGroups.delete(key)
  }

  function endExpiredLeases(): void {
    const time = now()
    for (const [key, group] of activeGroups) {
      if (time >= group.lastUsedAt + IDLE_MS || isOver(group, time)) endLeases(key, group)
    }
    returnsDue = returnsDue.filter(({ since }) => time - since < MAX_RETURN_WAIT_MS)
  }

  const returns: Rider = {
    isMeasured: true,
    isOptional: true,
    load({ isAlone }) {
      const taken = returnsDue.splice(0, MAX_RETURNS_PER_TRIP)
      if (taken.length === 0) return undefined
      if (isAlone) savedTrips -= 1
      openTrips += 1
      return {
        calls: taken.map(({ grant }) => buildRefundCall(refundOf(grant, writeAt?.()))),
        // If a refund may have arrived, it is not sent again: the units stay spent.
        done(replies) {
          openTrips -= 1
          const isSent = (reply: unknown) => !(reply instanceof GatewayError && reply.fate === 'not-sent')
          returnsDue.unshift(...taken.filter((_, i) => !isSent(replies[i])))
        },
      }
    },
    aloneAfterMs() {
      endExpiredLeases()
      const [oldest] = returnsDue
      const wait = oldest && savedTrips > 0 ? oldest.since + RETURN_CHECK_MS - now() : RETURN_CHECK_MS
      return activeGroups.size > 0 || oldest ? Math.max(0, wait) : undefined
    },
  }

  function findOrCreateGroup(key: string, leaseMs: number): LeaseGroup {
    const known = groups.get(key)
    if (known) return known
    const group: LeaseGroup = {
      ...{
        leaseMs,
        grants: [],
        lastAnswer: undefined,
        interval: 0,
        requests: 0,
        previousRequests: 0,
        lastUsedAt: 0,
        isScarce: false,
      },
      ...{ renewal: undefined, grantedShare: 1, refusedUntil: Number.NEGATIVE_INFINITY },
    }
    groups.set(key, group)
    return group
  }

  /** Counts this request, and estimates how many requests come in the time of a lease. @param time ms */
  function estimateRequests(group: LeaseGroup, time: number): number {
    const { leaseMs } = group
    const interval = Math.floor(time / leaseMs)
    if (interval !== group.interval) {
      group.previousRequests = interval === group.interval + 1 ? group.requests : 0
      group.interval = interval
      group.requests = 0
    }
    group.requests += 1
    return Math.floor(group.requests + group.previousRequests * (1 - (time / leaseMs - interval)))
  }

  return {
    now,

    forRequest(demand, switches, recall) {
      const { rules, policy } = demand
      const leaseMs = policy.leases && !isStopped ? findShortestLease(rules) : undefined
      if (leaseMs === undefined) return undefined
      const key = answerKeyOf(rules, demand)
      const group = findOrCreateGroup(key, leaseMs)
      const time = now()
      group.lastUsedAt = time
      const rate = Math.min(estimateRequests(group, time), MAX_REQUESTS)
      const losesUnusedUnits = group.isScarce || rules.some(({ rule }) => rule.counting.isQueue)
      const isFrequent = rate >= (losesUnusedUnits ? MIN_REQUESTS_WHERE_REST_IS_LOST : MIN_REQUESTS)
      /** Set once this request makes a trip (ms). */
      let tripStartedAt: number | undefined
      /** The request to the store was not sent before this time (ms). */
      let notSentBefore = 0
      /** Set if this request renews the lease. */
      let ownRenewal: Renewal | undefined
      const wait = createRenewalWait(tripTime)

      const mayRenew = (at: number) => at >= group.refusedUntil && !isOnItsWay(group.renewal, at)

      function findGrant(): LeaseGrant | undefined {
        const { lastAnswer } = group
        const at = now()
        const isInvalid =
          isOver(group, at) ||
          lastAnswer?.switches !== switches ||
          !isConsistent(lastAnswer.outcome, recall?.())
        if (isInvalid) endLeases(key, group)
        else if (at >= lastAnswer.endsAt && !(tripStartedAt === undefined && wait.isFor(lastAnswer.renewal)))
          return undefined
        return group.grants.find(({ units }) => units.every(each => each.left >= rules[each.ruleIndex]!.cost))
      }

      /** Whether this request has to make a trip to renew the lease. */
      function isRenewalDue(): boolean {
        const at = now()
        if (!mayRenew(at)) return false
        const share = renewalShare(leaseMs!, tripTime.ms)
        if (group.lastAnswer!.endsAt - at <= leaseMs! * share) return true
        return isFrequent && countServable(group.grants, rules) <= rate * share
      }

      return {
        serve(isNeeded = false) {
          const grant = findGrant()
          if (!grant || (!isNeeded && isRenewalDue())) return undefined
          if (tripStartedAt === undefined) savedTrips += 1
          const { outcome, answeredAt } = group.lastAnswer!
          const elapsed = toMicroseconds(now() - answeredAt)
          const delays = takeUnits(grant, rules, now())
          const adjusted = setDelays(addUnitsLeft(countDown(outcome, elapsed), group.grants), delays)
          // The units may be older than the last answer, and a refund of this request needs the time when they were spent.
          return { ...adjusted, at: grant.outcome.at }
        },

        canServe() {
          if (tripStartedAt !== undefined) notSentBefore = now()
          return findGrant() !== undefined
        },

        pauseBeforeTrip: () => wait.pause(group.renewal, now()),

        beginTrip() {
          tripStartedAt = now()
          notSentBefore = tripStartedAt
          openTrips += 1
          if (!mayRenew(tripStartedAt)) return 1
          const servable = countServable(group.grants, rules)
          const wanted = isFrequent ? wantedBy(rate, servable, leaseMs, tripTime.ms) : 1
          // Until the answer arrives, other requests that make a trip ask for themselves only.
          ownRenewal = startRenewal(tripStartedAt, wanted, group.grantedShare)
          group.renewal = ownRenewal
          return wanted
        },

        endTrip<T extends Outcome | undefined>(outcome: T): T {
          const at = now()
          openTrips -= 1
          if (group.renewal === ownRenewal) group.renewal = undefined
          if (!outcome) return outcome
          tripTime.record(at - tripStartedAt!)
          if (ownRenewal) group.grantedShare = (outcome.granted ?? 1) / ownRenewal.wanted
          group.isScarce = outcome.verdicts.some(isScarce)
          if (outcome.status === 'refused' && !isGuessRefusal(outcome)) group.refusedUntil = at + leaseMs
          // The credential is no longer valid, its consumer is blocked, or there were too many guesses: then valid and bad credentials get the same reply.
          else if (outcome.status !== 'admitted') endLeases(key, group)
          if (outcome.status !== 'admitted') return outcome
          // The caller has become slower.
          if (countServable(group.grants, rules) > MAX_KEPT_LEASES * rate) endLeases(key, group)
          // Units that were spent under other rules or other limits cannot serve these requests.
          if (group.lastAnswer && !hasSameRules(group.lastAnswer.outcome, outcome)) endLeases(key, group)
          const units = outcome.granted ? unitsSpentAhead(rules, outcome, outcome.granted) : []
          if (units.length > 0) group.grants.push({ evaluation: demand, outcome, units, answeredAt: at })
          group.grants = group.grants.filter(({ units }) => units.some(({ left }) => left > 0))
          if (group.grants.length === 0) return outcome
          // The store has confirmed that this caller is admitted. A reply that was overtaken by a later one confirms nothing new.
          // If the clock was set back meanwhile, the lease is over at once.
          const endsAt = notSentBefore > at ? at : notSentBefore + leaseMs
          if (isOver(group, at) || endsAt >= group.lastAnswer!.endsAt) {
            const keptUntil = Math.max(endsAt, at + tripTime.ms)
            const renewal = ownRenewal ?? group.lastAnswer?.renewal
            group.lastAnswer = { outcome, switches, answeredAt: at, endsAt, keptUntil, renewal }
          }
          activeGroups.set(key, group)
          const adjusted = addUnitsLeft(outcome, group.grants)
          if (isStopped) endLeases(key, group)
          return adjusted
        },
      }
    },

    returns,

    async giveBack(send) {
      isStopped = true
      for (const [key, group] of activeGroups) endLeases(key, group)
      for (
        let waited = 0;
        returnsDue.length > 0 || (openTrips > 0 && waited < TRIP_TIMEOUT_MS);
        waited += STOP_CHECK_MS
      ) {
        while (returnsDue.length > 0) {
          const isSent = await send(returns).catch(
            error => !(error instanceof GatewayError && error.fate === 'not-sent'),
          )
          // No trip can be made now, so the units stay spent.
          if (!isSent) returnsDue = []
        }
        if (openTrips > 0) await new Promise<void>(resolve => timer(STOP_CHECK_MS, resolve))
      }
    },

    discard(keys) {
      const changed = new Set(keys)
      const isChanged = ({ units }: LeaseGrant) => units.some(({ bound }) => changed.has(bound.key))
      returnsDue = returnsDue.filter(({ grant }) => !isChanged(grant))
      for (const [key, group] of activeGroups) {
        group.grants = group.grants.filter(grant => !isChanged(grant))
        if (group.grants.length === 0) activeGroups.delete(key)
      }
    },
  }
}

/**
 * Whether no request may use the units any more. A clock that was set back must not extend a lease. While a renewal is
 * on its way, the units are kept, because its answer makes them valid again.
 */
const isOver = ({ lastAnswer, renewal }: LeaseGroup, time: number) =>
  lastAnswer === undefined ||
  time < lastAnswer.answeredAt ||
  (time >= lastAnswer.keptUntil && !isOnItsWay(renewal, time))

/** Whether the same rules apply in both outcomes, with the same numbers. */
function hasSameRules(one: Outcome, other: Outcome): boolean {
  const rulesOf = ({ verdicts }: Outcome) =>
    verdicts.map(({ rule: { name, limit, quota }, mode }) => `${name} ${mode} ${limit} ${quota.burst}`).join()
  return one.plan === other.plan && one.consumer === other.consumer && rulesOf(one) === rulesOf(other)
}

const isGuessRefusal = ({ verdicts }: Outcome) =>
  onlyEnforced(verdicts).some(({ rule, allowed }) => rule.on === 'auth-failure' && !allowed)

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
