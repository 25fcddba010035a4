/**
 * Simulates a fleet on a virtual clock: very many isolates with the units that they hold, one store (the model of the script), and an
 * origin that counts requests in flight. Requests arrive at random and take random times. Replies of the store can be lost.
 */
import { IDLE, type State } from '../../src/algorithms/algorithm.ts'
import { applyMessage, concurrency } from '../../src/algorithms/concurrency.ts'
import type { Timer } from '../../src/clock.ts'
import type { Rule } from '../../src/config/compile-rule.ts'
import { GatewayError } from '../../src/errors.ts'
import { createHoldingsKeeper, type HoldingsKeeper } from '../../src/limiter/units/keep-holdings.ts'
import type { BoundRule, Outcome } from '../../src/script/evaluation.ts'
import { identityStateKey } from '../../src/store/keys.ts'
import type { Script, Store, StoreCall } from '../../src/store/store.ts'
import type { Trips } from '../../src/trips/trips.ts'
import { bound } from './bound.ts'
import { rulesOf } from './engines.ts'
import { UNBOUNDED_LOG } from './log.ts'
import { randomFrom } from './random.ts'
import { tripsOn } from './trips.ts'
import { VirtualClock } from './virtual-clock.ts'

export interface FleetPlan {
  isolates: number
  limit: number
  /** Requests that would be in flight without a limit, as a share of the limit. */
  load: number
  /** How long requests arrive. Afterwards, the simulation continues for two ttl without requests. */
  seconds: number
  /** Share of HTTP requests to the store that are executed, but whose reply is lost. */
  lost?: number
  /** Isolates that die at half time, with all units that they hold. */
  deaths?: number
  /** At half time, the store loses all its data. */
  isEmptied?: boolean
  /** How long the store fails from half time on (ms). */
  outageMs?: number
  seed?: number
}

/** Counts are those of the second half. */
export interface FleetReport {
  requests: number
  /** The most requests in flight at the origin, as a share of the limit. */
  peak: number
  /** The mean number of requests in flight at the origin, as a share of the limit. */
  utilization: number
  /** Units that the store counts, but that no request uses, as a share of the limit. */
  idle: number
  refused: number
  /** Requests that were refused while fewer than the limit were in flight. */
  refusedWithRoom: number
  /** Requests for which the rule was sent to the store. */
  decisions: number
  /** Calls that report the units of an isolate to the store and decide no request. */
  messages: number
  /** HTTP requests to the store that had only messages, and no decision. */
  alone: number
  /** Units that the store counts in flight at the end. */
  left: number
}

const SERVICE_MS = 1000
const TRIP_MS = 6
const KEY = identityStateKey(undefined, [])
const SCRIPT = {} as Script

type Decide = StoreCall & { boundRule: BoundRule | undefined }

export async function runFleet(plan: FleetPlan): Promise<FleetReport> {
  const {
    isolates,
    limit,
    load,
    seconds,
    lost = 0,
    deaths = 0,
    seed = 1,
    isEmptied = false,
    outageMs = 0,
  } = plan
  const random = randomFrom(seed)
  const [rule] = rulesOf({ name: 'fleet', by: 'global', algorithm: 'concurrency', limit }) as [Rule]
  const time = new VirtualClock()
  const until = time.nowMs + seconds * 1000
  const report = { requests: 0, refused: 0, refusedWithRoom: 0, decisions: 0, messages: 0, alone: 0 }
  let state: State = IDLE
  /** `live`: units that are admitted and have not ended. `inFlight`: requests at the origin. */
  let [live, inFlight, peak] = [0, 0, 0]

  function execute(call: StoreCall): unknown {
    const now = time.nowMs * 1e3
    if ('boundRule' in call) return decide((call as Decide).boundRule, now)
    const { args } = call as { args: string[] } & StoreCall
    report.messages += 1
    for (let i = 1; i < args.length; i += 2) {
      const [holder = '', epoch, started, ended] = args[i]!.split(' ')
      const holding = { holder, epoch: Number(epoch), started: Number(started), ended: Number(ended) }
      const quota = { ...rule.quota, period: Number(args[i + 1]) }
      state = applyMessage({ quota, holding, state, now })
    }
    return now
  }

  function decide(boundRule: BoundRule | undefined, now: number): Outcome {
    const known = { at: now, plan: '' }
    if (!boundRule) return { ...known, status: 'admitted', verdicts: [] }
    report.decisions += 1
    const check = concurrency.decide({ quota: rule.quota, holding: boundRule.holding, state, now, cost: 1 })
    if (check.after) state = check.after.state
    else {
      report.refused += 1
      if (live < limit) report.refusedWithRoom += 1
    }
    const allowed = check.after !== undefined
    if (allowed) live += 1
    const { remaining, resetAfter } = check.after ?? check
    const verdict = {
      rule,
      mode: 'enforce' as const,
      allowed,
      remaining,
      resetAfter,
      retryAfter: check.retryAfter,
      delay: 0,
    }
    return { ...known, status: allowed ? 'admitted' : 'refused', verdicts: [verdict] }
  }

  class Isolate {
    isDead = false
    readonly kept: HoldingsKeeper
    readonly #trips: Trips

    constructor(i: number) {
      const timer: Timer = (ms, run) => time.after(ms, () => this.isDead || run())
      this.kept = createHoldingsKeeper({
        now: () => time.nowMs,
        timer,
        log: UNBOUNDED_LOG,
        script: () => SCRIPT,
        newName: () => `i${String(i).padStart(7, '0')}`,
      })
      const store: Store = {
        ping: async () => {},
        run: async calls => {
          if (!calls.some(call => 'boundRule' in call)) report.alone += 1
          await time.pass(TRIP_MS / 2)
          const sinceHalf = time.nowMs - until + 500 * seconds
          if (sinceHalf >= 0 && sinceHalf < outageMs)
            throw new GatewayError('ERR_STORE_UNREACHABLE', 'The store is gone.')
          const replies = calls.map(execute)
          const isLost = random.chance(lost)
          await time.pass(isLost ? 300 : TRIP_MS / 2)
          if (isLost) throw new GatewayError('ERR_STORE_TIMEOUT', 'The reply was lost.')
          return replies
        },
      }
      this.#trips = tripsOn(store, [this.kept.rider], { now: () => time.nowMs, timer })
    }

    async request(): Promise<void> {
      report.requests += 1
      const background = (task: Promise<unknown>) => void task.catch(() => {})
      const permits = this.kept.stakeOf({ evaluation: { rules: [bound(rule, KEY, 1, time.nowMs)] } })!
      const [boundRule] = permits.forStore.rules
      const call: Decide = { command: 'GET', key: 'other', boundRule }
      try {
        const [outcome] = (await this.#trips.store.run([call])) as [Outcome]
        if (this.isDead) return
        permits.resolve(outcome)
      } catch {
        // As with `closed`, a request without a decision is refused.
        permits.markUndecided('may-have-run')
      }
      this.#trips.schedule(background)
      const release = permits.keep(this.#trips, background)
      if (!release) return
      inFlight += 1
      peak = Math.max(peak, inFlight)
      await time.pass(-Math.log(1 - random.int(0, 999_999) / 1e6) * SERVICE_MS)
      inFlight -= 1
      live -= 1
      if (!this.isDead) release()
    }
  }

  const fleet = Array.from({ length: isolates }, (_, i) => new Isolate(i))
  const perMs = (load * limit) / SERVICE_MS
  const arrive = () => {
    if (time.nowMs >= until) return
    const isolate = random.pick(fleet)
    if (!isolate.isDead) void isolate.request()
    time.after(-Math.log(1 - random.int(0, 999_999) / 1e6) / perMs, arrive)
  }
  arrive()
  const samples: [used: number, idle: number][] = []
  const sample = () => {
    if (time.nowMs >= until) return
    const now = time.nowMs * 1e3
    const counted = limit - concurrency.peek({ quota: rule.quota, state, now }).remaining
    if (time.nowMs > until - 500 * seconds) samples.push([inFlight, Math.max(0, counted - live)])
    time.after(50, sample)
  }
  sample()
  let before = { ...report }
  time.after(500 * seconds, () => {
    before = { ...report }
    if (isEmptied) state = IDLE
    for (const isolate of fleet.slice(0, deaths)) {
      isolate.isDead = true
    }
  })
  await time.run(until)
  for (const name of Object.keys(before) as (keyof typeof before)[]) report[name] -= before[name]
  const { requests, refused, refusedWithRoom, decisions, messages, alone } = report
  await time.run(until + (2 * rule.quota.period) / 1e3)
  const mean = (at: 0 | 1) => samples.reduce((sum, each) => sum + each[at], 0) / samples.length / limit
  const { remaining } = concurrency.peek({ quota: rule.quota, state, now: time.nowMs * 1e3 })
  const counts = { requests, refused, refusedWithRoom, decisions, messages, alone }
  return { ...counts, peak: peak / limit, utilization: mean(0), idle: mean(1), left: limit - remaining }
}
