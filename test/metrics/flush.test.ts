/** How counters get to the store: one request every so often, and each count at most once. */
import { describe, expect, it } from 'vitest'
import { type ErrorCode, GatewayError } from '../../src/errors.ts'
import { createCounters } from '../../src/metrics/counters.ts'
import { createFlusher } from '../../src/metrics/flush.ts'
import type { Observation } from '../../src/metrics/observation.ts'
import { statsKey } from '../../src/store/keys.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'

const START = Date.UTC(2026, 10, 21, 8, 59, 58)

/** An isolate with a clock of its own, in which time passes only when it is told to. */
function isolate() {
  const counters = createCounters()
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
      return Promise.resolve(calls.map((_, i) => (fault === 'some' && i === 1 ? broken : 1)))
    },
    ping() {
      pings += 1
      return fault ? fail('ERR_STORE_UNREACHABLE') : Promise.resolve()
    },
  }
  const flusher = createFlusher(counters, store, {
    everyMs: 10_000,
    sleep: ms => new Promise(wake => sleepers.push({ until: now + ms, wake })),
    now: () => now,
  })
  return {
    counters,
    flusher,
    sent,
    pings: () => pings,
    fault(code?: ErrorCode | 'some') {
      fault = code
    },
    request(route = 'a') {
      const observation: Observation = { requestId: '', outcome: 'allowed', route, verdicts: [], storeMs: 0 }
      counters.record(observation)
      flusher.schedule(() => {})
    },
    /** The platform ends all that runs behind requests. */
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
      sent.flat().reduce((sum, call) => sum + ('by' in call && call.field !== 'lost' ? call.by : 0), 0),
  }
}

describe('counters', () => {
  it('are sent in one request for all that came in ten seconds, into the hour in which they are sent', async () => {
    const { request, pass, sent, counters } = isolate()
    for (let i = 0; i < 100; i++) request()
    await pass(9_999)
    request()
    expect(sent).toEqual([])
    await pass(1)
    const key = statsKey(new Date(START + 10_000))
    expect(key).toBe('sluice:{stats}:2026112109')
    expect(sent).toEqual([
      [
        { command: 'HINCRBY', key, field: 'request allowed - a', by: 101 },
        { command: 'EXPIRE', key, seconds: 8 * 86400 },
      ],
    ])
    expect(counters.size).toBe(0)
    // Without requests there is nothing to send.
    await pass(60_000)
    expect(sent).toHaveLength(1)
  })

  it('are one request every ten seconds under load', async () => {
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

  it('that are many go in batches, the next without another request', async () => {
    const { request, pass, sent, sums } = isolate()
    for (let i = 0; i < 250; i++) request(`route-${i}`)
    await pass(10_000)
    expect(sent.map(calls => calls.length)).toEqual([201])
    await pass(10_000)
    expect(sent.map(calls => calls.length)).toEqual([201, 51])
    expect(sums()).toBe(250)
  })

  it('are sent with the next request when the platform has ended what was to send them', async () => {
    const { request, kill, pass, sums } = isolate()
    request()
    kill()
    await pass(15_000)
    request()
    await pass(10_000)
    expect(sums()).toBe(0)
    request()
    await pass(10_000)
    expect(sums()).toBe(3)
  })

  it.each<ErrorCode>(['ERR_STORE_REFUSED', 'ERR_STORE_QUOTA'])(
    'that the store did not take (%s) arrive later, and once',
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
    'that may have arrived (%s) are not sent again, and it is counted that they were lost',
    async code => {
      const { request, pass, fault, sums, sent } = isolate()
      for (let i = 0; i < 7; i++) request()
      fault(code)
      await pass(10_000)
      fault()
      await pass(10_000)
      expect(sums()).toBe(0)
      expect(sent).toEqual([
        [expect.objectContaining({ field: 'lost', by: 7 }), expect.objectContaining({ command: 'EXPIRE' })],
      ])
    },
  )

  it('are not risked while the store is down: they wait until it answers', async () => {
    const { request, pass, fault, flusher, sums, sent, pings } = isolate()
    fault('ERR_STORE_UNREACHABLE')
    for (let i = 0; i < 600; i++) {
      request()
      flusher.pingFirst()
      await pass(1_000)
    }
    expect(pings()).toBeGreaterThan(30)
    expect(sent).toEqual([])
    fault()
    request()
    await pass(20_000)
    expect(sums()).toBe(601)
  })

  it('that went wrong one by one are sent again one by one', async () => {
    const { request, pass, fault, sums } = isolate()
    for (const route of ['a', 'b', 'c']) request(route)
    fault('some')
    await pass(10_000)
    fault()
    await pass(10_000)
    // b has been seen twice here, and counted once.
    expect(sums()).toBe(4)
  })
})
