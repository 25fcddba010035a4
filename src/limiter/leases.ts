/**
 * Budget that an isolate has leased: one decision has spent for several requests like it (script/lease.ts), and the isolate serves
 * the others from here, without a trip. So nothing is admitted that was not spent before: a limit is never exceeded, whatever is lost.
 *
 *     how much      about what the caller sends in the time of the lease; the store grants at most 1/16 of what is left
 *     how long      the shortest `lease: { for }` of the rules that apply, since the store has answered last
 *     renewal       one request asks again when a quarter is left, of the units or of the time; the others are served meanwhile. What
 *                   is left then stays, and the store is asked for less
 *     given back    what is left at the end, or after a quarter of a second without a request. It goes with the next decision; alone only
 *                   where the lease has saved a trip before, so that leases never cost more trips than requests
 *     lost          what an isolate holds when the platform ends it: it stays spent
 *
 * Blocks, revoked keys, switches, plans and limits that change meanwhile count when the lease ends. Plain data, bounded in
 * number and time.
 */
import type { Background } from '../background.ts'
import { latestOf, type Timer } from '../clock.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import { Lru } from '../lru.ts'
import {
  type BoundRule,
  type Evaluation,
  enforced,
  type Outcome,
  type Verdict,
} from '../script/evaluation.ts'
import { encodeRefund, type Refund } from '../script/refund.ts'
import type { Store, StoreCall } from '../store/store.ts'
import type { Switches } from '../switches/switches.ts'
import { aged, agrees, nameOf } from './answer-validity.ts'
import {
  isLeft,
  type Lot,
  leftFor,
  microseconds,
  refundOf,
  spentUnits,
  take,
  withDelays,
  withUnits,
} from './lease-units.ts'

/** The lease of one request. */
export interface Lease {
  /**
   * Serves the request from what is here.
   * @param isNeeded also where it is time to ask for more: the store has not admitted the request
   */
  serve(isNeeded?: boolean): Outcome | undefined
  /** Whether `serve` would, if it is needed. */
  canServe(): boolean
  /** The store is asked now. @returns for how many requests it shall spend; 1: an ordinary decision */
  ask(): number
  /**
   * The store has answered.
   * @param outcome undefined: it has not
   * @returns the outcome, as its caller is told: with what is left here beside what is left there
   */
  settle<T extends Outcome | undefined>(outcome: T): T
}

export interface Leases {
  /** ms; from any instant. */
  now(): number
  /**
   * @param switches that are in force now
   * @param recall the last answers of the store about the credential
   * @returns undefined where a rule that applies has no lease
   */
  of(
    demanded: Omit<Evaluation, 'now'>,
    switches: Switches,
    recall?: () => RememberedCaller | undefined,
  ): Lease | undefined
  /** The store; each request to it also gives back what leases have left. */
  withReturns(store: Store): Store
  /** Gives back in the background what is left at the end of leases. */
  giveBackSoon(store: Store, background: Background): void
  /** Ends all leases, and gives back what they have left, that of replies which are still to come too. There are no new ones. */
  giveBack(store: Store): Promise<void>
  /** The state under these keys was reset: what was leased of it is not given back. */
  drop(keys: readonly string[]): void
}

export interface LeasesOptions {
  /** ms; from any instant, should only ever grow */
  now(): number
  timer: Timer
  /** µs to write by; absent: the clock of the store, as always in production. */
  writeAt?: (() => number) | undefined
  /** The call that gives units back; simulations pass their own. */
  callFor?: (refund: Refund) => StoreCall
}

/** The last answer of the store. */
interface Answer {
  readonly outcome: Outcome
  readonly switches: Switches
  /** ms */
  readonly answeredAt: number
  readonly endsAt: number
}

/** The requests with one name. */
interface Tenant {
  /** ms */
  readonly forMs: number
  /** The oldest first. All of them end with the last answer. */
  lots: Lot[]
  last: Answer | undefined
  /** Requests in this stretch of `forMs`, and in the one before. */
  stretch: number
  count: number
  countBefore: number
  usedAt: number
  /** A budget that comes back steadily is not nearly whole. */
  isScarce: boolean
  /** Until when one request asks for more, and until when the store has no more (ms). */
  asksUntil: number
  refusedUntil: number
}

/** With fewer requests in the time of a lease, each asks. */
const LEAST_WANTED = 4

/**
 * The same where what is left would be lost to the caller: a place in a queue is not given back, and a budget that comes back steadily takes
 * back only what surely has not come back since. That does not matter while there is room.
 */
const LEAST_WANTED_WHERE_LOST = 16
const MOST_WANTED = 10_000

/** Of the units or the time of a lease, the last part in which one request asks for more. */
const RENEWAL_SHARE = 1 / 4

/** After so long without a request what is left is given back (ms). */
const IDLE_MS = 250

/** What is left stays while it is no more than comes in the time of so many leases. */
const MOST_KEPT = 2

/** How often it is checked what is to be given back (ms). */
const TICK_MS = 100

/** A question without an answer for so long is lost (ms). */
const LOST_MS = 2000

/** How often a process that is to stop looks for replies that are still to come (ms). */
const LOOK_MS = 10

/** Refunds in one HTTP request, and those that wait for one. */
const MOST_RETURNS = 20
const MOST_WAITING = 1000

/** How long they wait where no trip was saved that they could take (ms). */
const LONGEST_WAIT_MS = 10_000

/** Some 1 kB each; up to twice as many are kept. */
const MOST_TENANTS = 4000

/** One for an isolate. */
export function createLeases({ now: clock, timer, writeAt, callFor = encodeRefund }: LeasesOptions): Leases {
  const now = latestOf(clock)
  /** Those with units. */
  const active = new Map<string, Tenant>()
  const tenants = new Lru<Tenant>({
    size: MOST_TENANTS,
    onEviction: name => {
      const tenant = active.get(name)
      if (tenant) end(name, tenant)
    },
  })
  /** What is left of leases that have ended. */
  let due: { lot: Lot; since: number }[] = []
  /** Trips that were saved, and not taken to give units back. */
  let saved = 0
  /** Until when some request waits to give units back (ms). The platform may end it before. */
  let watchesUntil = Number.NEGATIVE_INFINITY
  /** Questions and refunds that the store has not answered. */
  let underWay = 0
  let isStopped = false

  function end(name: string, tenant: Tenant): void {
    const since = now()
    for (const lot of tenant.lots) if (lot.units.some(isLeft)) due.push({ lot, since })
    due = due.slice(-MOST_WAITING)
    tenant.lots = []
    active.delete(name)
  }

  function endWhatIsOver(): void {
    const time = now()
    for (const [name, tenant] of active) {
      if (time >= tenant.usedAt + IDLE_MS || isOver(tenant.last, time)) end(name, tenant)
    }
    due = due.filter(({ since }) => time - since < LONGEST_WAIT_MS)
  }

  function takeReturns(): StoreCall[] {
    return due.splice(0, MOST_RETURNS).map(({ lot }) => callFor(refundOf(lot, writeAt?.())))
  }

  /** @param calls go with them */
  async function runWithReturns(store: Store, calls: readonly StoreCall[] = []): Promise<unknown[]> {
    underWay += 1
    try {
      return await store.run([...calls, ...takeReturns()])
    } finally {
      underWay -= 1
    }
  }

  async function watch(store: Store): Promise<void> {
    do {
      watchesUntil = now() + TICK_MS
      await new Promise<void>(resolve => timer(TICK_MS, resolve, true))
      endWhatIsOver()
      if (due.length > 0 && saved > 0) {
        saved -= 1
        // What is lost stays spent.
        await runWithReturns(store).catch(() => {})
      }
    } while (active.size > 0 || due.length > 0)
    watchesUntil = Number.NEGATIVE_INFINITY
  }

  function tenantOf(name: string, forMs: number): Tenant {
    const known = tenants.get(name)
    if (known) return known
    const tenant: Tenant = {
      ...{
        forMs,
        lots: [],
        last: undefined,
        stretch: 0,
        count: 0,
        countBefore: 0,
        usedAt: 0,
        isScarce: false,
      },
      ...{ asksUntil: Number.NEGATIVE_INFINITY, refusedUntil: Number.NEGATIVE_INFINITY },
    }
    tenants.set(name, tenant)
    return tenant
  }

  /** How many requests come in the time of a lease, by those of late. */
  function expected(tenant: Tenant, time: number): number {
    const { forMs } = tenant
    const stretch = Math.floor(time / forMs)
    if (stretch !== tenant.stretch) {
      tenant.countBefore = stretch === tenant.stretch + 1 ? tenant.count : 0
      tenant.stretch = stretch
      tenant.count = 0
    }
    tenant.count += 1
    return Math.floor(tenant.count + tenant.countBefore * (1 - (time / forMs - stretch)))
  }

  return {
    now,

    of(demanded, switches, recall) {
      const { rules, policy } = demanded
      const forMs = policy.leases && !isStopped ? shortest(rules) : undefined
      if (forMs === undefined) return undefined
      const name = nameOf(rules, demanded)
      const tenant = tenantOf(name, forMs)
      const time = now()
      tenant.usedAt = time
      const rate = Math.min(expected(tenant, time), MOST_WANTED)
      const losesRest = tenant.isScarce || rules.some(({ rule }) => rule.counting.isQueue)
      const isFrequent = rate >= (losesRest ? LEAST_WANTED_WHERE_LOST : LEAST_WANTED)
      const isFree = time >= tenant.asksUntil && time >= tenant.refusedUntil
      /** When the store was asked. */
      let askedAt: number | undefined
      /** This request asks for others too. */
      let isAsking = false

      function fitting(): Lot | undefined {
        const { last } = tenant
        const at = now()
        const isInvalid = isOver(last, at) || last?.switches !== switches || !agrees(last.outcome, recall?.())
        if (isInvalid) end(name, tenant)
        return tenant.lots.find(({ units }) => units.every(each => each.left >= rules[each.place]!.cost))
      }

      /** Whether it is time to ask for more, or whether the caller may still go on. */
      function isLow(): boolean {
        if (!isFree) return false
        if (tenant.last!.endsAt - now() <= forMs! * RENEWAL_SHARE) return true
        return isFrequent && leftFor(tenant.lots, rules) <= rate * RENEWAL_SHARE
      }

      return {
        serve(isNeeded = false) {
          const lot = fitting()
          if (!lot || (!isNeeded && isLow())) return undefined
          if (askedAt === undefined) saved += 1
          const { outcome, answeredAt } = tenant.last!
          const elapsed = microseconds(now() - answeredAt)
          const delays = take(lot, rules, now())
          const told = withDelays(withUnits(aged(outcome, elapsed), tenant.lots), delays)
          // Its units may be older than the last answer: whoever gives them back must say when they were spent.
          return { ...told, at: lot.outcome.at }
        },

        canServe: () => fitting() !== undefined,

        ask() {
          askedAt = now()
          underWay += 1
          if (!isFree) return 1
          // Until the answer is there, others ask for themselves alone, if they have to.
          isAsking = true
          tenant.asksUntil = askedAt + LOST_MS
          return isFrequent ? Math.max(1, rate - leftFor(tenant.lots, rules)) : 1
        },

        settle<T extends Outcome | undefined>(outcome: T): T {
          const at = now()
          underWay -= 1
          if (isAsking) tenant.asksUntil = Number.NEGATIVE_INFINITY
          if (!outcome) return outcome
          tenant.isScarce = outcome.verdicts.some(isScarce)
          if (outcome.status === 'refused' && !isOfGuesses(outcome)) tenant.refusedUntil = at + forMs
          // The credential is bad by now, or its consumer blocked. After too many guesses good and bad credentials get the same reply.
          else if (outcome.status !== 'admitted') end(name, tenant)
          if (outcome.status !== 'admitted') return outcome
          // It has become slower.
          if (leftFor(tenant.lots, rules) > MOST_KEPT * rate) end(name, tenant)
          // What was spent by other rules, or other numbers, is not for these requests.
          if (tenant.last && !isAlike(tenant.last.outcome, outcome)) end(name, tenant)
          const units = outcome.granted ? spentUnits(rules, outcome, outcome.granted) : []
          if (units.length > 0) tenant.lots.push({ demanded, outcome, units, answeredAt: at })
          tenant.lots = tenant.lots.filter(({ units }) => units.some(({ left }) => left > 0))
          if (tenant.lots.length === 0) return outcome
          // The store has just said that this caller may go on.
          tenant.last = { outcome, switches, answeredAt: at, endsAt: at + forMs }
          active.set(name, tenant)
          const told = withUnits(outcome, tenant.lots)
          if (isStopped) end(name, tenant)
          return told
        },
      }
    },

    withReturns: store => ({
      ...(store.isCluster !== undefined && { isCluster: store.isCluster }),
      ping: () => store.ping(),
      async run(calls) {
        if (due.length === 0) return await store.run(calls)
        const replies = await runWithReturns(store, calls)
        return replies.slice(0, calls.length)
      },
    }),

    giveBackSoon(store, background) {
      if (active.size === 0 && due.length === 0) return
      const wait = watchesUntil - now()
      if (wait > -TICK_MS && wait <= TICK_MS) return
      background(watch(store))
    },

    async giveBack(store) {
      isStopped = true
      for (const [name, tenant] of active) end(name, tenant)
      for (let waited = 0; due.length > 0 || (underWay > 0 && waited < LOST_MS); waited += LOOK_MS) {
        // What is lost stays spent.
        while (due.length > 0) await runWithReturns(store).catch(() => {})
        if (underWay > 0) await new Promise<void>(resolve => timer(LOOK_MS, resolve))
      }
    },

    drop(keys) {
      const changed = new Set(keys)
      const isChanged = ({ units }: Lot) => units.some(({ bound }) => changed.has(bound.key))
      due = due.filter(({ lot }) => !isChanged(lot))
      for (const [name, tenant] of active) {
        tenant.lots = tenant.lots.filter(lot => !isChanged(lot))
        if (tenant.lots.length === 0) active.delete(name)
      }
    },
  }
}

/** A clock that was set back must not make a lease longer. */
const isOver = (last: Answer | undefined, time: number) =>
  last === undefined || time >= last.endsAt || time < last.answeredAt

/** Whether the same rules apply, with the same numbers. */
function isAlike(one: Outcome, other: Outcome): boolean {
  const rulesOf = ({ verdicts }: Outcome) =>
    verdicts.map(({ rule: { name, limit, quota }, mode }) => `${name} ${mode} ${limit} ${quota.burst}`).join()
  return one.plan === other.plan && one.consumer === other.consumer && rulesOf(one) === rulesOf(other)
}

const isOfGuesses = ({ verdicts }: Outcome) =>
  enforced(verdicts).some(({ rule, allowed }) => rule.on === 'auth-failure' && !allowed)

const isScarce = ({ rule: { counting, quota }, remaining }: Verdict) =>
  counting.state === 'time' && remaining < 0.9 * quota.burst

/** The shortest lease of the rules that spend; undefined where one of them has none. */
function shortest(rules: readonly BoundRule[]): number | undefined {
  let forMs = Number.POSITIVE_INFINITY
  for (const { rule, role } of rules) {
    // Whoever has credentials guesses nothing; a rule that costs nothing only reports.
    if (rule.on === 'auth-failure' || role === 'report') continue
    if (!rule.lease) return undefined
    forMs = Math.min(forMs, rule.lease.forMs)
  }
  return Number.isFinite(forMs) ? forMs : undefined
}
