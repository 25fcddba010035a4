/** Runs the shedder by worker utilization in a closed loop. Everything is seeded, so the figures are always the same. */

import { describe, expect, it } from 'vitest'
import { simulationSeeds } from '../selection.ts'
import { PRESSURE_SETTINGS } from '../support/shedding-settings.ts'
import {
  between,
  CLASSES,
  FULL_PACE,
  HALF_GONE,
  RISE,
  runBadMachine,
  runDeadSignal,
  runFastRise,
  runHalfGone,
  runOverwhelmed,
  runSteady,
  runStep,
  runThreefold,
  SEED,
  SILENCE_AT,
  STEP,
  successOf,
  total,
  turnsOf,
  worstHalfMinute,
} from './scenarios.ts'
import type { ClassTally, Second } from './simulation.ts'

const SEEDS = simulationSeeds(SEED)

const { quietMs, fullMs } = PRESSURE_SETTINGS
const CRITICAL = CLASSES.length - 1

const sumOf = (seconds: readonly Second[], number: number, field: keyof ClassTally) =>
  total(seconds, ({ classes }) => classes[number]![field])
const allShed = (seconds: readonly Second[]) =>
  total(seconds, ({ classes }) => classes.reduce((sum, { shed }) => sum + shed, 0))
/** At least 99.9 % of critical requests succeed, over the whole run and in each half-minute. */
function expectCriticalUnharmed(seconds: readonly Second[]): void {
  expect(sumOf(seconds, CRITICAL, 'shed')).toBe(0)
  expect(successOf(seconds, CRITICAL)).toBeGreaterThanOrEqual(0.999)
  expect(worstHalfMinute(seconds, CRITICAL)).toBeGreaterThanOrEqual(0.999)
}

describe.each(SEEDS)(
  'a load that grows to three times the usual within eight minutes, and falls back (seed %d)',
  seed => {
    const { seconds, turns } = runThreefold(false, seed)

    it('never harms critical requests or writes, which are shed last', () => {
      expectCriticalUnharmed(seconds)
      expect(successOf(seconds, CRITICAL - 1)).toBeGreaterThanOrEqual(0.999)
    })

    it('sheds the whole least important class before the next one', () => {
      for (const { shares } of seconds)
        for (const [i, share] of shares.entries()) if (share > 0 && i > 0) expect(shares[i - 1]).toBe(1)
      // At the peak, some reads are still served: no more than necessary is shed.
      const height = between(seconds, RISE.top, RISE.falls)
      expect(successOf(height, CLASSES.indexOf('test'))).toBe(0)
      expect(successOf(height, CLASSES.indexOf('reads'))).toBeGreaterThan(0.1)
    })

    it('keeps the origin busy, but not full', () => {
      const height = between(seconds, RISE.top, RISE.falls)
      const utilization = total(height, second => second.utilization) / height.length
      expect(utilization).toBeGreaterThan(0.7)
      expect(utilization).toBeLessThan(0.8)
      expect(total(height, second => second.failed)).toBeLessThan(
        0.0005 * total(height, second => second.answered),
      )
    })

    it('makes the refused share grow and shrink once, not in turn', () => {
      expect(turnsOf(seconds)).toBeLessThanOrEqual(3)
    })

    it('refuses the same callers while the refused share is the same', () => {
      // A caller of the first class is refused once and admitted again once: two turns. The share varies as the load falls, so callers at its
      // border can be refused and admitted twice.
      expect(Math.max(...turns[CLASSES.indexOf('test')]!)).toBeLessThanOrEqual(4)
      // Callers at the border of the share are refused and admitted more often, because the share follows the load for 13 minutes. With random
      // shedding, it would be hundreds of times.
      const reads = [...turns[CLASSES.indexOf('reads')]!]
      expect(Math.max(...reads)).toBeLessThanOrEqual(6)
      expect(reads.reduce((sum, count) => sum + count, 0) / reads.length).toBeLessThan(2.5)
    })

    it('ends without refusals, within six minutes at half of the capacity', () => {
      expect(allShed(between(seconds, RISE.back + 360, 2000))).toBe(0)
      expect(seconds.at(-1)!.pressureMs).toBe(0)
    })
  },
)

describe('three times the load at once', () => {
  const alone = runStep(false).seconds
  const bounded = runStep(true).seconds

  it('refuses the first caller after the quiet time, not before', () => {
    for (const seconds of [alone, bounded]) {
      const first = seconds.find(second => allShed([second]) > 0)!.seconds
      expect(first - STEP.at).toBeGreaterThanOrEqual(quietMs / 1000)
      expect(first - STEP.at).toBeLessThanOrEqual(quietMs / 1000 + 10)
    }
  })

  it('harms critical requests for a minute and a half without another limit, because shedding is slow by design', () => {
    expect(successOf(between(alone, STEP.at, STEP.at + 90), CRITICAL)).toBeLessThan(0.9)
    expect(successOf(between(alone, STEP.at + 120, 600), CRITICAL)).toBe(1)
  })

  it('never harms critical requests if the capacity of the fleet is limited, with a reserve for them', () => {
    expectCriticalUnharmed(bounded)
    expect(allShed(between(bounded, STEP.at + 120, STEP.until))).toBeGreaterThan(0)
  })
})

describe('three times the load within some minutes', () => {
  it.each([5, 6, 8])('does not harm critical requests if the rise takes %d minutes', minutes => {
    expectCriticalUnharmed(runFastRise(60 * minutes, false).seconds)
  })

  it.each([1, 2, 3, 4])(
    'harms critical requests if the rise takes %d minutes and nothing else limits them',
    minutes => {
      expect(worstHalfMinute(runFastRise(60 * minutes, false).seconds, CRITICAL)).toBeLessThan(0.95)
    },
  )

  it.each([1, 2, 3, 4, 5])(
    'never harms critical requests if the capacity of the fleet is limited as well and the rise takes %d minutes',
    minutes => {
      for (const seed of SEEDS) expectCriticalUnharmed(runFastRise(60 * minutes, true, seed).seconds)
    },
  )

  it('never harms critical requests if the capacity of the fleet is limited and the load falls as slowly as it rose', () => {
    for (const seed of SEEDS) {
      const { seconds } = runThreefold(true, seed)
      expectCriticalUnharmed(seconds)
      expect(allShed(between(seconds, RISE.back + 360, 2000))).toBe(0)
      expect(seconds.at(-1)!.pressureMs).toBe(0)
    }
  })
})

describe.each(SEEDS)('an overload that shedding does not end (seed %d)', seed => {
  const { seconds } = runOverwhelmed(false, seed)
  const [from, until] = [60, 240]

  it('refuses everything except critical requests within 148 s, and the time until the signal is high', () => {
    const full = seconds.find(({ shares }) => shares.every(share => share === 1))!.seconds
    expect(full - from).toBeLessThanOrEqual(fullMs / 1000 + 5)
    expect(sumOf(seconds, CRITICAL, 'shed')).toBe(0)
  })

  it('is followed by an equally slow return of all classes, the most important one first', () => {
    const free = (number: number) =>
      seconds.find(second => second.seconds > until && second.shares[number] === 0)!.seconds - until
    const [test, reads, writes] = [free(0), free(1), free(2)]
    expect(writes).toBeLessThan(reads)
    expect(reads).toBeLessThan(test)
    expect(test).toBeGreaterThanOrEqual((fullMs - quietMs) / 1000)
    // The origin is a tenth busy, and callers repeat what failed in the overload.
    expect(test).toBeLessThanOrEqual((fullMs - quietMs) / 1000 / 0.8 + 20)
    expect(allShed(between(seconds, until + test, 1000))).toBe(0)
  })
})

describe.each(SEEDS)('the two paces (seed %d)', seed => {
  const proportional = { height: runThreefold(false, seed), steady: runSteady(undefined, seed) }
  const full = { height: runThreefold(false, seed, FULL_PACE), steady: runSteady(FULL_PACE, seed) }

  it('a proportional pace turns seldom, a full pace often', () => {
    for (const [one, other] of [
      [proportional.height, full.height],
      [proportional.steady, full.steady],
    ] as const)
      expect(5 * turnsOf(one.seconds)).toBeLessThan(turnsOf(other.seconds))
  })

  it('after half of the workers were gone, a full pace admits all callers sooner', () => {
    const [slow, fast] = [runHalfGone(undefined, seed), runHalfGone(FULL_PACE, seed)].map(({ seconds }) =>
      allShed(between(seconds, HALF_GONE.until, 2000)),
    )
    expect(fast).toBeLessThan(slow! / 2)
  })
})

describe.each([
  ['with the shedder alone', false],
  ['with a capacity of the fleet', true],
])('one slow machine of ten, %s', (_, hasCapacity) => {
  it.each(SEEDS)('causes no refusals (seed %d)', seed => {
    const { seconds } = runBadMachine(hasCapacity, seed)
    expect(between(seconds, 70, 240).some(({ failed }) => failed > 0)).toBe(true)
    expect(allShed(seconds)).toBe(0)
    expectCriticalUnharmed(seconds)
  })
})

describe.each(SEEDS)('a signal that stops while callers are refused (seed %d)', seed => {
  const alone = runDeadSignal(false, seed).seconds
  const bounded = runDeadSignal(true, seed).seconds

  it('ends shedding as slowly as a low signal', () => {
    for (const seconds of [alone, bounded]) {
      const before = seconds[SILENCE_AT - 1]!.pressureMs
      expect(before).toBeGreaterThan(50_000)
      const after = between(seconds, SILENCE_AT, 1000).find(({ pressureMs }) => pressureMs === 0)!
      expect((after.seconds - SILENCE_AT) * 1000).toBeGreaterThanOrEqual(before - 1000)
      expect((after.seconds - SILENCE_AT) * 1000).toBeLessThanOrEqual(before + 5000)
      expect(allShed(between(seconds, after.seconds, 1000))).toBe(0)
    }
  })

  it('harms critical requests without another limit, because the overload goes on and nothing is shed', () => {
    expect(worstHalfMinute(between(alone, SILENCE_AT, 1000), CRITICAL)).toBeLessThan(0.9)
  })

  it('never harms critical requests if the capacity of the fleet is limited, with a reserve for them', () => {
    expectCriticalUnharmed(bounded)
  })
})
