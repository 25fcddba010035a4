/** How counters reach the store: one request per interval, and each count at most once. */
import { describe, expect, it } from 'vitest'
import { type ErrorCode, GatewayError } from '../../src/errors.ts'
import { createStatsRecorder } from '../../src/metrics/flush.ts'
import type { Observation } from '../../src/metrics/observation.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'

const START = Date.UTC(2026, 10, 21, 8, 59, 58)

/** An isolate with its own clock, which only the test moves. */
function isolate() {
  const sent: (readonly StoreCall[])[] = []
  const sleepers: { until: number; wake: () => void }[] = []
  let now = START
  let pings = 0
  let fault: ErrorCode | 'some' | undefined
  const fail = (code: ErrorCode) => Promise.reject(new GatewayError(code, 'for the test'))
  const store: Store = {
    run(calls) {
      if (fault && fault !== 'some') return fail(fault)
      sent.push(calls)
      const broken = new GatewayError('ERR_STORE_REFUSED', 'for the test')
      return Promise.resolve([fault === 'some' ? broken : 1])
    },
    ping() {
      pings += 1
      return fault ? fail('ERR_STORE_UNREACHABLE') : Promise.resolve()
    },
  }
  const timing = {
    everyMs: 10_000,
    timer: (ms: number, wake: () => void) => {
      sleepers.push({ until: now + ms, wake })
      return () => {}
    },
    now: () => now,
  }
  const stats = createStatsRecorder(store, timing)
  return {
    sent,
    pings: () => pings,
    fault(code?: ErrorCode | 'some') {
      fault = code
    },
    request(route = 'a', hasFailed = false) {
      const observation: Observation = { requestId: '', outcome: 'allowed', route, verdicts: [], storeMs: 0 }
      stats.count(observation, hasFailed, () => {})
    },
    call: () => stats.count({ limit: 'mail', outcome: 'allowed', verdicts: [] }, false, () => {}),
    flush: () => stats.flush(),
    /** The platform ends all background work. */
    kill: () => void sleepers.splice(0),
    async pass(ms: number) {
      now += ms
      for (const sleeper of sleepers.splice(0)) {
        if (sleeper.until <= now) sleeper.wake()
        else sleepers.push(sleeper)
      }
      await new Promise(resolve => setImmediate(resolve))
    },
    sums: () =>
      sent
        .flat()
        .flatMap(countsOf)
        .reduce((sum, [field, by]) => sum + (field === 'lost' ? 0 : by), 0),
  }
}

/** The counters of a call. */
function countsOf(call: StoreCall): [field: string, by: number][] {
  const counts = 'args' in call ? call.args.slice(2) : []
  return counts.flatMap((field, i): [string, number][] =>
    i % 2 === 0 ? [[field, Number(counts[i + 1])]] : [],
  )
}

describe('counters', () => {
  it('are sent in one request every ten seconds, for the minute, hour and day in which they are sent', async () => {
    const { request, pass, sent } = isolate()
    for (let i = 0; i < 100; i++) request()
    await pass(9_999)
    request()
    expect(sent).toEqual([])
    await pass(1)
    expect(sent).toMatchObject([
      [
        {
          keys: ['sluice:{stats}:d:20261121', 'sluice:{stats}:d:20261113'],
          args: [String((START + 10_000) / 60_000 - 8 / 60), '1', 'request allowed - a', '101'],
        },
      ],
    ])
    // Without requests there is nothing to send.
    await pass(60_000)
    expect(sent).toHaveLength(1)
  })

  it('need only one request every ten seconds under load', async () => {
    const { request, pass, sent, sums } = isolate()
    for (let i = 0; i < 600; i++) {
      request()
      await pass(100)
    }
    expect(sent.length).toBeGreaterThanOrEqual(5)
    expect(sent.length).toBeLessThanOrEqual(6)
    await pass(30_000)
    expect(sums()).toBe(600)
  })

  it('are sent in batches if there are many, without waiting for another request', async () => {
    const { request, pass, sent, sums } = isolate()
    for (let i = 0; i < 250; i++) request(`route-${i}`)
    await pass(10_000)
    const sizes = () => sent.map(([call]) => countsOf(call!).length)
    expect(sizes()).toEqual([200])
    await pass(10_000)
    expect(sizes()).toEqual([200, 50])
    expect(sums()).toBe(250)
  })

  it('are sent after later requests if the platform has ended the background work', async () => {
    const { request, kill, pass, sums } = isolate()
    request()
    kill()
    await pass(10_999)
    request()
    await pass(0)
    expect(sums()).toBe(0)
    await pass(1)
    request()
    await pass(0)
    expect(sums()).toBe(3)
  })

  it.each<ErrorCode>(['ERR_STORE_REFUSED', 'ERR_STORE_QUOTA'])(
    'that the store has refused (%s) are sent again, and count once',
    async code => {
      const { request, pass, fault, sums, sent } = isolate()
      request()
      fault(code)
      await pass(10_000)
      expect(sent).toEqual([])
      fault()
      request()
      await pass(10_000)
      expect(sums()).toBe(2)
      await pass(60_000)
      expect(sums()).toBe(2)
    },
  )

  it.each<ErrorCode>(['ERR_STORE_TIMEOUT', 'ERR_STORE_UNREACHABLE', 'ERR_STORE_REPLY_INVALID'])(
    'that may have arrived (%s) are not sent again, and count as lost',
    async code => {
      const { request, pass, fault, sums, sent } = isolate()
      for (let i = 0; i < 7; i++) request()
      fault(code)
      await pass(10_000)
      fault()
      await pass(10_000)
      expect(sums()).toBe(0)
      expect(sent.flat().flatMap(countsOf)).toEqual([['lost', 7]])
    },
  )

  it('count lost calls of limits by name apart from lost requests', async () => {
    const { request, call, pass, fault, sent } = isolate()
    for (let i = 0; i < 3; i++) call()
    request()
    fault('ERR_STORE_TIMEOUT')
    await pass(10_000)
    fault()
    await pass(10_000)
    expect(sent.flat().flatMap(countsOf)).toEqual([
      ['lost', 1],
      ['lost-calls', 3],
    ])
  })

  it('are all sent at once when the isolate stops', async () => {
    const { request, flush, pass, sent, sums } = isolate()
    for (let i = 0; i < 250; i++) request(`route-${i}`)
    await flush()
    expect(sent.map(([call]) => countsOf(call!).length)).toEqual([200, 50])
    await pass(10_000)
    expect(sums()).toBe(250)
  })

  it('stay counted if the store refuses them when the isolate stops', async () => {
    const { request, flush, fault, sums, sent } = isolate()
    request()
    fault('ERR_STORE_QUOTA')
    await flush()
    expect(sent).toEqual([])
    fault()
    await flush()
    expect(sums()).toBe(1)
  })

  it('wait while the store is down, so that they are not lost', async () => {
    const { request, pass, fault, sums, sent, pings } = isolate()
    fault('ERR_STORE_UNREACHABLE')
    for (let i = 0; i < 600; i++) {
      request('a', true)
      await pass(1_000)
    }
    expect(pings()).toBeGreaterThan(30)
    expect(sent).toEqual([])
    fault()
    request()
    await pass(20_000)
    expect(sums()).toBe(601)
  })

  it('are sent again if the store reports an error', async () => {
    const { request, pass, fault, sent } = isolate()
    for (const route of ['a', 'b', 'c']) request(route)
    fault('some')
    await pass(10_000)
    fault()
    sent.splice(0)
    await pass(10_000)
    expect(sent.flat().flatMap(countsOf)).toEqual([
      ['request allowed - a', 1],
      ['request allowed - b', 1],
      ['request allowed - c', 1],
    ])
  })
})
