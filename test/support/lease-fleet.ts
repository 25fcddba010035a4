/**
 * Simulates a fleet with leases on a virtual clock: isolates that decide by leases and remembered refusals, one store (the model of the
 * script), and an origin that counts. Requests arrive at random. Replies can be lost, isolates can die, and the store can fail.
 */

import type { Timer } from '../../src/clock.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Rule } from '../../src/config/compile-rule.ts'
import { type Answer, createAnswers } from '../../src/limiter/answers/answers.ts'
import { createLeases } from '../../src/limiter/answers/leases.ts'
import { createRefusalMemory } from '../../src/limiter/answers/refusals.ts'
import { compileOverride } from '../../src/ops/overrides.ts'
import type { Evaluation, Outcome } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import type { Refund } from '../../src/script/refund.ts'
import type { RuleSet } from '../../src/script/rule-set-shape.ts'
import { consumerKey, consumerStateKey, credentialKey } from '../../src/store/keys.ts'
import { formatConsumer, formatCredential } from '../../src/store/records.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'
import type { Trips } from '../../src/trips/trips.ts'
import { bound } from './bound.ts'
import { rulesOf } from './engines.ts'
import { knownAnswers, knownRequest } from './known-request.ts'
import { type Random, randomFrom } from './random.ts'
import { tripsOn } from './trips.ts'
import { VirtualClock } from './virtual-clock.ts'

export interface LeaseFleetPlan {
  isolates: number
  /** Requests per second of all callers in one isolate. With several rates, one is chosen at random every second. */
  perSecond: number | readonly number[]
  /** Number of callers. Each of them sends requests to every isolate. */
  callers?: number
  rules: readonly RuleInput[]
  /** The possible costs of a request, chosen at random. */
  costs?: readonly number[]
  /** How long requests arrive (s). */
  seconds: number
  /** Duration of a trip to the store and back (ms). */
  tripMs?: number
  /** How much longer or shorter each half of a trip may be, by chance: a share of `tripMs`. Absent: all trips take the same time. */
  tripSpread?: number
  /** Share of HTTP requests to the store that are executed, but whose reply is lost. */
  lost?: number
  /** Isolates that die at half time, with all units that they hold. */
  deaths?: number
  /** How long the store fails from half time on (ms). */
  outageMs?: number
  refusals?: boolean
  /** Units that each caller has spent under each rule before its first request. */
  spentBefore?: number
  /** A change for all callers, this long after the start (ms). Callers then have API keys. */
  change?: { what: Change; afterMs: number }
  seed?: number
}

/** `raise`: an override that multiplies the limits. */
export type Change = 'block' | 'revoke' | 'raise' | 'reset'

export interface LeaseFleetReport {
  requests: number
  admitted: number
  /** Units of the admitted requests. */
  units: number
  refused: number
  /** Requests without a decision, because the store had failed. */
  failed: number
  /** HTTP requests to the store. */
  trips: number
  /** HTTP requests that only give units back. */
  tripsAlone: number
  /** Requests that were admitted from a lease, without a trip. */
  leased: number
  /** Requests that were refused from memory, without a trip. */
  remembered: number
  /** The longest time from the arrival of a request to its decision (ms). */
  slowestMs: number
  /** Units that callers have requested, but for each caller and window of the first rule at most its limit. */
  permitted: number
  /**
   * The time from the change to the arrival of the last request that was admitted or refused (ms); 0: there was none. `refusedAlone`: the
   * same for requests that arrived while their isolate waited for no decision of the store.
   */
  lastAfterChange: { admitted: number; refused: number; refusedAlone: number }
  /** The units under each rule. */
  rules: readonly RuleReport[]
}

export interface RuleReport {
  /** Units that the store has spent. */
  spent: number
  /** Units that the store has taken back. */
  givenBack: number
  /** Units that were spent, but neither admitted nor given back, by cause. */
  lost: {
    /** The reply of the store was lost. */
    inReplies: number
    /** The isolate has died. */
    inDeadIsolates: number
    /** The isolate has sent them back while the store had failed. */
    inGiveBacks: number
    /** The isolate has not sent them back: places in a queue, or no saved trip was left for them. */
    unsent: number
  }
  /** Part of `lost.unsent`: in isolates with a saved trip left. */
  unsentDespiteSavedTrip: number
  /** The most units that an isolate has used or given back beyond those that it held. */
  overdrawn: number
  /** The most units of one caller that isolates held at once, with those of trips in flight. */
  mostHeld: number
  /** The most units of one caller that reached the origin in one window. */
  mostInWindow: number
  /** The most units of one caller that the store has spent in one window, minus those that were given back in it. */
  mostSpent: number
  /** Units that are spent at the end according to the model: of all callers, and the most of one caller. */
  counted: number
  mostCounted: number
}

export const unitsLost = ({ lost }: RuleReport) =>
  lost.inReplies + lost.inDeadIsolates + lost.inGiveBacks + lost.unsent

const subjectOf = (caller: number) =>
  ({
    kind: 'key',
    consumerKey: consumerKey(`caller${caller}`),
    credentialKey: credentialKey(`caller${caller}`, 'digest'),
  }) as const

type DecideCall = StoreCall & { evaluation: Omit<Evaluation, 'now'> }
type GiveBack = StoreCall & { refund: Refund }

/** After this time a reply counts as lost. */
export const LOST_MS = 250

const RULE_SET = { plans: ['free'], leases: true } as unknown as RuleSet

/** The account of the units under one rule. */
class Account {
  readonly spec: Rule
  spent = 0
  givenBack = 0
  readonly lost = { inReplies: 0, inDeadIsolates: 0, inGiveBacks: 0, unsent: 0 }
  unsentDespiteSavedTrip = 0
  overdrawn = 0
  mostHeld = 0
  mostSpent = 0
  readonly windowMs: number
  /** Units that isolates hold, by caller. */
  readonly #held = new Map<string, number>()
  /** Spent units by caller and window. */
  readonly #spentIn = new Map<string, number>()

  constructor(spec: Rule) {
    this.spec = spec
    this.windowMs = periodOf(spec)
  }

  spend(key: string, units: number, atMs: number): void {
    this.spent += units
    this.hold(key, units)
    this.#count(key, units, atMs, atMs)
  }

  /** @param spentAtMs when the units were spent. They can be given back only in the same window. */
  giveBack(key: string, units: number, spentAtMs: number, atMs: number): void {
    this.givenBack += units
    this.hold(key, -units)
    this.#count(key, -units, spentAtMs, atMs)
  }

  lose(cause: keyof Account['lost'], key: string, units: number): void {
    this.lost[cause] += units
    this.hold(key, -units)
  }

  hold(key: string, units: number): void {
    const held = (this.#held.get(key) ?? 0) + units
    this.#held.set(key, held)
    this.mostHeld = Math.max(this.mostHeld, held)
  }

  #count(key: string, units: number, spentAtMs: number, atMs: number): void {
    const [window, current] = [spentAtMs, atMs].map(ms => `${key} ${Math.floor(ms / this.windowMs)}`)
    if (window !== current) return
    const spent = (this.#spentIn.get(window!) ?? 0) + units
    this.#spentIn.set(window!, spent)
    this.mostSpent = Math.max(this.mostSpent, spent)
  }
}

export async function runLeaseFleet(plan: LeaseFleetPlan): Promise<LeaseFleetReport> {
  const { isolates, seconds, callers = 1, costs = [1], tripMs = 6, lost = 0, deaths = 0, outageMs = 0 } = plan
  const { tripSpread = 0 } = plan
  // Separate generators, so that decisions do not change which requests arrive.
  const losses: Random = randomFrom((plan.seed ?? 1) + 1)
  const tripTimes: Random = randomFrom((plan.seed ?? 1) + 2)
  const rules = rulesOf(...plan.rules)
  const accounts = rules.map(rule => new Account(rule))
  const model = new ScriptModel()
  const time = new VirtualClock()
  const start = time.nowMs
  const until = start + seconds * 1000
  const keys = Array.from({ length: callers }, (_, i) => consumerStateKey(`caller${i}`))
  const report = {
    ...{ requests: 0, admitted: 0, units: 0, refused: 0, failed: 0, trips: 0, tripsAlone: 0 },
    ...{
      leased: 0,
      remembered: 0,
      slowestMs: 0,
      lastAfterChange: { admitted: 0, refused: 0, refusedAlone: 0 },
    },
  }
  /** Units at the origin and requested units, by caller, with the time (ms). */
  const seen: [at: number, units: number][][] = keys.map(() => [])
  const wanted: [at: number, units: number][][] = keys.map(() => [])

  const accountOf = ({ name }: Rule) => accounts.find(({ spec }) => spec.name === name)!

  function execute(call: StoreCall): unknown {
    const now = time.nowMs * 1e3
    if ('evaluation' in call) {
      const { evaluation } = call as DecideCall
      const outcome = model.decide({ ...evaluation, now: Math.floor(now) })
      for (const { account, key, units } of unitsOf(evaluation, outcome))
        account.spend(key, units, time.nowMs)
      return outcome
    }
    const { refund } = call as GiveBack
    model.refund({ ...refund, now: Math.floor(now) })
    for (const { rule, key, units } of refund.rules)
      accountOf(rule).giveBack(key, units, refund.spentAt / 1e3, time.nowMs)
    return {}
  }

  /** The units that a decision has spent. */
  function unitsOf({ rules }: DecideCall['evaluation'], { status, granted = 1 }: Outcome) {
    if (status !== 'admitted') return []
    return rules.map(({ rule, key, cost }) => ({ account: accountOf(rule), key, units: granted * cost }))
  }

  function loseGiveBack(call: StoreCall): void {
    if (!('refund' in call)) return
    for (const { rule, key, units } of (call as GiveBack).refund.rules)
      accountOf(rule).lose('inGiveBacks', key, units)
  }

  const halfTrip = () =>
    (tripMs / 2) * (tripSpread > 0 ? 1 + (tripSpread * tripTimes.int(-1000, 1000)) / 1000 : 1)

  class Isolate {
    isDead = false
    /** Requests that were admitted without a trip, minus trips that only give units back. */
    savedTrips = 0
    readonly own: ReturnType<typeof createAnswers>
    readonly #trips: Trips
    /** Decisions of the store that have not arrived. */
    #openTrips = 0
    /** Units that the isolate holds, by rule and caller. */
    readonly #held = accounts.map(() => new Map<string, number>())

    constructor() {
      const timer: Timer = (ms, run) => time.after(ms, () => this.isDead || run())
      const known = knownAnswers(() => time.nowMs)
      this.own = createAnswers(
        known,
        plan.refusals === false ? undefined : createRefusalMemory(known, 1000),
        createLeases(known, {
          log: () => true,
          timer,
          buildRefundCall: refund => {
            for (const { rule, key, units } of refund.rules) this.#hold(accountOf(rule), key, -units)
            return { command: 'GET', key: 'refund', refund } as GiveBack
          },
        }),
      )
      const store: Store = {
        ping: async () => {},
        run: async calls => {
          report.trips += 1
          if (!calls.some(call => 'evaluation' in call)) {
            report.tripsAlone += 1
            this.savedTrips -= 1
          }
          await time.pass(halfTrip())
          const sinceHalf = time.nowMs - (start + until) / 2
          if (sinceHalf >= 0 && sinceHalf < outageMs) {
            for (const call of calls) loseGiveBack(call)
            throw new Error('The store is gone.')
          }
          const replies = calls.map(execute)
          const isLost = losses.chance(lost)
          await time.pass(isLost ? LOST_MS : halfTrip())
          this.#receive(calls, replies, isLost)
          if (isLost) throw new Error('The reply was lost.')
          return replies
        },
      }
      this.#trips = tripsOn(store, [this.own.returns], { now: () => time.nowMs, timer })
    }

    /** The isolate gets the units that the store has spent for it. */
    #receive(calls: readonly StoreCall[], replies: readonly unknown[], isLost: boolean): void {
      for (const [i, call] of calls.entries()) {
        if (!('evaluation' in call)) continue
        for (const { account, key, units } of unitsOf(
          (call as DecideCall).evaluation,
          replies[i] as Outcome,
        )) {
          if (isLost) account.lose('inReplies', key, units)
          else if (this.isDead) account.lose('inDeadIsolates', key, units)
          else this.#hold(account, key, units)
        }
      }
    }

    #hold(account: Account, key: string, units: number): void {
      const held = this.#held[accounts.indexOf(account)]!
      const left = (held.get(key) ?? 0) + units
      held.set(key, left)
      account.overdrawn = Math.max(account.overdrawn, -left)
    }

    die(): void {
      this.isDead = true
      this.#lose('inDeadIsolates')
    }

    /** The end of the simulation: units that the isolate still holds were not given back. */
    end(): void {
      if (!this.isDead) this.#lose('unsent')
    }

    #lose(cause: 'inDeadIsolates' | 'unsent'): void {
      for (const [i, account] of accounts.entries()) {
        for (const [key, units] of this.#held[i]!) {
          account.lose(cause, key, units)
          if (cause === 'unsent' && this.savedTrips > 0) account.unsentDespiteSavedTrip += units
        }
      }
    }

    async request(caller: number, cost: number): Promise<void> {
      report.requests += 1
      const arrivedAt = time.nowMs
      const isAlone = this.#openTrips === 0
      wanted[caller]!.push([time.nowMs, cost])
      const key = keys[caller]!
      const demanded = {
        ruleSet: RULE_SET,
        rules: rules.map(rule => bound(rule, key, cost, time.nowMs)),
        ...(plan.change && { subject: subjectOf(caller) }),
      }
      const own = this.own.forRequest(knownRequest(demanded))
      const known = own.decideBeforeTrip() ?? (await this.#waitForAnswer(own))
      if (this.isDead) return
      if (known?.decision.kind === 'allowed') {
        report.leased += 1
        this.savedTrips += 1
      } else if (known) report.remembered += 1
      const decision = known?.decision.kind ?? (await this.#decide(own, demanded))
      if (this.isDead) return
      this.#trips.schedule(task => void task.catch(() => {}))
      report.slowestMs = Math.max(report.slowestMs, time.nowMs - arrivedAt)
      if (plan.change && decision !== undefined) {
        const last = report.lastAfterChange
        const kind = decision === 'allowed' ? 'admitted' : 'refused'
        const afterMs = arrivedAt - start - plan.change.afterMs
        last[kind] = Math.max(last[kind], afterMs)
        if (kind === 'refused' && isAlone) last.refusedAlone = Math.max(last.refusedAlone, afterMs)
      }
      if (decision === undefined) report.failed += 1
      else if (decision === 'denied') report.refused += 1
      else {
        report.admitted += 1
        report.units += cost
        for (const account of accounts) {
          this.#hold(account, key, -cost)
          account.hold(key, -cost)
        }
        seen[caller]!.push([time.nowMs, cost])
      }
    }

    /** Waits in the same way as the engine. */
    async #waitForAnswer(own: Answer) {
      for (let pauseMs = own.pauseBeforeTrip(); pauseMs > 0; pauseMs = own.pauseBeforeTrip()) {
        await time.pass(pauseMs)
        if (this.isDead) return undefined
        const decided = own.decideAfterWait()
        if (decided) return decided
      }
      return undefined
    }

    async #decide(own: Answer, demanded: DecideCall['evaluation']) {
      const call: DecideCall = {
        command: 'GET',
        key: 'decide',
        evaluation: { ...demanded, wantedRequests: own.beginTrip() },
      }
      this.#openTrips += 1
      try {
        const [outcome] = (await this.#trips.store.run([call])) as [Outcome]
        if (this.isDead) return undefined
        own.endTrip(outcome)
        if (outcome.status === 'admitted') return 'allowed'
        if (outcome.status !== 'refused') return 'denied'
        return own.decideAfterRefusal()?.decision.kind ?? 'denied'
      } catch {
        own.endTrip(undefined)
        return own.decideAfterFailure()?.decision.kind
      } finally {
        this.#openTrips -= 1
      }
    }
  }

  if (plan.spentBefore) {
    const spent = (key: string) => rules.map(rule => bound(rule, key, plan.spentBefore!, start))
    for (const key of keys) model.decide({ ruleSet: RULE_SET, rules: spent(key), now: start * 1e3 })
  }
  if (plan.change) {
    const { what, afterMs } = plan.change
    for (const caller of keys.keys())
      model.setRecord(subjectOf(caller).credentialKey, formatCredential({ createdAt: new Date(start) }))
    time.after(afterMs, () => {
      for (const [caller, key] of keys.entries()) makeChange(what, caller, key)
    })
  }

  function makeChange(what: Change, caller: number, key: string): void {
    const { consumerKey, credentialKey } = subjectOf(caller)
    const createdAt = new Date(time.nowMs)
    if (what === 'block')
      model.setRecord(consumerKey, formatConsumer({ blockedAt: createdAt, overrides: [] }))
    else if (what === 'revoke') model.setRecord(credentialKey, '')
    else if (what === 'reset')
      model.reset({ rules: rules.map(rule => bound(rule, key, 1, time.nowMs)), now: time.nowMs * 1e3 })
    else {
      const config = { origin: 'route', rules: plan.rules } as ConfigInput
      const overrides = rules.map(({ name, limit }) =>
        compileOverride(config, { rule: name, limit: 10 * limit }),
      )
      model.setRecord(consumerKey, formatConsumer({ overrides }))
    }
  }

  const fleet = Array.from({ length: isolates }, () => new Isolate())
  const rates = [plan.perSecond].flat()
  for (const [i, isolate] of fleet.entries()) {
    // A generator for each isolate, so that replies do not change which requests arrive.
    const arrivals = randomFrom(1000 * (plan.seed ?? 1) + i)
    let perMs = rates[0]! / 1000
    const arrive = () => {
      if (time.nowMs >= until) return
      const [caller, cost] = [arrivals.int(0, callers - 1), arrivals.pick(costs)]
      if (!isolate.isDead) void isolate.request(caller, cost)
      time.after(pauseOf(arrivals, perMs), arrive)
    }
    const change = () => {
      perMs = arrivals.pick(rates) / 1000
      if (time.nowMs < until) time.after(1000, change)
    }
    if (rates.length > 1) change()
    // A random start, so that isolates do not send at the same instant.
    time.after(pauseOf(arrivals, perMs), arrive)
  }
  time.after(500 * seconds, () => {
    for (const isolate of fleet.slice(0, deaths)) isolate.die()
  })
  await time.run(until)
  // Runs until all leases have ended and their units are given back, or giving them back has failed.
  await time.run(until + 15_000)
  for (const isolate of fleet) isolate.end()

  const now = Math.floor(time.nowMs * 1e3)
  const countedOf = ({ spec }: Account, key: string) => {
    const { verdicts } = model.decide(
      { ruleSet: RULE_SET, rules: [bound(spec, key, 1, time.nowMs)], now },
      'peek',
    )
    return spec.quota.burst - verdicts[0]!.remaining
  }
  return {
    ...report,
    permitted: wanted
      .flatMap(each => byWindow(each, accounts[0]!.windowMs))
      .reduce((sum, units) => sum + Math.min(units, rules[0]!.limit), 0),
    rules: accounts.map((account): RuleReport => {
      const counted = keys.map(key => countedOf(account, key))
      const { spent, givenBack, lost, unsentDespiteSavedTrip, overdrawn, mostHeld, mostSpent } = account
      return {
        ...{ spent, givenBack, lost, unsentDespiteSavedTrip, overdrawn, mostHeld, mostSpent },
        mostInWindow: Math.max(0, ...seen.flatMap(each => byWindow(each, account.windowMs))),
        counted: counted.reduce((sum, each) => sum + each, 0),
        mostCounted: Math.max(...counted),
      }
    }),
  }
}

const pauseOf = (random: Random, perMs: number) => -Math.log(1 - random.int(0, 999_999) / 1e6) / perMs

const periodOf = ({ limit, quota: { rate, period } }: Rule) => (limit * period) / rate / 1e3

/** Units in each window of the algorithm `fixed-window`. */
function byWindow(seen: readonly (readonly [at: number, units: number])[], ms: number): number[] {
  const windows = new Map<number, number>()
  for (const [at, units] of seen) {
    const window = Math.floor(at / ms)
    windows.set(window, (windows.get(window) ?? 0) + units)
  }
  return [...windows.values()]
}
