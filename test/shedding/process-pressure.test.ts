/** Worker utilization by signals of the process itself. */
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ProcessSignal } from '../../src/config/compile-shedding.ts'
import { type BusyTime, createProcessPressure } from '../../src/shedding/process-pressure.ts'
import { useGateway } from '../support/gateway.ts'

const SHEDDING = (signals: ProcessSignal[], within: '4s' | '1m' = '4s') => ({
  classes: [{ name: 'critical', match: { methods: ['POST' as const] } }, { name: 'reads' }],
  workerUtilization: { signals, after: '2s' as const, within },
})
const RULE = { name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 1000, period: '1h' } as const

/** A process whose busy times the test sets. */
function processOf(signals: ProcessSignal[]) {
  let now = 0
  const busy = { 'event-loop': 0, cpu: 0 }
  const usage = (signal: ProcessSignal): BusyTime | undefined => [busy[signal], now]
  return {
    usage,
    now: () => now,
    pass(seconds: number, shares: Partial<Record<ProcessSignal, number>>) {
      now += seconds * 1000
      for (const signal of signals) busy[signal] += (shares[signal] ?? 0) * seconds * 1000
    },
  }
}
const settingsOf = (...shedding: Parameters<typeof SHEDDING>) =>
  checkedConfig({ origin: 'route', rules: [RULE], shedding: SHEDDING(...shedding) }).shedding!
    .workerUtilization!

describe('the pressure of a process', () => {
  it.each<ProcessSignal>(['event-loop', 'cpu'])(
    'grows while %s is busy, and falls when it is not',
    signal => {
      const { usage, now, pass } = processOf([signal])
      const pressure = createProcessPressure(settingsOf([signal]), now, usage)
      pass(3, { [signal]: 1 })
      expect(pressure().pressureMs).toBe(3000)
      pass(0.5, { [signal]: 1 })
      expect(pressure().pressureMs).toBe(3000)
      pass(1.5, { [signal]: 0 })
      // 0.5 of 2 s were busy, which is below `low`.
      expect(pressure().pressureMs).toBeLessThan(3000)
    },
  )

  it('counts all of the time in which the loop was blocked', () => {
    const { usage, now, pass } = processOf(['event-loop'])
    const pressure = createProcessPressure(settingsOf(['event-loop'], '1m'), now, usage)
    for (const grown of [12_000, 24_000, 36_000]) {
      pass(12, { 'event-loop': 1 })
      expect(pressure().pressureMs).toBe(grown)
    }
  })

  it('does not jump to its maximum when a process goes on that was suspended while it worked', () => {
    const { usage, now, pass } = processOf(['event-loop'])
    const pressure = createProcessPressure(settingsOf(['event-loop'], '1m'), now, usage)
    pass(3600, { 'event-loop': 1 })
    expect(pressure().pressureMs).toBe(30_000)
  })

  it('follows the busier of two signals', () => {
    const { usage, now, pass } = processOf(['event-loop', 'cpu'])
    const pressure = createProcessPressure(settingsOf(['event-loop', 'cpu']), now, usage)
    pass(2, { 'event-loop': 0.1, cpu: 1 })
    expect(pressure().pressureMs).toBe(2000)
  })

  it('stays 0 where the platform does not measure', () => {
    const { now, pass } = processOf([])
    const pressure = createProcessPressure(settingsOf(['cpu']), now, () => undefined)
    pass(60, {})
    expect(pressure().pressureMs).toBe(0)
  })

  it.each<ProcessSignal>(['event-loop', 'cpu'])('is measured by Node: %s', signal => {
    let now = 0
    const pressure = createProcessPressure(settingsOf([signal]), () => now)
    const until = performance.now() + 40
    while (performance.now() < until);
    now += 1000
    // Of a busy loop, however much of the time other processes have had the CPU.
    expect(pressure().pressureMs).toBeGreaterThanOrEqual(signal === 'event-loop' ? 900 : 0)
  })
})

describe('shedding by signals of a process', () => {
  const gateway = useGateway()

  it('sheds in the busy process alone, without a trip to the store, and never the most important class', async () => {
    const [busy, idle] = [processOf(['event-loop']), processOf(['event-loop'])]
    const config = {
      ...{ rules: [RULE], credentials: { accept: ['anonymous'] }, shedding: SHEDDING(['event-loop']) },
    }
    const apps = [busy, idle].map(({ usage, now }) =>
      gateway.app(config as never, { clock: { now: () => 1.7e12 + now() }, processUsage: usage }),
    )
    const statusesOf = async (init = {}) =>
      await Promise.all(apps.map(async app => (await app('/', init)).status))
    expect(await statusesOf()).toEqual([200, 200])
    for (const _ of [1, 2]) {
      busy.pass(4, { 'event-loop': 1 })
      idle.pass(4, { 'event-loop': 0.3 })
      await statusesOf({ method: 'POST' })
    }
    gateway.store.count()
    expect((await apps[0]!('/')).status).toBe(503)
    expect(gateway.store.count()).toBe(0)
    expect(await statusesOf({ method: 'POST' })).toEqual([200, 200])
    expect((await apps[1]!('/')).status).toBe(200)
  })

  it('is measured by requests that are never shed, too', async () => {
    const { usage, now, pass } = processOf(['event-loop'])
    const config = {
      ...{ rules: [RULE], credentials: { accept: ['anonymous'] } },
      shedding: SHEDDING(['event-loop'], '1m'),
    }
    const app = gateway.app(config as never, { clock: { now: () => 1.7e12 + now() }, processUsage: usage })
    await app('/')
    for (let i = 0; i < 16; i++) {
      pass(4, { 'event-loop': 1 })
      await app('/', { method: 'POST' })
    }
    expect((await app('/')).status).toBe(503)
  })
})
