/** The deadline of a call to the store, and the lag meter that it uses, on a clock that is passed in. */
import { describe, expect, it } from 'vitest'
import { startDeadline } from '../../src/store/deadline.ts'
import { createLagMeter } from '../../src/store/lag.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'

/** An isolate whose timers run only when the test runs them. */
function isolate() {
  const clock = createDeadlineClock()
  return { ...clock, start: () => startDeadline(250, clock) }
}

describe('the deadline of a call', () => {
  it('expires on time in a responsive isolate, as a timeout of the store', () => {
    const { start, pass } = isolate()
    const deadline = start()
    pass(249)
    expect([deadline.signal.aborted, deadline.failure()]).toEqual([false, undefined])
    pass(1)
    expect([deadline.signal.aborted, deadline.failure()?.code]).toEqual([true, 'ERR_STORE_TIMEOUT'])
  })

  it('does not count the time in which the isolate was busy', () => {
    const { start, pass, isBusy } = isolate()
    const deadline = start()
    isBusy(200)
    // The first 50 of the 200 ms count, the other 150 ms are lateness.
    pass(199)
    expect(deadline.failure()).toBeUndefined()
    pass(1)
    expect(deadline.failure()?.code).toBe('ERR_STORE_TIMEOUT')
  })

  it('expires after forty times its duration at the latest, as an overload of the isolate', () => {
    const { world, start, isBusy } = isolate()
    const deadline = start()
    const startedAt = world.time
    while (!deadline.failure()) isBusy(5000)
    // The call was sent, so it may have run.
    expect(deadline.failure()).toMatchObject({ code: 'ERR_STORE_OVERLOAD', fate: 'may-have-run' })
    expect(world.time - startedAt).toBeGreaterThanOrEqual(10_000)
    expect(world.time - startedAt).toBeLessThan(10_000 + 5000)
  })

  it('expires in time beside others, whose timers take time', () => {
    const { world, pass, timer, lag } = isolate()
    // As in workerd on a busy machine.
    const slowTimer: typeof timer = (ms, run) =>
      timer(ms, () => {
        world.time += 8
        run()
      })
    const startedAt = world.time
    const deadlines = Array.from({ length: 10 }, () => startDeadline(1000, { lag, timer: slowTimer }))
    while (world.time < startedAt + 2000) pass(1)
    expect(deadlines.map(deadline => deadline.failure()?.code)).toEqual(Array(10).fill('ERR_STORE_TIMEOUT'))
  })

  it('expires even if the clock is set back', () => {
    const { world, start, pass } = isolate()
    const deadline = start()
    pass(100)
    world.time -= 3600e3
    for (let i = 0; i < 10; i++) pass(3600e3 / 5)
    expect(deadline.failure()?.code).toBe('ERR_STORE_TIMEOUT')
  })

  it('leaves no timer behind when the call ends', () => {
    const { timers, start, pass } = isolate()
    const deadline = start()
    pass(60)
    expect(timers.size).toBe(1)
    deadline.end()
    pass(1000)
    expect([timers.size, deadline.signal.aborted]).toEqual([0, false])
  })

  it('records the lateness if a reply arrives before the timer that would measure it', () => {
    const { world, lag, start } = isolate()
    const deadline = start()
    world.time += 180
    deadline.end()
    expect(lag.total()).toBe(130)
  })
})

describe('the lag meter', () => {
  it('counts late time once, however many timers were due in it, and ignores lateness of a few ms', () => {
    const world = { time: 1000 }
    const lag = createLagMeter(() => world.time)
    expect([lag.record(950), lag.record(960), lag.record(996)]).toEqual([50, 40, 0])
    expect(lag.total()).toBe(50)
    world.time = 1010
    lag.record(940)
    expect(lag.total()).toBe(60)
  })

  it('uses the latest time that any request has seen, and follows a clock that was set back far', () => {
    const world = { time: 1000 }
    const lag = createLagMeter(() => world.time)
    lag.now()
    world.time = 800
    expect(lag.now()).toBe(1000)
    world.time = -3600e3
    expect(lag.now()).toBe(-3600e3)
  })
})
