/**
 * Simulates a fleet with leases on a virtual clock: isolates that decide by leases and remembered refusals, one store (the model of the
 * script), and an origin that counts. Requests arrive at random. Replies, isolates and the store can be lost.
 */
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Rule } from '../../src/config/compile-rule.ts'
import { createLeases } from '../../src/limiter/leases.ts'
import { createOwnAnswers, type OwnAnswer, type OwnAnswers } from '../../src/limiter/own-answers.ts'
import { createRefusalMemory } from '../../src/limiter/refusals.ts'
import type { Evaluation, Outcome } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import type { Policy } from '../../src/script/policy-shape.ts'
import type { Refund } from '../../src/script/refund.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'
import { NO_SWITCHES } from '../../src/switches/switches.ts'
import { bound } from './bound.ts'
import { rulesOf } from './engines.ts'
import { type Random, randomFrom } from './random.ts'
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
  /** Share of HTTP requests to the store that are executed, but whose reply is lost. */
  lost?: number
  /** Isolates that die at half time, with all units that they hold. */
  deaths?: number
  /** How long the store fails from half time on (ms). */
  outageMs?: number
  refusals?: boolean
  seed?: number
}

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
  /** Units of the first rule that the store has spent. */
  spent: number
  givenBack: number
  /** Units that were spent, but neither admitted nor given back, because of lost replies and dead isolates. */
  lost: number
  /** The most units of one caller that isolates held at once. */
  mostHeld: number
  /** The most units of one caller that reached the origin in one window of the first rule. */
  mostInWindow: number
  /** The most units of one caller that the store has spent in one window of the first rule, minus those that were given back in it. */
  mostSpent: number
  /** Units that callers have requested. Of each caller and window of the first rule, at most the limit is counted. */
  permitted: number
  /** Units of the first rule that are spent at the end according to the model, for all callers. */
  counted: number
}

type Ask = StoreCall & { asked: Omit<Evaluation, 'now'> }
type GiveBack = StoreCall & { refund: Refund }

/** After this time a reply counts as lost. */
export const LOST_MS = 250

const POLICY = { plans: ['free'], leases: true } as unknown as Policy

export async function runLeaseFleet(plan: LeaseFleetPlan): Promise<LeaseFleetReport> {
  const { isolates, seconds, callers = 1, costs = [1], tripMs = 6, lost = 0, deaths = 0, outageMs = 0 } = plan
  // A separate generator, so that decisions do not change which requests arrive.
  const losses: Random = randomFrom((plan.seed ?? 1) + 1)
  const rules = rulesOf(...plan.rules)
  const model = new ScriptModel()
  const time = new VirtualClock()
  const start = time.nowMs
  const until = start + seconds * 1000
  const keys = Array.from({ length: callers }, (_, i) => consumerStateKey(`caller${i}`))
  const report = {
    ...{ requests: 0, admitted: 0, units: 0, refused: 0, failed: 0, trips: 0, tripsAlone: 0 },
    ...{ leased: 0, remembered: 0, slowestMs: 0, spent: 0, givenBack: 0 },
  }
  /** Units that isolates hold, by caller. */
  const held = keys.map(() => 0)
  /** Units at the origin and requested units, by caller, with the time (ms). */
  const seen: [at: number, units: number][][] = keys.map(() => [])
  const wanted: [at: number, units: number][][] = keys.map(() => [])
  let mostHeld = 0
  /** Spent units by caller and window of the first rule. */
  const spentIn = new Map<string, number>()
  let mostSpent = 0
  const windowMs = periodOf(rules[0]!)

  /** @param atMs when the units were spent. They can be given back only in the same window. */
  function count(key: string, units: number, atMs: number): void {
    const window = `${key} ${Math.floor(atMs / windowMs)}`
    if (window !== `${key} ${Math.floor(time.nowMs / windowMs)}`) return
    const spent = (spentIn.get(window) ?? 0) + units
    spentIn.set(window, spent)
    mostSpent = Math.max(mostSpent, spent)
  }

  const firstOf = (rule: Rule) => rule.name === rules[0]!.name
  function hold(key: string, units: number): void {
    const i = keys.indexOf(key)
    held[i]! += units
    mostHeld = Math.max(mostHeld, held[i]!)
  }

  function execute(call: StoreCall): unknown {
    const now = time.nowMs * 1e3
    if ('asked' in call) {
      const { asked } = call as Ask
      const outcome = model.decide({ ...asked, now: Math.floor(now) })
      if (outcome.status === 'admitted') {
        const { cost, key } = asked.rules[0]!
        const granted = outcome.granted ?? 1
        report.spent += granted * cost
        hold(key, granted * cost)
        count(key, granted * cost, time.nowMs)
      }
      return outcome
    }
    const { refund } = call as GiveBack
    model.refund({ ...refund, now: Math.floor(now) })
    for (const { rule, key, units } of refund.rules) {
      if (!firstOf(rule)) continue
      report.givenBack += units
      hold(key, -units)
      count(key, -units, refund.spentAt / 1e3)
    }
    return {}
  }

  class Isolate {
    isDead = false
    readonly own: OwnAnswers
    readonly #store: Store

    constructor() {
      this.own = createOwnAnswers(
        plan.refusals === false ? undefined : createRefusalMemory(1000, () => time.nowMs),
        createLeases({
          now: () => time.nowMs,
          timer: (ms, run) => time.after(ms, () => this.isDead || run()),
          buildRefundCall: refund => ({ command: 'GET', key: 'refund', refund }) as GiveBack,
        }),
      )!
      this.#store = this.own.withReturns({
        ping: async () => {},
        run: async calls => {
          report.trips += 1
          if (!calls.some(call => 'asked' in call)) report.tripsAlone += 1
          await time.pass(tripMs / 2)
          const sinceHalf = time.nowMs - (start + until) / 2
          if (sinceHalf >= 0 && sinceHalf < outageMs) throw new Error('The store is gone.')
          const replies = calls.map(execute)
          const isLost = losses.chance(lost)
          await time.pass(isLost ? LOST_MS : tripMs / 2)
          if (isLost) throw new Error('The reply was lost.')
          return replies
        },
      })
    }

    async request(caller: number, cost: number): Promise<void> {
      report.requests += 1
      const arrivedAt = time.nowMs
      wanted[caller]!.push([time.nowMs, cost])
      const demanded = {
        policy: POLICY,
        rules: rules.map(rule => bound(rule, keys[caller]!, cost, time.nowMs)),
      }
      const own = this.own.forRequest(demanded, NO_SWITCHES, () => NO_SWITCHES)
      const known = own.decideBeforeTrip() ?? (await this.#waitForAnswer(own))
      if (this.isDead) return
      if (known?.decision.kind === 'allowed') report.leased += 1
      else if (known) report.remembered += 1
      const decision = known?.decision.kind ?? (await this.#decide(own, demanded))
      this.own.maintain(this.#store, task => void task.catch(() => {}))
      if (this.isDead) return
      report.slowestMs = Math.max(report.slowestMs, time.nowMs - arrivedAt)
      if (decision === undefined) report.failed += 1
      else if (decision === 'denied') report.refused += 1
      else {
        report.admitted += 1
        report.units += cost
        held[caller]! -= cost
        seen[caller]!.push([time.nowMs, cost])
      }
    }

    /** Waits in the same way as the engine. */
    async #waitForAnswer(own: OwnAnswer) {
      for (let pauseMs = own.pauseBeforeTrip(); pauseMs > 0; pauseMs = own.pauseBeforeTrip()) {
        await time.pass(pauseMs)
        const decided = own.decideAfterWait()
        if (decided || this.isDead) return decided
      }
      return undefined
    }

    async #decide(own: OwnAnswer, demanded: Ask['asked']) {
      const call: Ask = {
        command: 'GET',
        key: 'decide',
        asked: { ...demanded, wantedRequests: own.beginTrip() },
      }
      try {
        const [outcome] = (await this.#store.run([call])) as [Outcome]
        own.endTrip(outcome)
        if (outcome.status === 'admitted') return 'allowed'
        return own.decideAfterRefusal()?.decision.kind ?? 'denied'
      } catch {
        own.endTrip(undefined)
        return own.decideAfterFailure()?.decision.kind
      }
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
    for (const isolate of fleet.slice(0, deaths)) isolate.isDead = true
  })
  await time.run(until)
  // Runs until all leases have ended and their units are given back, or giving them back has failed.
  await time.run(until + 15_000)

  const first = rules[0]!
  const spentAtEnd = keys.map(key => {
    const now = Math.floor(time.nowMs * 1e3)
    const { verdicts } = model.decide(
      { policy: POLICY, rules: [bound(first, key, 1, time.nowMs)], now },
      'peek',
    )
    return first.limit - verdicts[0]!.remaining
  })
  return {
    ...{ ...report, mostHeld, mostSpent, lost: report.spent - report.units - report.givenBack },
    mostInWindow: Math.max(0, ...seen.flatMap(each => byWindow(each, windowMs))),
    permitted: wanted
      .flatMap(each => byWindow(each, windowMs))
      .reduce((sum, units) => sum + Math.min(units, first.limit), 0),
    counted: spentAtEnd.reduce((sum, each) => sum + each, 0),
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
