/** The breaker, on a clock that is passed in: when it opens, whom it lets wait, and how it closes. */

import { describe, expect, it } from 'vitest'
import type { BreakerSettings } from '../../src/config/compile-breaker.ts'
import { GatewayError } from '../../src/errors.ts'
import { RESET } from '../../src/script/reset.ts'
import { type StoreChange, withBreaker } from '../../src/store/breaker.ts'
import { createLagMeter } from '../../src/store/lag.ts'
import type { Store } from '../../src/store/store.ts'

const SETTINGS: BreakerSettings = { failures: 3, slowCalls: 1, slowAfterMs: 250, retryAfterMs: 1000 }
const CALL = { script: RESET, keys: ['k'], args: [] }

const timeout = () => new GatewayError('ERR_STORE_TIMEOUT', 'no answer')
const refused = () => new GatewayError('ERR_STORE_REFUSED', 'OOM')
const overload = () => new GatewayError('ERR_STORE_OVERLOAD', 'busy')
const usedUp = () => new GatewayError('ERR_STORE_QUOTA', 'used up')

/** A store that takes so long and fails in such a way, behind a breaker. */
function isolate(settings: BreakerSettings | undefined = SETTINGS) {
  const world = {
    time: 1e6,
    takesMs: 10,
    /** Of that time, the isolate was late for so long. */
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
  it('opens on the first call that reaches the deadline: a dead store costs one, and then nothing', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    world.takesMs = 250
    expect(await run()).toBe('ERR_STORE_TIMEOUT')
    const before = world.time
    for (let i = 0; i < 100; i++) expect(await run()).toBe('ERR_STORE_BREAKER_OPEN')
    expect([world.calls, world.time]).toEqual([1, before])
    expect(store.isOpen()).toBe(true)
  })

  it('opens on quick failures only when there are several in a row', async () => {
    const { world, store, run } = isolate()
    for (const failure of [refused, refused, undefined, refused, refused]) {
      world.failure = failure
      await run()
    }
    expect(store.isOpen()).toBe(false)
    await run()
    expect(store.isOpen()).toBe(true)
  })

  it('opens on as many slow calls in a row as it is told, though they succeed', async () => {
    const { world, store, run } = isolate({ ...SETTINGS, slowCalls: 2, slowAfterMs: 100 })
    for (const takesMs of [100, 10, 100]) {
      world.takesMs = takesMs
      expect(await run()).toBe('ok')
    }
    expect(store.isOpen()).toBe(false)
    expect(await run()).toBe('ok')
    expect(store.isOpen()).toBe(true)
  })

  it('never opens where there is none', async () => {
    const { world, store, run } = isolate(undefined)
    // The default of the parameter is for the tests: this is a config without one.
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

  it('tries the store at once, then after each pause, one at a time, and closes on the first good answer', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    expect(store.isProbeDue()).toBe(true)
    world.takesMs = 250
    const probing = store.probe()
    // Those who come while it is on its way send none of their own.
    expect(store.isProbeDue()).toBe(false)
    await probing
    expect(store.isOpen()).toBe(true)

    world.time += 999
    expect(store.isProbeDue()).toBe(false)
    world.time += 1
    expect(store.isProbeDue()).toBe(true)
    // An answer that is slow is none to go by.
    world.failure = undefined
    await store.probe()
    expect(store.isOpen()).toBe(true)
    world.time += 1000
    world.takesMs = 10
    await store.probe()
    expect([store.isOpen(), await run(), world.probes]).toEqual([false, 'ok', 3])
  })

  it('sends another probe when one was lost with the request that it belonged to', async () => {
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

  it('lets a request through to the store after long silence, and only one', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    world.time += 10_000
    world.failure = undefined
    const both = await Promise.all([run(), run()])
    expect(both).toEqual(['ok', 'ERR_STORE_BREAKER_OPEN'])
    expect(store.isOpen()).toBe(false)
  })

  it('stays open when that one fails too', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    world.time += 10_000
    expect(await run()).toBe('ERR_STORE_TIMEOUT')
    expect(await run()).toBe('ERR_STORE_BREAKER_OPEN')
    expect(store.isOpen()).toBe(true)
  })

  it('opens at once when the plan is used up, and asks again after a second, then only every half minute', async () => {
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

  it('does not hold against the store that the isolate was late', async () => {
    const { world, store, run } = isolate()
    world.takesMs = 900
    world.lateMs = 651
    expect([await run(), store.isOpen()]).toEqual(['ok', false])
    world.lateMs = 650
    expect([await run(), store.isOpen()]).toEqual(['ok', true])
  })

  it('counts a call that failed by overload neither for the store nor against it', async () => {
    const { world, store, run } = isolate()
    for (const failure of [refused, overload, overload, overload, refused, overload]) {
      world.failure = failure
      world.takesMs = failure === overload ? 500 : 10
      await run()
    }
    expect(store.isOpen()).toBe(false)
    world.failure = refused
    await run()
    expect(store.isOpen()).toBe(true)
  })

  it('only suspects an outage after a slow call, until two probes fail too', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, false])
    // The isolate was too busy to find it out.
    world.failure = overload
    await store.probe()
    expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, false])
    // An answer, however slow, confirms no outage.
    world.failure = undefined
    world.takesMs = 250
    await store.probe()
    expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, false])
    world.failure = timeout
    await store.probe()
    expect(store.isOutageConfirmed()).toBe(false)
    // In this one the isolate was late itself.
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

  it('needs no probe to confirm an outage that the store or its connection has reported', async () => {
    for (const failure of [refused, usedUp]) {
      const { world, store, run } = isolate()
      world.failure = failure
      for (let i = 0; i < 3; i++) await run()
      expect([store.isOpen(), store.isOutageConfirmed()]).toEqual([true, true])
    }
  })

  it('tells once that the store is gone, and once that it is back', async () => {
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

  it('is not moved by what was begun before it opened', async () => {
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

  it('is not kept open by a clock that is set back', async () => {
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

  it('of a cluster opens when all of it fails, and not over one slot', async () => {
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

  it('tells why it is open, and nothing of what was asked', async () => {
    const { world, store, run } = isolate()
    world.failure = timeout
    await run()
    await expect(store.run([CALL])).rejects.toThrow(
      'The store was not called, because it failed before: no answer',
    )
  })
})
