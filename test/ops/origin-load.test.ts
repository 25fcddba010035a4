/** How much room the origin has, as `limits peek fleet-usage` and `stats` show it. */
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { prometheusText } from '../../src/metrics/prometheus.ts'
import { loadTexts } from '../../src/node/cli/load-output.ts'
import { readLoad, readUtilization } from '../../src/ops/origin-load.ts'
import { encodeReport } from '../../src/script/signal.ts'
import { signalScript } from '../../src/script/signal-text.ts'
import { createUtilizationBoard } from '../../src/shedding/worker-utilization.ts'
import { useGateway } from '../support/gateway.ts'

const INPUT = {
  rules: [{ name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 1000, period: '1h' }],
  credentials: { accept: ['anonymous'] },
  shedding: {
    classes: [{ name: 'test', match: { path: '/test' } }, { name: 'critical' }],
    importance: ['critical', 'test'],
    fleetUsage: { capacity: 40, reserved: { critical: 0.5 }, adaptive: { initial: 10 } },
    workerUtilization: { signals: ['header'] },
  },
} satisfies Partial<ConfigInput>
const CONFIG = checkedConfig({ origin: 'route', ...INPUT })

describe('the load of the origin', () => {
  const gateway = useGateway()
  const read = () => readLoad(gateway.admin, CONFIG)

  /** Reports as an isolate does, in the second before this one. */
  async function report(signal: string, sums: readonly number[], text: string): Promise<void> {
    const window = Math.floor(Date.now() / 1000) - 1
    const state = { window: window - 1, text }
    const given = { signal, windowMs: 1000, sums, state, now: window * 1e6 }
    await gateway.admin.decisions.run([encodeReport(signalScript(), given)])
  }

  it('has the requests in flight of each level, under the adaptive limit', async () => {
    const app = gateway.app(INPUT, { timer: () => () => {} })
    await report('adaptive-limit', [0, 0, 0, 0, 0], '10 0 80 80 90 5 80 5')
    const held = [await app('/'), await app('/'), await app('/test')]
    expect((await read()).fleetUsage).toEqual([
      { rule: 'fleet-usage', classes: ['critical', 'test'], inFlight: 3, limit: 10 },
      { rule: 'fleet-usage-test', classes: ['test'], inFlight: 1, limit: 5 },
    ])
    for (const reply of held) await reply.text()
  })

  it('has the adaptive limit with its range, the latency and the usual latency', async () => {
    expect((await read()).adaptive).toEqual({ limit: 10, min: 4, max: 40, latencyMs: 0, baselineMs: 0 })
    await report('adaptive-limit', [0, 0, 0, 0, 0], '17.5 0 80 80 90 5 80 5')
    expect((await read()).adaptive).toEqual({ limit: 17, min: 4, max: 40, latencyMs: 90, baselineMs: 80 })
  })

  it('has the utilization, the pressure and the refused shares', async () => {
    const at = { refusesFromMs: 28_000, fullMs: 148_000 }
    const classes = (refused: number) => [{ rule: 'worker-utilization-test', refused }]
    expect((await read()).workerUtilization).toEqual({ pressureMs: 0, ...at, classes: classes(0) })
    // 0.75 is between low and high, so the pressure stays.
    await report('worker-utilization', [2250, 3, 0, 0], '88000 88000 1')
    await expect.poll(async () => (await read()).workerUtilization).toMatchObject({ utilization: 0.75 })
    expect((await read()).workerUtilization).toEqual({
      ...{ utilization: 0.75, pressureMs: 88_000, ...at },
      classes: classes(0.5),
    })
  })

  it('is printed for people, and as gauges', async () => {
    await report('worker-utilization', [2250, 3, 0, 0], '88000 88000 1')
    await expect.poll(async () => (await read()).workerUtilization?.utilization).toBe(0.75)
    const load = await read()
    expect(loadTexts(load).join('\n\n')).toBe(
      `
FLEET USAGE       CLASSES         IN FLIGHT  LIMIT  FREE
fleet-usage       critical, test  0          10     10
fleet-usage-test  test            0          5      5

Adaptive limit: 10 requests in flight (from 4 to 40). The latency of the origin is not known yet.

Worker utilization: 75 %. Pressure: 88 s; callers are refused from 28 s on, all at 148 s.
WORKER UTILIZATION       REFUSED CALLERS
worker-utilization-test  50 %`.trim(),
    )
    const text = prometheusText(
      {
        rules: [],
        requests: [],
        withoutTrip: {},
        test: {},
        lost: 0,
        calls: [],
        callsWithoutTrip: {},
        lostCalls: 0,
      },
      load,
    )
    expect(text.split('\n').filter(line => line.startsWith('gateway') && !line.includes('_total'))).toEqual([
      'gateway_rate_limit_fleet_in_flight{policy="fleet-usage"} 0',
      'gateway_rate_limit_fleet_in_flight{policy="fleet-usage-test"} 0',
      'gateway_rate_limit_fleet_limit{policy="fleet-usage"} 10',
      'gateway_rate_limit_fleet_limit{policy="fleet-usage-test"} 5',
      'gateway_rate_limit_adaptive_limit 10',
      'gateway_rate_limit_origin_latency_seconds 0',
      'gateway_rate_limit_origin_usual_latency_seconds 0',
      'gateway_rate_limit_worker_utilization 0.75',
      'gateway_rate_limit_pressure_seconds 88',
      'gateway_rate_limit_refused_share{policy="worker-utilization-test"} 0.5',
    ])
  })

  it('writes nothing', async () => {
    await read()
    expect(await gateway.redis.connection.send(['KEYS', '*'])).toEqual([])
  })

  it('ends no window of the measurements, so that an isolate that reports every 2 s reads them all', async () => {
    const { workerUtilization } = CONFIG.shedding!
    let now = 1_800_000_000_000
    const options = { now: () => now, script: signalScript, reportAt: () => now * 1000 }
    const board = createUtilizationBoard(workerUtilization!, options)
    for (let second = 0; second <= 20; second += 2) {
      now = 1_800_000_000_000 + second * 1000
      board.add([1000, 1, 0, 0])
      const { calls, done } = board.startReport()
      done(await gateway.admin.decisions.run(calls))
      for (const later of [500, 1000])
        await readUtilization(gateway.admin, workerUtilization!, {
          ...options,
          reportAt: () => (now + later) * 1000,
        })
    }
    expect(board.state().pressureMs).toBe(19_000)
  })

  it('is empty for a config without shedding', async () => {
    const { shedding: _, ...rest } = INPUT
    expect(await readLoad(gateway.admin, checkedConfig({ origin: 'route', ...rest }))).toEqual({})
  })
})
