/**
 * Random outages: an isolate that decides some requests by itself, and the store, which decides the others, together admit no more than
 * the limit. Requests are lost before or after the store has counted them, and replies come late and in any order.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { SYSTEM_TIMER } from '../../../src/clock.ts'
import { GatewayError } from '../../../src/errors.ts'
import { evaluateOnCluster } from '../../../src/limiter/cluster.ts'
import { createEngine } from '../../../src/limiter/engine.ts'
import type { Engine } from '../../../src/limiter/engine-shape.ts'
import { createLocalLimiter } from '../../../src/limiter/outage/local.ts'
import { createProbe } from '../../../src/limiter/probe.ts'
import { compileScripts } from '../../../src/script/scripts.ts'
import type { Store, StoreCall } from '../../../src/store/store.ts'
import { createSwitchBoard } from '../../../src/switches/live.ts'
import { RedisEngine, rulesOf } from '../../support/engines.ts'
import { UNBOUNDED_LOG } from '../../support/log.ts'
import { randomFrom, SEED } from '../../support/random.ts'
import { startRedis, type TestRedis } from '../../support/redis.ts'
import { ruleSetOf } from '../../support/rule-set.ts'
import { storeOf } from '../../support/stores.ts'
import { NOON } from '../../support/traffic.ts'

const LIMIT = 9
const [rule] = rulesOf({
  ...{ name: 'few', by: 'consumer', algorithm: 'fixed-window' },
  ...{ limit: LIMIT, period: '1h' },
})
const KEY = 'sluice:{x:tests}:state'
const DEMAND = {
  ruleSet: ruleSetOf([{ rule: rule!, key: KEY }], { plans: ['free'], hasSubject: true }),
  rules: [{ rule: rule!, key: KEY, cost: 1 }],
}

const UNREACHABLE = new GatewayError('ERR_STORE_UNREACHABLE', 'The store could not be reached.')

let redis: TestRedis
let nowMs: number
beforeAll(async () => {
  redis = await startRedis()
})
beforeEach(() => {
  nowMs = NOON / 1e3
})
afterAll(() => redis?.close())

/** An empty store that always works. */
async function freshStore(): Promise<Store> {
  await redis.connection.send(['FLUSHALL'])
  return storeOf(new RedisEngine(redis.connection))
}

/** @param retryAfterMs how long after a failure a probe may close the breaker, which opens at the first failure */
function engineOn(store: Store, retryAfterMs: number): Engine {
  const clock = { now: () => nowMs }
  const breaker = { failures: 1, slowCalls: 1, slowAfterMs: 250, retryAfterMs }
  return createEngine({ breaker }, store, {
    ...{ clock, decideAt: () => nowMs * 1e3, board: createSwitchBoard(clock), log: UNBOUNDED_LOG },
    switchName: ({ name }) => name,
    credentials: 'refuse',
    local: createLocalLimiter(1, clock.now, () => nowMs * 1e3),
    timer: SYSTEM_TIMER,
    probe: createProbe(compileScripts),
    onCluster: evaluateOnCluster,
  })
}

/** Whether the call hands over units: then its rule is a shadow, written like `1s`. */
const isHandOver = (call: StoreCall) => 'args' in call && call.args.some(arg => /^\d+s$/.test(arg))

describe('outages, one after the other,', () => {
  it.each([
    ['whose requests never reach the store', false, LIMIT],
    // A request whose reply was lost can count twice.
    ['whose requests are counted by the store, and only the replies are lost', true, 1],
  ] as const)('%s, do not give a caller more than the limit', async (_, isCounted, fewest) => {
    for (let seed = SEED; seed < SEED + 20; seed++) {
      const random = randomFrom(seed)
      const working = await freshStore()
      let isDown = false
      const engine = engineOn(
        {
          ...working,
          async run(calls) {
            // A request with a hand-over always succeeds here, because units of a lost hand-over are never handed over again.
            const isLost = isDown && !calls.some(isHandOver)
            if (isLost && !isCounted) throw UNREACHABLE
            const replies = await working.run(calls)
            if (isLost) throw UNREACHABLE
            return replies
          },
        },
        1000,
      )
      const tasks: Promise<unknown>[] = []
      const background = (task: Promise<unknown>) => void tasks.push(task.catch(() => {}))
      let admitted = 0
      for (let i = 0; i < 12; i++) {
        isDown = i % 2 === 1
        for (let requests = random.int(1, 3); requests > 0; requests--) {
          const { decision } = await engine.decide(DEMAND, { background })
          if (decision.kind === 'allowed') admitted += 1
          await Promise.all(tasks.splice(0))
          nowMs += 1000
        }
      }
      expect(admitted, `seed ${seed}`).toBeLessThanOrEqual(LIMIT)
      expect(admitted, `seed ${seed}`).toBeGreaterThanOrEqual(fewest)
    }
  })
})

/** A store that executes its requests in the order of sending, when the test releases them. Some get no answer. */
function steppedStore(working: Store, random: ReturnType<typeof randomFrom>) {
  const sent: { isExecuted: boolean; execute(): Promise<void>; reply(): void }[] = []
  let unanswered = 0
  const store: Store = {
    ...working,
    run: calls =>
      new Promise((resolve, reject) => {
        let replies: unknown[] = []
        const isAnswered = calls.some(isHandOver) || random.chance(0.7)
        const isCounted = isAnswered || random.chance(0.5)
        if (!isAnswered) unanswered += 1
        sent.push({
          isExecuted: false,
          async execute() {
            if (isCounted) replies = await working.run(calls)
            this.isExecuted = true
          },
          reply: () => (isAnswered ? resolve(replies) : reject(UNREACHABLE)),
        })
      }),
  }
  return {
    store,
    isIdle: () => sent.length === 0,
    unanswered: () => unanswered,
    /** Executes the oldest request that has not been executed, or ends a random one that has. */
    async step() {
      const next = sent.find(({ isExecuted }) => !isExecuted)
      const executed = sent.filter(({ isExecuted }) => isExecuted)
      if (next && (executed.length === 0 || random.chance(0.5))) return await next.execute()
      if (executed.length === 0) return
      const chosen = random.pick(executed)
      sent.splice(sent.indexOf(chosen), 1)
      chosen.reply()
    },
  }
}

it('requests at once, some of which get no answer in time, are admitted up to the limit and no further', async () => {
  let unanswered = 0
  for (let seed = SEED; seed < SEED + 30; seed++) {
    const random = randomFrom(seed)
    const stepped = steppedStore(await freshStore(), random)
    const engine = engineOn(stepped.store, 0)
    let [toSend, open, admitted] = [40, 0, 0]
    while (toSend > 0 || open > 0 || !stepped.isIdle()) {
      if (toSend > 0 && random.chance(0.4)) {
        toSend -= 1
        open += 1
        const decided = engine.decide(DEMAND, { background: task => void task.catch(() => {}) })
        void decided.then(({ decision }) => {
          open -= 1
          if (decision.kind === 'allowed') admitted += 1
        })
      } else await stepped.step()
      await new Promise(resolve => setImmediate(resolve))
    }
    expect(admitted, `seed ${seed}`).toBeLessThanOrEqual(LIMIT)
    expect(admitted, `seed ${seed}`).toBeGreaterThan(0)
    unanswered += stepped.unanswered()
  }
  expect(unanswered).toBeGreaterThan(30)
})

it.each([
  ['the store has its counts', false, LIMIT - 3],
  ['it loses them if the store is still away', true, LIMIT],
])('after an isolate has stopped, %s', async (_, staysDown, remaining) => {
  const working = await freshStore()
  let isDown = true
  const run: Store['run'] = async calls => {
    if (isDown) throw UNREACHABLE
    return await working.run(calls)
  }
  const engine = engineOn({ ...working, run, ping: async () => void (await run([])) }, 60_000)
  const background = (task: Promise<unknown>) => void task.catch(() => {})
  for (let i = 0; i < 3; i++)
    expect((await engine.decide(DEMAND, { background })).decision).toMatchObject({ kind: 'allowed' })
  isDown = staysDown
  await engine.stop()
  const { decision } = await engineOn(working, 1000).peek(DEMAND, { background })
  expect(decision).toMatchObject({ verdicts: [{ remaining }] })
})
