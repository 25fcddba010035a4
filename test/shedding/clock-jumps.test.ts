/**
 * The clocks of isolates and of the store step forth and back, by seconds or by days, also again and again. After the last step, worker
 * utilization and the adaptive limit follow the origin within the time that they take without a step: never do they refuse for ever, and
 * never are they off for ever. In production, isolates measure by a monotonic clock, if their platform has one.
 */
import * as fc from 'fast-check'
import { beforeEach, expect, it } from 'vitest'
import { signalScript } from '../../src/script/signal-text.ts'
import { adaptiveController } from '../../src/shedding/adaptive.ts'
import { aimd } from '../../src/shedding/aimd.ts'
import type { Controller } from '../../src/shedding/controller.ts'
import { gradient } from '../../src/shedding/gradient.ts'
import { pressureController } from '../../src/shedding/pressure.ts'
import { createSignalBoard } from '../../src/shedding/signal-board.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { randomCases } from '../selection.ts'
import { describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { ADAPTIVE_SETTINGS, PRESSURE_SETTINGS, shedShares } from '../support/shedding-settings.ts'
import { TRIP } from '../support/trips.ts'

const NOON_MS = 1_800_000_000_000
const DAY_MS = 86_400_000

/** Windows that a step may cost: the open one, the one whose state was not stored, and those of the first reports afterwards. */
const LOST_S = 5

const jump = fc.oneof(
  fc.constantFrom(-3_600_000, 3_600_000, -60_000, 60_000, -1500, 1500),
  fc.integer({ min: -7 * DAY_MS, max: 7 * DAY_MS }),
)

/** What happens within a second: one of the clocks may step. Clock 0 is that of the store. */
const second = fc.record({
  clock: fc.nat(2),
  jump: fc.option(jump, { freq: 2, nil: 0 }),
  isBusy: fc.boolean(),
})
const scenes = fc.record({
  before: fc.array(second, { minLength: 1, maxLength: 40 }),
  last: fc.tuple(jump, fc.option(jump, { nil: 0 }), fc.option(jump, { nil: 0 })),
})

/** Two isolates that share a signal, and what they measure. */
function fleetOn<State>(redis: RedisEngine, sums: number, controller: Controller<State>) {
  let time = NOON_MS
  const ahead = [0, 0, 0]
  const boards = [1, 2].map(isolate =>
    createSignalBoard({
      ...{ name: 'origin', sums, controller, script: signalScript },
      now: () => time + ahead[isolate]!,
      reportAt: () => (time + ahead[0]!) * 1000,
    }),
  )
  return {
    ahead,
    states: () => boards.map(board => board.state()),
    /** A second passes. @param measure what each isolate measures in it */
    async pass(measure: (state: State) => readonly number[]): Promise<void> {
      time += 1000
      for (const board of boards) {
        board.add(measure(board.state()))
        const report = board.load(TRIP)
        if (report) report.done([await redis.run(report.calls[0] as ScriptCall)])
      }
    },
  }
}

type Scene = typeof scenes extends fc.Arbitrary<infer T> ? T : never

/** Runs what comes before the last steps, and those. */
async function runScene<State>(
  { before, last }: Scene,
  fleet: ReturnType<typeof fleetOn<State>>,
  measure: (isBusy: boolean) => (state: State) => readonly number[],
): Promise<void> {
  for (const { clock, jump, isBusy } of before) {
    fleet.ahead[clock]! += jump
    await fleet.pass(measure(isBusy))
  }
  for (const [clock, jump] of last.entries()) fleet.ahead[clock]! += jump
}

async function passSeconds(seconds: number, pass: () => Promise<void>): Promise<void> {
  for (let i = 0; i < seconds; i++) await pass()
}

describeOnRedisEngine('after steps of clocks', fresh => {
  let redis: RedisEngine
  beforeEach(async () => {
    redis = await fresh()
  })

  it(`worker utilization sheds in an overload, and ends it afterwards, each in its usual time (SEED=${SEED})`, async () => {
    const settings = { ...PRESSURE_SETTINGS, quietMs: 6000, fullMs: 20_000 }
    const measure = (isBusy: boolean) => () => [isBusy ? 1000 : 0, 1]
    await forEvery(scenes, randomCases(48, redis.kind), async scene => {
      await redis.send(['FLUSHALL'])
      const fleet = fleetOn(redis, 2, pressureController(settings))
      const shares = () => fleet.states().map(({ appliedMs }) => shedShares(appliedMs, 2, settings))
      await runScene(scene, fleet, measure)
      await passSeconds(20 + LOST_S, () => fleet.pass(measure(true)))
      expect(shares()).toEqual([
        [1, 1],
        [1, 1],
      ])
      await passSeconds(20 + LOST_S, () => fleet.pass(measure(false)))
      expect(shares()).toEqual([
        [0, 0],
        [0, 0],
      ])
    })
  })

  it.each([
    ['gradient', gradient],
    ['aimd', aimd],
  ] as const)(
    `the adaptive limit (%s) shrinks while the origin is slow, and grows again (SEED=${SEED})`,
    async (_, method) => {
      const controller = adaptiveController({ ...ADAPTIVE_SETTINGS, max: 200 }, method)
      /** The limit is used up. A busy origin takes longer for each request, the more of them it has. */
      const measure =
        (isBusy: boolean) =>
        ({ limit }: { limit: number }) => {
          const inFlight = Math.floor(limit)
          return [100, 0, 100 * (isBusy ? 20 * Math.max(1, inFlight / 5) : 20), 100 * inFlight, 1]
        }
      await forEvery(scenes, randomCases(24, redis.kind), async scene => {
        await redis.send(['FLUSHALL'])
        const fleet = fleetOn(redis, 5, controller)
        const limits = () => fleet.states().map(({ limit }) => limit)
        await passSeconds(60, () => fleet.pass(measure(false)))
        expect(Math.min(...limits())).toBe(200)
        await runScene(scene, fleet, measure)
        await passSeconds(120 + LOST_S, () => fleet.pass(measure(true)))
        expect(Math.max(...limits())).toBeLessThan(100)
        await passSeconds(120 + LOST_S, () => fleet.pass(measure(false)))
        expect(Math.min(...limits())).toBe(200)
      })
    },
  )
})
