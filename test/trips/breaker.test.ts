/** The breaker, on a clock that is passed in: when it opens, which calls wait, and when it closes. */

import { describe, expect, it } from 'vitest'
import type { BreakerSettings } from '../../src/config/compile-breaker.ts'
import { GatewayError } from '../../src/errors.ts'
import { RESET } from '../../src/script/reset.ts'
import { createLagMeter } from '../../src/store/lag.ts'
import type { Store } from '../../src/store/store.ts'
import { type StoreChange, withBreaker } from '../../src/trips/breaker.ts'

const SETTINGS: BreakerSettings = { failures: 3, slowCalls: 1, slowAfterMs: 250, retryAfterMs: 1000 }
const CALL = { script: RESET, keys: ['k'], args: [] }

const timeout = () => new GatewayError('ERR_STORE_TIMEOUT', 'no answer')
const refused = () => new GatewayError('ERR_STORE_REFUSED', 'OOM')
const overload = () => new GatewayError('ERR_STORE_OVERLOAD', 'busy')
const exhausted = () => new GatewayError('ERR_STORE_CALLS_EXHAUSTED', 'no more calls')
const usedUp = () => new GatewayError('ERR_STORE_QUOTA', 'used up')

/** A store behind a breaker. `world` sets how long its calls take and how they fail. */
function isolate(settings: BreakerSettings | undefined = SETTINGS) {
  const world = {
    time: 1e6,
    takesMs: 10,
    /** How much of that time the isolate was late. */
    lateMs: 0,
    failure: undefined as (() => Error) | undefined,
    calls: 0,
    probes: 0,
  }
  const lag = createLagMeter(() => world.time)
  const answer = async () => {
    world.time += world.takesMs
    if (world.lateMs > 0) lag.record(world.time - world.lateMs)
    if (world.failure) throw world.failure()
  }
  const bare: Store = {
    async run(calls) {
      world.calls += 1
      await answer()
      return calls.map(() => 'reply')
    },
    ping: answer,
  }
  const store = withBreaker(
    bare,
    settings,
    async () => {
      world.probes += 1
      await answer()
    },
    { now: () => world.time, lag },
  )
  const run = async () =>
    await store.run([CALL]).then(
      () => 'ok',
      error => (error as GatewayError).code,
    )
  return { world, store, run }
}

describe('a breaker', () => {
  it('opens on the first call that reaches the deadline; later calls do not wait', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    world.takesMs = 250
    expect(await run()).toBe('ERR_STORE_TIMEOUT')
    const before = world.time
    for (let i = 0; i < 100; i++) expect(await run()).toBe('ERR_STORE_BREAKER_OPEN')
    expect([world.calls, world.time]).toEqual([1, before])
    expect(store.isOpen()).toBe(true)
  })

  it('opens on quick failures only if there are several in a row', async () => {
    const { world, store, run } = isolate()
    for (const failure of [refused, refused, undefined, refused, refused]) {
      world.failure = failure
      await run()
    }
    expect(store.isOpen()).toBe(false)
    await run()
    expect(store.isOpen()).toBe(true)
  })

  it('opens on the configured number of slow calls in a row, even if they succeed', async () => {
    const { world, store, run } = isolate({ ...SETTINGS, slowCalls: 2, slowAfterMs: 100 })
    for (const takesMs of [100, 10, 100]) {
      world.takesMs = takesMs
      expect(await run()).toBe('ok')
    }
    expect(store.isOpen()).toBe(false)
    expect(await run()).toBe('ok')
    expect(store.isOpen()).toBe(true)
  })

  it('never opens without settings', async () => {
    const { world, store, run } = isolate(undefined)
    // isolate(undefined) uses the default of the tests, so this store is created without settings.
    const never = withBreaker(
      { run: () => Promise.reject(timeout()), ping: async () => {} },
      undefined,
      async () => {},
      { now: Date.now },
    )
    for (let i = 0; i < 50; i++) await never.run([CALL]).catch(() => {})
    expect([never.isOpen(), never.isOutageConfirmed()]).toEqual([false, true])
    world.failure = undefined
    expect([await run(), store.isOpen()]).toEqual(['ok', false])
  })

  it('probes the store at once, then after each pause, one probe at a time, and closes on the first quick answer', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    expect(store.isProbeDue()).toBe(true)
    world.takesMs = 250
    const probing = store.probe()
    // While a probe is on its way, no other probe is due.
    expect(store.isProbeDue()).toBe(false)
    await probing
    expect(store.isOpen()).toBe(true)

    world.time += 999
    expect(store.isProbeDue()).toBe(false)
    world.time += 1
    expect(store.isProbeDue()).toBe(true)
    // A slow answer does not close the breaker.
    world.failure = undefined
    await store.probe()
    expect(store.isOpen()).toBe(true)
    world.time += 1000
    world.takesMs = 10
    await store.probe()
    expect([store.isOpen(), await run(), world.probes]).toEqual([false, 'ok', 3])
  })

  it('probes again if a probe was lost with the request that it belonged to', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    const lost = withBreaker(
      { run: () => Promise.reject(timeout()), ping: async () => {} },
      SETTINGS,
      () => new Promise(() => {}),
      { now: () => world.time },
    )
    await lost.run([CALL]).catch(() => {})
    void lost.probe()
    expect(lost.isProbeDue()).toBe(false)
    world.time += 1000
    expect(lost.isProbeDue()).toBe(true)
    expect(store.isOpen()).toBe(true)
  })

  it('lets one request through to the store after a long time without calls', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    world.time += 10_000
    world.failure = undefined
    const both = await Promise.all([run(), run()])
    expect(both).toEqual(['ok', 'ERR_STORE_BREAKER_OPEN'])
    expect(store.isOpen()).toBe(false)
  })

  it('stays open if a request that it lets through fails too', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    world.time += 10_000
    expect(await run()).toBe('ERR_STORE_TIMEOUT')
    expect(await run()).toBe('ERR_STORE_BREAKER_OPEN')
    expect(store.isOpen()).toBe(true)
  })

  it('opens at once if the quota is used up, probes after a second, and then every 30 seconds', async () => {
    const { world, store, run } = isolate()
    world.failure = usedUp
    expect(await run()).toBe('ERR_STORE_QUOTA')
    expect([store.isOpen(), store.isProbeDue()]).toEqual([true, false])
    world.time += 1000
    expect(store.isProbeDue()).toBe(true)
    await store.probe()
    world.time += 29_000
    expect(store.isProbeDue()).toBe(false)
    world.time += 1000
    expect(store.isProbeDue()).toBe(true)
  })

  it('does not count the time in which the isolate was late', async () => {
    const { world, store, run } = isolate()
    world.takesMs = 900
    world.lateMs = 651
    expect([await run(), store.isOpen()]).toEqual(['ok', false])
    world.lateMs = 650
    expect([await run(), store.isOpen()]).toEqual(['ok', true])
  })

  it('ignores calls that failed because of overload', async () => {
    const { world, store, run } = isolate()
    for (const failure of [refused, overload, exhausted, overload, refused, exhausted]) {
      world.failure = failure
      world.takesMs = failure === refused ? 10 : 500
      await run()
    }
    expect(store.isOpen()).toBe(false)
    world.failure = refused
    await run()
    expect(store.isOpen()).toBe(true)
  })

  it('only suspects an outage after a slow call, until two probes without an answer confirm it', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, false])
    // The isolate was too busy for the probe.
    world.failure = overload
    await store.probe()
    expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, false])
    // An answer, however slow, does not confirm an outage.
    world.failure = undefined
    world.takesMs = 250
    await store.probe()
    expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, false])
    world.failure = timeout
    await store.probe()
    expect(store.isOutageConfirmed()).toBe(false)
    // During this probe the isolate itself was late.
    world.lateMs = 51
    await store.probe()
    expect(store.isOutageConfirmed()).toBe(false)
    world.lateMs = 50
    await store.probe()
    expect(store.isOutageConfirmed()).toBe(true)
    world.failure = overload
    await store.probe()
    expect(store.isOutageConfirmed()).toBe(true)
    world.failure = undefined
    world.takesMs = 10
    await store.probe()
    expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([false, false])
  })

  it('needs no probe to confirm a failure that the store or its connection has reported', async () => {
    for (const failure of [refused, usedUp]) {
      const { world, store, run } = isolate()
      world.failure = failure
      for (let i = 0; i < 3; i++) await run()
      expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, true])
    }
  })

  it('reports once that it has opened, and once that it has closed', async () => {
    const world = { time: 0, failure: timeout() as Error | undefined }
    const answer = async () => {
      if (world.failure) throw world.failure
      return ['reply']
    }
    const changes: StoreChange[] = []
    const store = withBreaker(
      { run: answer, ping: async () => {} },
      SETTINGS,
      async () => void (await answer()),
      { now: () => world.time, onChange: change => changes.push(change) },
    )
    for (let i = 0; i < 3; i++) await store.run([CALL]).catch(() => {})
    await store.probe()
    world.time += 5000
    await store.probe()
    world.failure = undefined
    world.time += 1000
    await store.probe()
    await store.run([CALL])
    expect(changes).toMatchObject([
      { isOpen: true, cause: { code: 'ERR_STORE_TIMEOUT' } },
      { isOpen: false, afterMs: 6000 },
    ])
  })

  it('ignores the results of calls that began before it opened', async () => {
    const world = { time: 0 }
    const answers: ((failure?: Error) => void)[] = []
    const bare: Store = {
      run: () =>
        new Promise((resolve, reject) => {
          answers.push(failure => (failure ? reject(failure) : resolve(['reply'])))
        }),
      ping: async () => {},
    }
    const store = withBreaker(bare, SETTINGS, async () => {}, { now: () => world.time })
    const calls = [store.run([CALL]), store.run([CALL]), store.run([CALL])].map(call => call.catch(() => {}))
    answers[0]!(timeout())
    await calls[0]
    answers[1]!()
    await calls[1]
    expect(store.isOpen()).toBe(true)
    await store.probe()
    expect(store.isOpen()).toBe(false)
    answers[2]!(timeout())
    await calls[2]
    expect(store.isOpen()).toBe(false)
  })

  it('is not kept open by a clock that was set back', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    await store.probe()
    world.time -= 3600e3
    expect(store.isProbeDue()).toBe(true)
    world.failure = undefined
    await store.probe()
    expect(await run()).toBe('ok')
  })

  it('of a cluster opens if all slots fail, and not if one does', async () => {
    const lost = new GatewayError('ERR_STORE_UNREACHABLE', 'gone')
    const world = { replies: [lost, 'reply'] as unknown[], time: 0 }
    const bare: Store = { isCluster: true, run: async () => world.replies, ping: async () => {} }
    const store = withBreaker(bare, SETTINGS, async () => {}, { now: () => world.time })
    for (let i = 0; i < 10; i++) await store.run([CALL, CALL])
    expect(store.isOpen()).toBe(false)
    world.replies = [lost, lost]
    for (let i = 0; i < 3; i++) await store.run([CALL, CALL])
    expect(store.isOpen()).toBe(true)
    world.time += 10_000
    await store.run([CALL, CALL])
    expect(store.isOpen()).toBe(true)
    world.time += 10_000
    world.replies = [lost, 'reply']
    await store.run([CALL, CALL])
    expect(store.isOpen()).toBe(false)
  })

  it('returns the reason why it is open, without keys', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    await expect(store.run([CALL])).rejects.toThrow(
      'The store was not called, because it failed before: no answer',
    )
  })
})
