/** The board of the simulation and the real one, signal.lua with signal-board.ts, have the same states after the same reports. */

import { expect, it } from 'vitest'
import { signalScript } from '../../src/script/signal-text.ts'
import { adaptiveController } from '../../src/shedding/adaptive.ts'
import type { Controller } from '../../src/shedding/controller.ts'
import { gradient } from '../../src/shedding/gradient.ts'
import { pressureController } from '../../src/shedding/pressure.ts'
import { createSignalBoard } from '../../src/shedding/signal-board.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { simulationSeeds } from '../selection.ts'
import { describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { ADAPTIVE_SETTINGS, PRESSURE_SETTINGS } from '../support/shedding-settings.ts'
import { Board, type Travel } from './board.ts'
import { type Chance, chanceFrom } from './chance.ts'

const NOON_MS = 1_800_000_000_000
const ISOLATES = 6
const SECONDS = 150

interface Course<State> {
  controller: Controller<State>
  /** The sums of an isolate for a second. */
  sumsAt(second: number, chance: Chance): number[]
  travel: Travel
  /** Every message takes the same time. */
  isSteady?: boolean
  seed: number
}

/**
 * Sends the same reports to both boards, at the same times.
 *
 * @returns the states of an isolate after each reply that arrives
 */
async function run<State>(
  redis: RedisEngine,
  { controller, sumsAt, travel, isSteady, seed }: Course<State>,
): Promise<{ simulated: State; real: State }[]> {
  const chance = chanceFrom(seed)
  let now = 0
  let arrival = 0
  const simulated = new Board(controller as Controller<unknown>)
  const isolates = Array.from({ length: ISOLATES }, () => ({
    phase: chance.uniform() * 1000,
    board: createSignalBoard({
      ...{ name: 'origin', sums: sumsAt(0, chance).length, controller },
      now: () => NOON_MS + now,
      script: signalScript,
      reportAt: () => (NOON_MS + arrival) * 1000,
    }),
  }))

  const steps: { at: number; run(): Promise<void> | void }[] = []
  const schedule = (at: number, run: () => Promise<void> | void) => steps.push({ at, run })
  const travelTime = () => Math.floor((isSteady ? 1 : chance.uniform()) * travel.delayMs)
  const states: { simulated: State; real: State }[] = []
  for (const { phase, board } of isolates)
    for (let second = 0; second < SECONDS; second++) {
      const sums = sumsAt(second, chance)
      const sent = Math.floor(phase) + 1000 * second
      const arrives = sent + travelTime()
      const returns = arrives + travelTime()
      const [isLost, isReplyLost] = [chance.uniform() < travel.loss, chance.uniform() < travel.loss]
      let report: ReturnType<typeof board.startReport>
      let reply: unknown
      let state: State
      schedule(sent, () => {
        board.add(sums)
        arrival = arrives
        report = board.startReport()
      })
      if (isLost) continue
      schedule(arrives, async () => {
        reply = await redis.run(report.calls[0] as ScriptCall)
        if (sums.some(sum => sum > 0)) simulated.add(now, sums)
        state = simulated.read(now) as State
      })
      if (isReplyLost) continue
      schedule(returns, () => {
        report.done([reply])
        states.push({ simulated: state, real: board.state() })
      })
    }
  steps.sort((one, other) => one.at - other.at)
  for (const step of steps) {
    now = step.at
    await step.run()
  }
  return states
}

/** The utilization is high, between the thresholds, low, missing, and high again, so the pressure changes in every way. */
function utilizationAt(second: number, chance: Chance): number[] {
  const part = Math.floor(second / 25)
  const level = [0.95, 0.8, 0.5, 0, 0.95, 0.9][part]!
  if (level === 0) return [0, 0]
  const samples = 1 + chance.below(20)
  return [Math.round(1000 * Math.min(1, level + 0.1 * (chance.uniform() - 0.5))) * samples, samples]
}

/** Latency that doubles for a while, and failures. */
function loadAt(second: number, chance: Chance): number[] {
  const requests = 10 + chance.below(10)
  const latencyMs = (second > 50 && second < 100 ? 400 : 200) * (0.9 + 0.2 * chance.uniform())
  return [requests, chance.below(2), Math.round(requests * latencyMs), requests * (5 + chance.below(20))]
}

describeOnRedisEngine('the board of the simulation', fresh => {
  const onTime = { travel: { delayMs: 100, loss: 0 }, isSteady: true, seed: 1 }

  it('moves the pressure as the real one, if each isolate reports in each window', async () => {
    const course = { ...onTime, controller: pressureController(PRESSURE_SETTINGS), sumsAt: utilizationAt }
    const states = await run(await fresh(), course)
    expect(states.length).toBe(ISOLATES * SECONDS)
    expect(Math.max(...states.map(({ real }) => real.pressureMs))).toBeGreaterThan(20_000)
    for (const { simulated, real } of states) expect(real).toEqual(simulated)
  })

  it('moves an adaptive limit as the real one, if each isolate reports in each window', async () => {
    const states = await run(await fresh(), {
      ...onTime,
      controller: adaptiveController(ADAPTIVE_SETTINGS, gradient),
      sumsAt: loadAt,
    })
    expect(new Set(states.map(({ real }) => real.limit)).size).toBeGreaterThan(5)
    for (const { simulated, real } of states) expect(real).toEqual(simulated)
  })

  // An isolate whose report misses a window computes its state without that window, and the state that is stored first is kept.
  // Of 60 seeds, one differed by 4 s, and 56 by at most 2 s.
  it.each(simulationSeeds(2))(
    'differs by at most five seconds of pressure from the real one, if messages are late and lost (seed %d)',
    async seed => {
      const travel = { delayMs: 150, loss: 0.02 }
      const course = {
        controller: pressureController(PRESSURE_SETTINGS),
        sumsAt: utilizationAt,
        travel,
        seed,
      }
      const states = await run(await fresh(), course)
      expect(states.length).toBeGreaterThan(0.9 * ISOLATES * SECONDS)
      for (const { simulated, real } of states)
        expect(Math.abs(real.pressureMs - simulated.pressureMs)).toBeLessThanOrEqual(5000)
    },
  )
})
