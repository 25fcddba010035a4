/** Gateways with metrics, and what a scrape of one returns. */
import { expect } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { App, TestGateway, TestPlatform } from './gateway.ts'

export const METRICS_SECRET = 'a secret of metrics that is long enough'.replaceAll(' ', '-')

/** The commands of a scrape without load shedding, in the first minutes of an hour, which read two records of callers. */
export const GET_METRICS_COMMANDS = 3

export interface Isolate {
  app: App
  /** Lets time pass. */
  pass(ms: number): void
  /** Sends the counters, as after `stats.every`, and waits until the store has them. */
  flush(): Promise<void>
  /** @returns the text for Prometheus */
  scrape(): Promise<string>
}

/** An isolate whose clock the test moves, beginning with the first second of a minute. */
export function createIsolate(
  gateway: TestGateway,
  config: Partial<ConfigInput> & Pick<ConfigInput, 'rules'>,
  platform: TestPlatform = {},
): Isolate {
  let now = Date.UTC(2026, 10, 21, 9)
  const sleepers: (() => void)[] = []
  const timer = (_: number, wake: () => void) => {
    sleepers.push(wake)
    return () => {}
  }
  const variables = { SLUICE_METRICS_TOKEN: METRICS_SECRET }
  const clock = { now: () => now }
  const app = gateway.app(config, { variables, clock, ...platform, reporting: { timer } })
  return {
    app,
    pass(ms) {
      now += ms
    },
    async flush() {
      const stored = new Promise<void>(resolve => {
        gateway.store.watch = ({ request, reply }) => {
          if (request.includes('{stats}') && !reply.includes('NOSCRIPT')) resolve()
        }
      })
      for (const wake of sleepers.splice(0)) wake()
      await stored
    },
    async scrape() {
      const reply = await app('/_sluice/metrics', { headers: { authorization: `Bearer ${METRICS_SECRET}` } })
      expect(reply.status).toBe(200)
      return await reply.text()
    },
  }
}

/** The sum of the samples of a metric with these labels. @returns undefined without any */
export function valueIn(text: string, name: string, labels: Record<string, string> = {}): number | undefined {
  const samples = text.split('\n').flatMap(line => {
    const [, metric, pairs = '', value] = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
    const has = ([label, value]: [string, string]) => `,${pairs}`.includes(`,${label}="${value}"`)
    return metric === name && Object.entries(labels).every(has) ? [Number(value)] : []
  })
  return samples.length === 0 ? undefined : samples.reduce((sum, value) => sum + value, 0)
}
