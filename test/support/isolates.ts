/** Isolates of a fleet, each with an engine and the units that it holds, on a clock that only the test moves. */
import type { Background } from '../../src/background.ts'
import type { Timer } from '../../src/clock.ts'
import type { BreakerSettings } from '../../src/config/compile-breaker.ts'
import type { Rule } from '../../src/config/compile-rule.ts'
import type { RememberedCaller } from '../../src/credentials/caller-memory.ts'
import type { DemandedRule } from '../../src/limiter/bind.ts'
import { evaluateOnCluster } from '../../src/limiter/cluster.ts'
import type { Decided, EngineOptions } from '../../src/limiter/engine-shape.ts'
import { createLocalLimiter } from '../../src/limiter/outage/local.ts'
import { createProbe } from '../../src/limiter/probe.ts'
import { createEngineWithSettlements } from '../../src/limiter/reservations/engine-with-reservations.ts'
import { createSettlements } from '../../src/limiter/reservations/settlements.ts'
import { createHoldingsKeeper } from '../../src/limiter/units/keep-holdings.ts'
import type { Subject } from '../../src/script/evaluation.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'
import { NO_BOARD } from '../../src/switches/live.ts'
import { type RedisEngine, ruleSetFor } from './engines.ts'
import { UNBOUNDED_LOG } from './log.ts'
import { storeOf } from './stores.ts'
import { NOON } from './traffic.ts'

const ACME = consumerStateKey('acme')

/** A clock that stands still, with its timers. */
export class Timers {
  nowMs = NOON / 1e3
  #waiting: { at: number; run: () => void }[] = []

  timer = (ms: number, run: () => void) => {
    // Truncated, as on real platforms.
    const entry = { at: this.nowMs + Math.trunc(ms), run }
    this.#waiting.push(entry)
    return () => {
      this.#waiting = this.#waiting.filter(other => other !== entry)
    }
  }

  get waiting(): number {
    return this.#waiting.length
  }

  /** Moves the clock forward, and runs the timers that are due. */
  async pass(ms: number): Promise<void> {
    const until = this.nowMs + ms
    for (;;) {
      await settled()
      const next = this.#waiting.filter(({ at }) => at <= until).sort((a, b) => a.at - b.at)[0]
      if (!next) break
      this.#waiting = this.#waiting.filter(other => other !== next)
      // A timer is late if the clock has moved on without it.
      this.nowMs = Math.max(this.nowMs, next.at)
      next.run()
    }
    this.nowMs = Math.max(this.nowMs, until)
    await settled()
  }
}

/** Number of calls to a Redis that have no reply yet. */
let underWay = 0

/** Waits until all started work is done, and no new work follows from it. */
export async function settled(): Promise<void> {
  for (let quiet = 0; quiet < 5; quiet = underWay > 0 ? 0 : quiet + 1) {
    await new Promise(resolve => setImmediate(resolve))
  }
}

interface IsolateOptions extends Partial<Pick<EngineOptions, 'board' | 'answers' | 'signals'>> {
  isCluster?: boolean
  /** Absent: the breaker never opens. */
  breaker?: BreakerSettings | undefined
}

/** An isolate: its engine, and the calls of each of its HTTP requests to the store. */
export function isolateOn(
  redis: RedisEngine,
  time: Timers,
  name: string,
  { isCluster = false, breaker, ...options }: IsolateOptions = {},
) {
  const requests: StoreCall[][] = []
  const working = storeOf(redis, { isCluster })
  const isolate = {
    requests,
    /** Replaces the answers of the store. */
    fault: undefined as ((run: () => Promise<unknown[]>) => Promise<unknown[]>) | undefined,
    /** The platform has ended the isolate, so none of its code runs anymore. */
    isEnded: false,
  }
  const store: Store = {
    ...working,
    async run(calls) {
      if (isolate.isEnded) throw new Error('No code of an isolate that was ended runs.')
      requests.push([...calls])
      const run = async () => {
        underWay += 1
        try {
          return await working.run(calls)
        } finally {
          underWay -= 1
        }
      }
      return isolate.fault ? await isolate.fault(run) : await run()
    },
  }
  // As on Node, the monotonic clock starts at another time.
  const clock = { now: () => time.nowMs, elapsed: () => time.nowMs - 1e9 }
  const timer: Timer = (ms, run) => time.timer(ms, () => isolate.isEnded || run())
  const holdingsKeeper = createHoldingsKeeper({
    now: clock.elapsed,
    timer,
    log: UNBOUNDED_LOG,
    script: syncScript,
    writeAt: () => time.nowMs * 1e3,
    answers: options.answers,
    newName: named(name),
  })
  let reservations = 0
  const local = createLocalLimiter(1, clock.now, () => time.nowMs * 1e3)
  const settlements = createSettlements({
    onReport: local.noteReport,
    ...{ now: clock.elapsed, wallClock: clock.now, timer, log: UNBOUNDED_LOG },
    writeAt: () => time.nowMs * 1e3,
    // The state has only the last seven letters.
    newId: () => `${String(reservations++).padStart(12 - name.length, '0')}${name}`,
  })
  const engineOptions: EngineOptions = {
    ...{ clock, decideAt: () => time.nowMs * 1e3, board: NO_BOARD, keeper: holdingsKeeper },
    switchName: rule => rule.name,
    ...{ timer, log: UNBOUNDED_LOG },
    credentials: 'refuse',
    local,
    probe: createProbe(compileScripts),
    onCluster: evaluateOnCluster,
    ...options,
  }
  const config = { ...(breaker && { breaker }) }
  const engine = createEngineWithSettlements(config, store, engineOptions, settlements)
  const background: Background = task => void task.catch(() => {})
  const ask = (
    rules: readonly DemandedRule[],
    subject?: Subject,
    recall?: () => RememberedCaller | undefined,
  ): Promise<Decided> =>
    engine.decide(
      {
        rules,
        ruleSet: ruleSetFor(rules, { plans: ['free'], hasSubject: subject !== undefined }),
        ...(subject && { subject }),
      },
      { background, ...(recall && { recall }) },
    )
  return Object.assign(isolate, {
    kept: holdingsKeeper,
    ...{ engine, settlements },
    ask: (rule: Rule, cost = 1, key = ACME) => ask([{ rule, key, cost }]),
    askAll: (...rules: Rule[]) => ask(rules.map(rule => ({ rule, key: ACME, cost: 1 }))),
    askWith: ask,
  })
}

/** Makes the names of holders: first that of the isolate, then one for each request whose consumer only the store knew. */
function named(name: string): () => string {
  let count = 0
  return () =>
    `${name}${'0'.repeat(7)}${count++}`.replace(/^(.*?)0*(\d)$/, (_, a, b) => `${a}${b}`.padEnd(8, 'x'))
}
