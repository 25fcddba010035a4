/**
 * Isolates that reserve and settle, in random orders of events: requests and their ends, isolates that die, requests that end unsettled,
 * and windows that end. Trips are lost before or after they were executed, come late, and settlements are executed twice.
 *
 * A ledger that only sees the calls that were executed predicts what the store counts, to the unit.
 */
import { expect, it } from 'vitest'
import type { SettlementTerms } from '../../../src/config/compile-rule.ts'
import { GatewayError } from '../../../src/errors.ts'
import type { Decided } from '../../../src/limiter/engine-shape.ts'
import { settledIn } from '../../../src/script/reservation-wire.ts'
import { PER_SETTLED } from '../../../src/script/rule-set-shape.ts'
import { BASE, FIRST_DIGIT } from '../../../src/script/settle-along.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import type { ScriptCall, StoreCall } from '../../../src/store/store.ts'
import { randomCases, sized } from '../../selection.ts'
import { describeOnRedisEngine, type RedisEngine } from '../../support/engines.ts'
import { isolateOn, Timers } from '../../support/isolates.ts'
import { type Random, randomFrom, SEED } from '../../support/random.ts'
import { reservationsOf } from '../../support/reservations.ts'
import { settledRule } from '../../support/settled-rules.ts'

const LIMIT = 3000
const PERIOD_MS = 20_000
const TTL_MS = 10_000
const CONSUMERS = ['acme', 'other']
const ISOLATES = 3
const STEPS = sized(160, 28)
const RUNS = process.env.SOAK === undefined ? 8 : 200
const PAUSES_MS = [0, 0, 50, 400, 3000]
/** Above the estimates, and below. */
const ACTUAL = [0, 1, 40, 120, 300, 900]

type Fault = 'lost request' | 'lost reply' | 'late' | 'twice'

interface Entry {
  key: string
  spentAt: number
  reserved: number
  endsAt: number
  /** Set once it was settled. */
  actual?: number
}

/** What the store must count, computed from the calls that it has executed. */
class Ledger {
  readonly entries = new Map<string, Entry>()
  /** How many were settled by a decision. */
  along = 0
  /** Whether decisions have said so. */
  isAlongExact = true
  /** Units that were spent beyond what was reserved, by key and window. */
  readonly #extra = new Map<string, number>()
  readonly #terms: SettlementTerms

  constructor(terms: SettlementTerms) {
    this.#terms = terms
  }

  note(call: StoreCall, reply: unknown, nowMs: number): void {
    if (!('script' in call) || !Array.isArray(reply)) return
    if (call.args[0] === 'decide') this.#noteDecision(call, reply, nowMs)
    else if (call.args[0] === '') this.#noteSettlements(call, nowMs)
  }

  #noteDecision(
    { keys: [key = ''], args: [, , , , , text = ''] }: ScriptCall,
    reply: unknown[],
    nowMs: number,
  ) {
    const id = text.slice(0, 12)
    let applied = 0
    for (const [, letters = '', digits = ''] of text.slice(12).matchAll(/(\w{7}).{4}(.{5})\w{3}/g)) {
      const actual = [...digits].reduce((sum, digit) => sum * BASE + digit.charCodeAt(0) - FIRST_DIGIT, 0)
      const settled = [...this.entries.keys()].find(id => id.endsWith(letters))
      applied += this.#settle(key, settled ?? '', actual, nowMs)
    }
    this.along += applied
    this.isAlongExact &&= settledIn(reply) === applied
    const [status = 0, , spentAt, , , reserved] = reply as number[]
    if (status % PER_SETTLED !== 2 || !id || !reserved) return
    this.entries.set(id, { key, spentAt: spentAt!, reserved, endsAt: nowMs + TTL_MS })
  }

  #noteSettlements({ keys: [key = ''], args }: ScriptCall, nowMs: number): void {
    for (let i = 6; i < args.length; i += 5) {
      const [id = '', , verb, , actual] = args.slice(i, i + 5)
      const entry = this.#live(id, nowMs)
      if (entry && verb === 'renew') entry.endsAt = nowMs + TTL_MS
      else if (entry) this.#settle(key, id, Number(actual), nowMs)
    }
  }

  #live(id: string, nowMs: number): Entry | undefined {
    const entry = this.entries.get(id)
    return entry && entry.actual === undefined && entry.endsAt > nowMs ? entry : undefined
  }

  #settle(key: string, id: string, actual: number, nowMs: number): number {
    const entry = this.#live(id, nowMs)
    if (!entry) return 0
    entry.actual = actual
    const name = `${key} ${windowOf(nowMs)}`
    this.#extra.set(name, (this.#extra.get(name) ?? 0) + Math.max(0, actual - entry.reserved))
    return 1
  }

  /** Used and debt of an identity. */
  used(key: string, nowMs: number): number {
    let used = this.#extra.get(`${key} ${windowOf(nowMs)}`) ?? 0
    for (const entry of this.entries.values()) {
      if (entry.key !== key || windowOf(entry.spentAt / 1e3) !== windowOf(nowMs)) continue
      const isReleased = this.#terms.onUnsettled === 'release' && entry.endsAt <= nowMs
      used +=
        entry.actual !== undefined ? Math.min(entry.actual, entry.reserved) : isReleased ? 0 : entry.reserved
    }
    return used
  }

  open(key: string, nowMs: number): Entry[] {
    return [...this.entries.values()].filter(
      entry => entry.key === key && entry.actual === undefined && entry.endsAt > nowMs,
    )
  }
}

const windowOf = (ms: number) => Math.floor(ms / PERIOD_MS)

interface Plan {
  faults: readonly Fault[]
  dies?: boolean
  terms: Partial<SettlementTerms>
}

interface Open {
  isolate: ReturnType<typeof isolateOn>
  decided: Decided
}

class World {
  readonly time = new Timers()
  readonly isolates: ReturnType<typeof isolateOn>[]
  readonly ledger: Ledger
  readonly rule
  open: Open[] = []
  /** What each request has cost, as its isolate knows; undefined: it has ended unsettled. Absent: it never got the reply. */
  readonly costs = new Map<string, number | undefined>()
  readonly #redis: RedisEngine
  readonly #random: Random
  readonly #plan: Plan
  readonly #asked: Promise<unknown>[] = []

  constructor(redis: RedisEngine, plan: Plan, seed: number) {
    this.#redis = redis
    this.#plan = plan
    this.#random = randomFrom(seed)
    this.rule = settledRule(
      {
        ...{ name: 'tokens', by: 'consumer', algorithm: 'fixed-window', limit: LIMIT },
        ...{ period: `${PERIOD_MS / 1e3}s`, onStoreFailure: 'closed' },
      },
      { ttlMs: TTL_MS, ...plan.terms },
    )
    this.ledger = new Ledger(this.rule.settlement!)
    this.isolates = Array.from({ length: ISOLATES }, (_, i) => isolateOn(redis, this.time, 'ABC'[i]!))
    for (const isolate of this.isolates) isolate.fault = run => this.#run(run, isolate)
  }

  get alive() {
    return this.isolates.filter(({ isEnded }) => !isEnded)
  }

  async #run(run: () => Promise<unknown[]>, isolate: ReturnType<typeof isolateOn>): Promise<unknown[]> {
    const calls = isolate.requests.at(-1)!
    const { faults } = this.#plan
    const fault = faults.length > 0 && this.#random.chance(0.2) ? this.#random.pick(faults) : undefined
    const lost = (fate: 'not-sent' | 'may-have-run') =>
      new GatewayError('ERR_STORE_UNREACHABLE', fault ?? '', { fate })
    if (fault === 'lost request') throw lost('not-sent')
    const replies = await this.#execute(calls, run)
    // A decision is executed once. A settlement may be repeated.
    if (fault === 'twice' && calls.every(call => 'script' in call && call.args[0] === ''))
      await this.#execute(calls, run)
    if (fault === 'late') await new Promise<void>(resolve => this.time.timer(300, resolve))
    if (fault === 'lost reply' || isolate.isEnded) throw lost('may-have-run')
    return replies
  }

  async #execute(calls: readonly StoreCall[], run: () => Promise<unknown[]>): Promise<unknown[]> {
    const nowMs = this.time.nowMs
    const replies = await run()
    for (const [i, call] of calls.entries()) this.ledger.note(call, replies[i], nowMs)
    return replies
  }

  ask(isolate: ReturnType<typeof isolateOn>, consumer: string): void {
    const key = consumerStateKey(consumer)
    const cost = this.#random.pick([1, 40, 100, 250])
    const asked = isolate.askWith([{ rule: this.rule, key, cost }]).then(decided => {
      if (isolate.isEnded) return
      if (decided.awaitsEnding) this.open.push({ isolate, decided })
      else decided.finish('complete')
    })
    this.#asked.push(asked)
  }

  async step(): Promise<void> {
    const isolate = this.#random.pick(this.alive)
    this.ask(isolate, this.#random.pick(CONSUMERS))
    if (this.#random.chance(0.9) && this.open.length > 0) {
      const [over] = this.open.splice(this.#random.int(0, this.open.length - 1), 1)
      this.finish(over!)
    }
    await this.time.pass(this.#random.pick(PAUSES_MS))
  }

  finish({ isolate, decided: { finish, stake } }: Open): void {
    if (isolate.isEnded) return
    const { id, rules } = stake!.reservation!
    const how = this.#random.int(0, 9)
    if (how === 0) {
      this.costs.set(id, undefined)
      finish('failed', 'unsettled')
      return
    }
    const actual = how === 1 ? undefined : this.#random.pick(ACTUAL)
    this.costs.set(id, actual ?? rules[0]!.reserved)
    finish('complete', () => actual)
  }

  die(): void {
    const isolate = this.#random.pick(this.alive)
    isolate.isEnded = true
    this.open = this.open.filter(each => each.isolate !== isolate)
  }

  /** What a new isolate sees. */
  async check(what: string): Promise<void> {
    for (const consumer of CONSUMERS) {
      const key = consumerStateKey(consumer)
      const seen = isolateOn(this.#redis, this.time, 'Z')
      const { outcome } = await seen.askWith([{ rule: this.rule, key, cost: 0 }])
      const { remaining, debt = 0 } = outcome!.verdicts[0]!
      const { nowMs } = this.time
      expect(LIMIT - remaining + debt, `${what}, ${consumer}`).toBe(this.ledger.used(key, nowMs))
      const reservations = await reservationsOf((...command) => this.#redis.send(command), key)
      for (const { end } of reservations) expect(end).toBeLessThanOrEqual(nowMs + TTL_MS)
      const open = reservations.filter(({ end }) => end > nowMs)
      expect(open.length, what).toBe(this.ledger.open(key, nowMs).length)
    }
  }

  /** Ends all requests, and lets everything arrive. @returns the reservations that were live before */
  async settle(): Promise<Entry[]> {
    for (const isolate of this.alive) {
      isolate.fault = async run => this.#execute(isolate.requests.at(-1)!, run)
    }
    await this.time.pass(1000)
    await Promise.all(this.#asked)
    const live = this.open.flatMap(({ isolate, decided: { stake } }) => {
      const entry = this.ledger.entries.get(stake!.reservation!.id)!
      return isolate.isEnded || entry.endsAt <= this.time.nowMs + 3000 ? [] : [entry]
    })
    for (const { decided } of this.open.splice(0)) {
      this.costs.set(decided.stake!.reservation!.id, 7)
      decided.finish('complete', () => 7)
    }
    await this.time.pass(3000)
    return live
  }
}

const ALL: readonly Fault[] = ['lost request', 'lost reply', 'late', 'twice']
const PLANS: [string, Plan][] = [
  ['nothing is lost', { faults: [], terms: {} }],
  ['trips are lost, late and repeated', { faults: ALL, terms: {} }],
  ['trips are lost, and an isolate dies', { faults: ALL, dies: true, terms: {} }],
  [
    'trips are lost, an isolate dies, and what is unsettled is given back',
    { faults: ALL, dies: true, terms: { onUnsettled: 'release' } },
  ],
]

describeOnRedisEngine('the books of reservations', (fresh, kind) => {
  it.each(PLANS)('agree with what was executed, to the unit: %s', { timeout: 600_000 }, async (_, plan) => {
    let settled = 0
    let unsettled = 0
    let along = 0
    const lost = { settled: 0, unsettled: 0 }
    for (let run = 0; run < randomCases(RUNS, kind); run++) {
      const world = new World(await fresh(), plan, SEED + run)
      for (let i = 0; i < STEPS; i++) {
        if (plan.dies && i === STEPS / 2) world.die()
        await world.step()
        if (i % 10 === 9 && plan.faults.length === 0) await world.check(`run ${run}, step ${i}`)
      }
      const live = await world.settle()
      await world.check(`run ${run}, in the end`)
      // Exactly once, if the message could reach the store.
      expect(live.filter(({ actual }) => actual !== 7)).toEqual([])
      for (const isolate of world.alive)
        expect(isolate.settlements.backlog).toEqual({ waiting: 0, dropped: 0 })
      await world.time.pass(2 * TTL_MS)
      await world.check(`run ${run}, after the ttl`)
      for (const consumer of CONSUMERS)
        expect(world.ledger.open(consumerStateKey(consumer), world.time.nowMs)).toEqual([])
      along += world.ledger.along
      expect(world.ledger.isAlongExact).toBe(true)
      for (const [id, { actual }] of world.ledger.entries) {
        if (actual === undefined) unsettled += 1
        else {
          settled += 1
          // A request whose reply was lost was refused, so everything is given back.
          expect(actual).toBe(world.costs.has(id) ? world.costs.get(id) : 0)
        }
        if (!world.costs.has(id)) lost[actual === undefined ? 'unsettled' : 'settled'] += 1
      }
    }
    if (plan.faults.includes('lost reply')) expect(lost.settled).toBeGreaterThan(0)
    if (!plan.dies) expect(lost.unsettled).toBe(0)
    expect(settled).toBeGreaterThan(15)
    if (plan.terms.onUnsettled !== 'release') expect(along).toBeGreaterThan(0)
    if (plan.faults.length > 0) expect(unsettled).toBeGreaterThan(0)
  })
})
