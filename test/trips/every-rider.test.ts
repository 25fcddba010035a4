/**
 * Isolates with every rider, on one store and on a cluster, in random orders of events: requests and their ends, isolates that die, time
 * that passes, and a store that loses its data. Trips are lost before or after they were executed, come late, or are executed twice.
 *
 * In each state, no more units are in flight than the limit, and no more requests were admitted than a window has. In the end, when all
 * messages could arrive, nothing is in flight, and the store counts all that was admitted.
 */
import { expect, it } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import type { Rule } from '../../src/config/compile-rule.ts'
import { GatewayError } from '../../src/errors.ts'
import { createAnswers } from '../../src/limiter/answers/answers.ts'
import { createKnownAnswers } from '../../src/limiter/answers/known.ts'
import { createLeases } from '../../src/limiter/answers/leases.ts'
import { createRefusalMemory } from '../../src/limiter/answers/refusals.ts'
import type { Decided } from '../../src/limiter/engine-shape.ts'
import { signalScript } from '../../src/script/signal-text.ts'
import { createSignalBoard } from '../../src/shedding/signal-board.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { randomCases, sized } from '../selection.ts'
import { describeOnRedisEngine, type RedisEngine, rulesOf } from '../support/engines.ts'
import { isolateOn, Timers } from '../support/isolates.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'

const LEASE = { lease: { for: '1s' }, onStoreFailure: 'closed' } as const
const [window, held, outage] = rulesOf(
  { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 400, period: '300d', ...LEASE },
  { name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 3, ttl: '9s', onStoreFailure: 'closed' },
  { name: 'outage', by: 'consumer', algorithm: 'fixed-window', limit: 40, period: '300d' },
) as [Rule, Rule, Rule]

const CONSUMERS = ['acme', 'other']
const ISOLATES = 2
const STEPS = sized(100, 18)
const RUNS = 2
const SERVICE_MS = [0, 40, 400, 4000]

type Fault = 'lost request' | 'lost reply' | 'late' | 'twice'

/** A controller that adds up its sums. */
const CONTROLLER = {
  initial: 0,
  next: (state: number, { sums }: { sums: readonly number[] }) => state + sums[0]!,
  read: (text: string) => Number(text),
  write: (state: number) => String(state),
}

interface InFlight {
  consumer: string
  isolate: Isolate
  finish(): void
}

type Isolate = ReturnType<typeof createIsolate>

function createIsolate(redis: RedisEngine, time: Timers, name: string, isCluster: boolean) {
  const now = () => time.nowMs
  const clock = { now }
  const board = createSignalBoard({
    ...{ name: 'origin', sums: 1, controller: CONTROLLER, now, script: signalScript },
    reportAt: () => time.nowMs * 1e3,
  })
  const isolate: { isEnded: boolean } = { isEnded: false }
  const timer: Timer = (ms, run) => time.timer(ms, () => isolate.isEnded || run())
  const switchBoard = createSwitchBoard(clock)
  const known = createKnownAnswers(now, switchBoard.current)
  const answers = createAnswers(
    known,
    createRefusalMemory(known, 1000),
    createLeases(known, { timer, log: () => true, writeAt: () => time.nowMs * 1e3 }),
  )
  const whole = isolateOn(redis, time, name, {
    ...{ isCluster, answers, signals: [board], board: switchBoard },
  })
  return Object.assign(whole, {
    signal: board,
    end() {
      isolate.isEnded = whole.isEnded = true
    },
  })
}

/** Events may happen in a run. What is lost or repeated is known, so the test knows what to expect. */
interface Plan {
  faults: readonly Fault[]
  dies?: boolean
  isEmptied?: boolean
}

class World {
  readonly time = new Timers()
  readonly isolates: Isolate[]
  readonly admitted = new Map<string, number>()
  inFlight: InFlight[] = []
  mostInFlight = 0
  readonly #random: Random
  readonly #plan: Plan
  readonly #open: Promise<unknown>[] = []

  constructor(redis: RedisEngine, plan: Plan, isCluster: boolean, seed: number) {
    this.#random = randomFrom(seed)
    this.#plan = plan
    this.isolates = Array.from({ length: ISOLATES }, (_, i) =>
      createIsolate(redis, this.time, 'AB'[i]!, isCluster),
    )
    for (const isolate of this.isolates) isolate.fault = run => this.#run(run, isolate)
  }

  get alive(): Isolate[] {
    return this.isolates.filter(({ isEnded }) => !isEnded)
  }

  /** Sends the calls of a trip, with one of the faults of the plan in one of eight trips. */
  async #run(run: () => Promise<unknown[]>, isolate: Isolate): Promise<unknown[]> {
    const { faults } = this.#plan
    const fault = faults.length > 0 && this.#random.chance(0.125) ? this.#random.pick(faults) : undefined
    const lost = (fate: 'not-sent' | 'may-have-run') =>
      new GatewayError('ERR_STORE_UNREACHABLE', fault ?? '', { fate })
    if (fault === 'lost request') throw lost('not-sent')
    const replies = await run()
    if (fault === 'twice') await run()
    if (fault === 'late') await new Promise<void>(resolve => this.time.timer(300, resolve))
    if (fault === 'lost reply' || isolate.isEnded) throw lost('may-have-run')
    return replies
  }

  ask(isolate: Isolate, consumer: string, rule: Rule): void {
    isolate.signal.add([1])
    const key = consumerStateKey(consumer)
    const asked = isolate.askWith([{ rule, key, cost: 1 }]).then(decided => {
      if (!isolate.isEnded) this.#begin(isolate, consumer, rule, decided)
    })
    this.#open.push(asked)
  }

  #begin(isolate: Isolate, consumer: string, rule: Rule, { decision, finish }: Decided): void {
    const isAdmitted = decision.kind === 'allowed'
    const name = `${rule.name} ${consumer}`
    if (isAdmitted) this.admitted.set(name, (this.admitted.get(name) ?? 0) + 1)
    if (!isAdmitted || rule !== held) {
      finish('complete')
      return
    }
    this.inFlight.push({ consumer, isolate, finish: () => finish('complete') })
    for (const each of CONSUMERS) {
      const units = this.inFlight.filter(({ consumer, isolate }) => consumer === each && !isolate.isEnded)
      this.mostInFlight = Math.max(this.mostInFlight, units.length)
    }
  }

  async step(): Promise<void> {
    const { alive } = this
    if (alive.length > 0) {
      const isolate = this.#random.pick(alive)
      const consumer = this.#random.pick(CONSUMERS)
      const rule = this.#random.pick([window, window, held, held, outage])
      for (let i = rule === window ? 6 : 1; i > 0; i--) this.ask(isolate, consumer, rule)
    }
    if (this.#random.chance(0.4) && this.inFlight.length > 0) {
      const [over] = this.inFlight.splice(this.#random.int(0, this.inFlight.length - 1), 1)
      if (!over!.isolate.isEnded) over!.finish()
    }
    await this.time.pass(this.#random.pick(SERVICE_MS))
  }

  die(): void {
    const isolate = this.#random.pick(this.alive)
    isolate.end()
    this.inFlight = this.inFlight.filter(each => each.isolate !== isolate)
  }

  /** Ends all requests, and lets everything arrive. */
  async settle(): Promise<void> {
    for (const isolate of this.alive) isolate.fault = undefined
    await this.time.pass(1000)
    await Promise.all(this.#open)
    for (const { isolate, finish } of this.inFlight.splice(0)) if (!isolate.isEnded) finish()
    for (let i = 0; i < 12; i++) {
      // A request of each caller makes a trip, which hands over what was admitted without the store, and carries returns.
      for (const isolate of this.alive)
        for (const consumer of CONSUMERS)
          (await isolate.askWith([{ rule: held, key: consumerStateKey(consumer), cost: 0 }])).finish(
            'complete',
          )
      await this.time.pass(1000)
    }
  }

  /** The units left, as a new isolate sees them. */
  async left(redis: RedisEngine, rule: Rule, consumer: string, isCluster: boolean): Promise<number> {
    const fresh = isolateOn(redis, this.time, 'Z', { isCluster })
    const { decision } = await fresh.askWith([{ rule, key: consumerStateKey(consumer), cost: 0 }])
    return decision.kind === 'allowed' ? decision.verdicts[0]!.remaining : Number.NaN
  }
}

const PLANS: [string, Plan][] = [
  ['nothing is lost', { faults: [] }],
  ['trips are late', { faults: ['late'] }],
  ['trips are not sent', { faults: ['lost request'] }],
  ['replies are lost', { faults: ['lost reply', 'late'] }],
  ['trips are executed twice', { faults: ['twice', 'late'] }],
  ['an isolate dies', { faults: ['lost reply', 'lost request', 'late'], dies: true }],
  ['the store loses its data', { faults: ['late'], isEmptied: true }],
]

describeOnRedisEngine('isolates with every rider', (fresh, kind) => {
  const runs = randomCases(RUNS, kind)

  it.each(PLANS.flatMap(([name, plan]) => [false, true].map(isCluster => ({ name, plan, isCluster }))))(
    '$name, on a cluster: $isCluster',
    { timeout: 60_000 },
    async ({ plan, isCluster }) => {
      for (let run = 0; run < runs; run++) {
        const redis = await fresh()
        const world = new World(redis, plan, isCluster, SEED + run)
        for (let i = 0; i < STEPS; i++) {
          if (plan.dies && i === STEPS / 2) world.die()
          if (plan.isEmptied && i === STEPS / 2) await redis.send(['FLUSHALL'])
          await world.step()
        }
        await world.settle()
        const riders = world.isolates.flatMap(({ requests }) => requests.flat())
        const keys = riders.flatMap(call => ('keys' in call ? call.keys : [call.key]))
        for (const key of [/\{switches\}/, /\{signal:origin\}/, /:held:/, /\{c:acme\}:state$/])
          expect(keys.some(each => key.test(each))).toBe(true)
        if (!plan.isEmptied) expect(world.mostInFlight).toBeLessThanOrEqual(held.limit)
        for (const consumer of CONSUMERS) {
          // A dead isolate's units are free after the ttl.
          expect(await world.left(redis, held, consumer, isCluster)).toBe(held.limit)
          // A refund that is executed twice gives back too much: leases need a store that executes a trip at most once.
          if (plan.isEmptied || plan.faults.includes('twice')) continue
          for (const rule of [window, outage]) {
            const admitted = world.admitted.get(`${rule.name} ${consumer}`) ?? 0
            const spent = rule.limit - (await world.left(redis, rule, consumer, isCluster))
            // Leased units are given back with trips of the next ten seconds. Without any, they stay spent.
            if (rule === window) expect(spent).toBeGreaterThanOrEqual(admitted)
            // Units that were not sent are handed over again.
            const isLossless = !plan.dies && !plan.faults.includes('lost reply')
            if (rule === outage && isLossless) expect(spent).toBe(Math.min(admitted, rule.limit))
            if (rule === window) expect(admitted).toBeLessThanOrEqual(rule.limit)
          }
        }
        expect(world.time.waiting).toBe(0)
      }
    },
  )
})
