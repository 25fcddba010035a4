/**
 * A gateway that gets requests and is scraped in virtual time, while its store has a fault. What the scrapes return becomes the input of
 * `promtool test rules`, which evaluates the alerts and the queries of the dashboard on it.
 */
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { METRICS_PARTS } from '../../src/set-ups/gateway/metrics.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { createDeadlineClock } from './deadline-clock.ts'
import { type TestGateway, TOKEN } from './gateway.ts'
import { METRICS_SECRET } from './metrics.ts'

/** Between two scrapes (ms). */
export const SCRAPE_MS = 15_000

/** The callers that send the requests. */
export interface Senders {
  addresses?: number
  /** API keys, used in turns. Absent: the requests are anonymous. */
  keys?: readonly string[]
}

export interface ScrapedGateway {
  /** Time passes, with a request every five seconds. */
  run(ms: number, options?: Senders): Promise<void>
  /** Sends a request whose response is not awaited, and waits until it is decided. */
  hold(path: string): Promise<void>
  /** Calls to the store reach their deadline, a moment after they were sent. */
  isHanging: boolean
  /** The text of each scrape. */
  scrapes: string[]
}

const REQUEST_MS = 5000
const DEADLINE_MS = 250

export function startScrapedGateway(gateway: TestGateway, input: Partial<ConfigInput>): ScrapedGateway {
  let now = Date.UTC(2026, 10, 21, 9)
  const clock = { now: () => now }
  const deadlines = createDeadlineClock()
  const config = checkedConfig({
    origin: gateway.origin.url,
    log: { perSecond: 0 },
    metrics: {},
    ...input,
    store: { deadline: `${DEADLINE_MS}ms`, ...input.store },
  })
  const pending = new Set<Promise<unknown>>()
  const real = upstashStore(
    { url: gateway.store.url, token: TOKEN, deadlineMs: DEADLINE_MS, keyLocking: true },
    deadlines,
  )
  function track<T>(call: Promise<T>): Promise<T> {
    const settled: Promise<unknown> = call.catch(() => {}).finally(() => pending.delete(settled))
    pending.add(settled)
    if (scraped.isHanging) setTimeout(() => deadlines.pass(DEADLINE_MS), 20)
    return call
  }
  const store: Store = { ...real, run: calls => track(real.run(calls)), ping: () => track(real.ping()) }
  const sleepers = new Set<{ at: number; wake: () => void }>()
  const timer = (ms: number, wake: () => void) => {
    const sleeper = { at: now + ms, wake }
    sleepers.add(sleeper)
    return () => void sleepers.delete(sleeper)
  }
  const app = createApp(
    config,
    store,
    { ...ALL_PARTS, ...METRICS_PARTS },
    {
      ...{ clock, timer, variables: { SLUICE_METRICS_TOKEN: METRICS_SECRET } },
      reporting: { timer },
    },
  )
  const request = (path: string, headers: Record<string, string>) =>
    app.request(`http://gateway.test${path}`, { headers })

  /** Waits for all work in the background that waits for no timer. */
  async function settle(): Promise<void> {
    do {
      await Promise.all(pending)
      await new Promise(resolve => setImmediate(resolve))
    } while (pending.size > 0)
  }

  let requests = 0
  const scraped: ScrapedGateway = {
    scrapes: [],
    isHanging: false,
    async hold(path) {
      void request(path, { 'cf-connecting-ip': '10.1.0.1' })
      await settle()
    },
    async run(ms, { addresses = 1000, keys = [] } = {}) {
      for (const until = now + ms; now < until; ) {
        now += REQUEST_MS
        for (const sleeper of sleepers) if (sleeper.at <= now && sleepers.delete(sleeper)) sleeper.wake()
        await settle()
        requests += 1
        const address = `10.0.${(requests % addresses) >> 8}.${(requests % addresses) & 255}`
        const key = keys[requests % keys.length]
        const credential: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` }
        await (await request('/', { 'cf-connecting-ip': address, ...credential })).text()
        await settle()
        if (now % SCRAPE_MS !== 0) continue
        const reply = await request('/_sluice/metrics', { authorization: `Bearer ${METRICS_SECRET}` })
        scraped.scrapes.push(await reply.text())
      }
    },
  }
  return scraped
}

/** The scrapes as `input_series` of promtool. A sample that a scrape does not have is missing there, too. */
export function inputSeries(scrapes: readonly string[]): { series: string; values: string }[] {
  const all = new Map<string, (string | undefined)[]>()
  for (const [i, text] of scrapes.entries()) {
    for (const line of text.split('\n').filter(line => line !== '' && !line.startsWith('#'))) {
      const [, name, labels, value] = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line)!
      const series = `${name}{${[labels, 'job="sluice",instance="gateway"'].filter(Boolean).join(',')}}`
      const values = all.get(series) ?? []
      values[i] = value
      all.set(series, values)
    }
  }
  return [...all].map(([series, values]) => ({
    series,
    values: scrapes.map((_, i) => values[i] ?? 'stale').join(' '),
  }))
}
