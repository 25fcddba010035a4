/** The limit on calls to the store that are in flight (sent, without a reply), and the queue of waiting calls, on a test clock. */

import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { RESET } from '../../src/script/reset.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { type StoreWithBreaker, withBreaker } from '../../src/trips/breaker.ts'
import { withTripLimit } from '../../src/trips/queue-for-trips.ts'

/** A store and timers: the test decides when the store answers, and when the timers run. */
function isolate({ maxRequests = 2, expiresAfterMs = 500, maxWaitMs = 500 } = {}) {
  const world = { time: 1e6, late: 0, probes: 0, sizes: [] as number[], pauses: [] as number[] }
  const answers: ((failure?: Error) => void)[] = []
  const timers: (() => void)[] = []
  const breaker = { failures: 1, slowCalls: 1, slowAfterMs: 250, retryAfterMs: 1000 }
  const behindBreaker: StoreWithBreaker = withBreaker(
    {
      run: calls =>
        new Promise((resolve, reject) => {
          world.sizes.push(calls.length)
          answers.push(failure =>
            failure ? reject(failure) : resolve(calls.map(call => (call as ScriptCall).args[0])),
          )
        }),
      ping: async () => {},
    },
    breaker,
    async () => {
      world.probes += 1
    },
    { now: () => world.time },
  )
  const store = withTripLimit(
    behindBreaker,
    { maxRequests, expiresAfterMs, maxWaitMs, maxTotalWaitMs: 2000 },
    {
      lag: { now: () => world.time, total: () => world.late, record: () => 0 },
      sleep: ms => {
        world.pauses.push(ms)
        return new Promise(resolve => timers.push(resolve))
      },
    },
  )
  let sent = 0
  const run = (isNoLongerNeeded = () => false, noteArrival = () => {}, caller = 'anyone') =>
    store
      .run([{ script: RESET, keys: ['k'], args: [`${++sent}`] }], {
        ...{ line: () => caller, isNoLongerNeeded, noteArrival },
      })
      .then(
        ([reply]) => reply,
        // Whatever was given up here was not sent, or was sent long ago.
        error => (error.fate === 'not-sent' || error.code !== 'ERR_STORE_OVERLOAD' ? error.code : error.fate),
      )
  const answerAll = async (failure?: Error) => {
    for (const answer of answers.splice(0)) answer(failure)
    await settle()
  }
  /** Lets all waiting requests check once. */
  const look = async () => {
    for (const timer of timers.splice(0)) timer()
    await settle()
  }
  return { world, answers, answerAll, store, run, look, waiting: timers }
}

const settle = () => new Promise(resolve => setImmediate(resolve))

describe('the limit on calls in flight', () => {
  it('lets further calls wait for their turn, which does not open the breaker', async () => {
    const { answers, answerAll, store, run, look } = isolate()
    const all = [run(), run(), run()]
    await look()
    expect([answers.length, store.isOpen()]).toEqual([2, false])
    await answerAll()
    await look()
    await answerAll()
    expect(await Promise.all(all)).toEqual(['1', '2', '3'])
  })

  it('informs a call in the batch of another one when its reply arrives, and no longer checks whether it is needed', async () => {
    const { answerAll, run, look } = isolate()
    const events: string[] = []
    const all = [run(), run()]
    const last = ['a', 'b'].map(name =>
      run(
        () => {
          events.push(`${name} waits`)
          return false
        },
        () => events.push(`${name} has its reply`),
      ),
    )
    await answerAll()
    await look()
    // One of them has sent both.
    const before = events.splice(0)
    expect(before.at(-1)).toBe('b waits')
    await look()
    await look()
    expect(events).toEqual([])
    await answerAll()
    expect(events.toSorted()).toEqual(['a has its reply', 'b has its reply'])
    await look()
    await Promise.all([...all, ...last])
    expect(events).toHaveLength(2)
  })

  it('sends waiting calls together, 50 at most, and returns to each its own reply', async () => {
    const { world, answerAll, run, look } = isolate()
    const all = Array.from({ length: 72 }, () => run())
    await answerAll()
    await look()
    expect(world.sizes).toEqual([1, 1, 50, 20])
    await answerAll()
    await look()
    expect(await Promise.all(all)).toEqual(all.map((_, i) => `${i + 1}`))
  })

  it('has at most four batches of waiting calls in flight, because their replies may make the rest unnecessary', async () => {
    const { world, answers, answerAll, run, look } = isolate({ maxRequests: 10 })
    let isKnown = false
    const all = Array.from({ length: 1000 }, () => run(() => isKnown))
    await answerAll()
    await look()
    expect(world.sizes.slice(10)).toEqual([50, 50, 50, 50])
    isKnown = true
    await answerAll()
    await look()
    expect([world.sizes.length, answers.length]).toEqual([14, 0])
    const replies = await Promise.all(all)
    expect(replies.filter(reply => reply === 'ERR_STORE_OVERLOAD')).toHaveLength(790)
  })

  it('sends the calls of each caller in turn, whoever has most of them', async () => {
    const { world, answerAll, run, look } = isolate()
    const runBy = (caller: string) => run(undefined, undefined, caller)
    const flood = Array.from({ length: 1000 }, () => runBy('flood'))
    const others = ['a', 'b', 'c'].map(runBy)
    await answerAll()
    await look()
    expect(world.sizes).toEqual([1, 1, 50, 50])
    await answerAll()
    await look()
    expect(await Promise.all(others)).toEqual(['1001', '1002', '1003'])
    for (let looks = 0; looks < 20; looks++) {
      await answerAll()
      await look()
    }
    expect(await Promise.all(flood)).toEqual(flood.map((_, i) => `${i + 1}`))
  })

  it('takes the first key of calls for their caller if nothing else names it', async () => {
    const { world, answerAll, store, run, look } = isolate()
    const flood = Array.from({ length: 1000 }, () => run())
    const keys = ['sluice:{l:jobs}:state:account=a', 'sluice:{t:of-a-token}']
    const other = store.run([{ script: RESET, keys, args: ['other'] }])
    await answerAll()
    await look()
    expect(world.sizes).toEqual([1, 1, 50, 50])
    await answerAll()
    await look()
    expect(await Promise.race([other, settle().then(() => 'waits')])).toEqual(['other'])
    await Promise.race([Promise.all(flood), settle()])
  })

  it('sends a call of each of many callers before the second one of any', async () => {
    const { world, answerAll, run, look } = isolate()
    const order: number[] = []
    const all = Array.from({ length: 3 }, () =>
      Array.from({ length: 120 }, (_, i) => run(undefined, () => order.push(i), `caller ${i}`)),
    ).flat()
    for (let looks = 0; looks < 8; looks++) {
      await answerAll()
      await look()
    }
    expect(await Promise.all(all)).toEqual(all.map((_, i) => `${i + 1}`))
    expect(world.sizes.slice(2).every(size => size === 50 || size === world.sizes.at(-1))).toBe(true)
    // The first two calls were sent before any waited, and the request of each batch has its own turn.
    expect(new Set(order.slice(0, 110)).size).toBeGreaterThan(105)
  })

  it('has half of the free places for one caller, and then some for others', async () => {
    const { run } = isolate({ maxRequests: 1 })
    const by = (caller: string) => run(undefined, undefined, caller)
    void by('first')
    const flood = Array.from({ length: 10_000 }, () => by('flood'))
    expect(await by('flood')).toBe('ERR_STORE_OVERLOAD')
    const others = Array.from({ length: 5000 }, () => by('other'))
    expect(await by('other')).toBe('ERR_STORE_OVERLOAD')
    expect(await Promise.race([...flood, ...others, by('third'), settle().then(() => 'wait')])).toBe('wait')
  })

  it('checks less often if very many calls wait, but at least four times for each', async () => {
    const { world, run, look } = isolate({ expiresAfterMs: 1e6 })
    const all = Array.from({ length: 202 }, () => run())
    for (let looks = 0; looks < 3; looks++) {
      world.time += 500
      await look()
    }
    const third = all[2]!
    expect(await Promise.race([third, settle().then(() => 'waits')])).toBe('waits')
    await look()
    expect(await third).toBe('ERR_STORE_OVERLOAD')
  })

  it('gives a call two ms of patience for each call that waited when it came, and lets it check in an eighth of a ms for each', async () => {
    const { world, run, look } = isolate({ expiresAfterMs: 1e6 })
    const all = Array.from({ length: 802 }, () => run())
    // Together they check eight times per ms.
    expect(Math.max(...world.pauses)).toBe(100)
    const last = all.at(-1)!
    world.time += 1599
    for (let looks = 0; looks < 5; looks++) await look()
    expect(await all[2]).toBe('ERR_STORE_OVERLOAD')
    expect(await Promise.race([last, settle().then(() => 'waits')])).toBe('waits')
    world.time += 1
    await look()
    expect(await last).toBe('ERR_STORE_OVERLOAD')
  })

  it('sends waiting calls together with a new call when there is room', async () => {
    const { world, answers, run, look } = isolate()
    const waiting = [run(), run(), run()].at(-1)
    world.time += 500
    const next = run()
    expect(world.sizes).toEqual([1, 1, 2])
    answers.at(-1)!()
    await settle()
    await look()
    expect(await Promise.all([waiting, next])).toEqual(['3', '4'])
  })

  it('returns the same error to all calls of one HTTP request', async () => {
    const { answerAll, run, look } = isolate()
    const all = [run(), run(), run(), run()]
    await answerAll()
    await look()
    await answerAll(new GatewayError('ERR_STORE_REFUSED', 'Out of memory.'))
    await look()
    expect((await Promise.all(all)).slice(2)).toEqual(['ERR_STORE_REFUSED', 'ERR_STORE_REFUSED'])
  })

  it('does not send a call that is no longer needed', async () => {
    const { world, answerAll, run, look } = isolate()
    const all = [run(), run(), run(() => true), run()]
    await answerAll()
    await look()
    expect(world.sizes).toEqual([1, 1, 1])
    await answerAll()
    expect(await Promise.all(all)).toEqual(['1', '2', 'ERR_STORE_OVERLOAD', '4'])
  })

  it('gives up a call that has waited too long, not counting the time in which the isolate was late', async () => {
    const { world, run, look } = isolate({ expiresAfterMs: 5000 })
    void [run(), run()]
    let reply: unknown
    void run().then(third => {
      reply = third
    })
    for (let looks = 0; looks < 3; looks++) await look()
    world.time += 500
    world.late += 400
    await look()
    world.time += 399
    await look()
    expect(reply).toBeUndefined()
    world.time += 1
    await look()
    expect([reply, world.sizes]).toEqual(['ERR_STORE_OVERLOAD', [1, 1]])
  })

  it('does not give up a call whose reply arrives while the isolate is busy', async () => {
    const { world, answerAll, run, look } = isolate()
    const waiting = [run(), run(), run()].at(-1)
    world.time += 500
    // Sends the call that waits, too.
    void run()
    world.time += 5000
    await look()
    await answerAll()
    await look()
    expect(await waiting).toBe('3')
  })

  it('soon gives up a call if the platform has ended the request that sent it', async () => {
    const { world, run, look } = isolate()
    const waiting = [run(), run(), run()].at(-1)
    world.time += 500
    void run()
    world.time += 499
    await look()
    world.time += 1
    // In an isolate that was busy, the replies may be about to be read, so it checks once more.
    await look()
    await look()
    // The store may have executed the call.
    expect(await waiting).toBe('ERR_STORE_TIMEOUT')
  })

  it('has room again when a call has ended, even with an error', async () => {
    const { answers, run } = isolate()
    const [first] = [run(), run()]
    answers[0]!(new Error('gone'))
    await first
    void run()
    expect(answers).toHaveLength(3)
  })

  it('has room again if calls were lost because the platform ended their requests', async () => {
    const { world, answers, run, waiting } = isolate()
    void [run(), run()]
    world.time += 499
    void run()
    expect(waiting).toHaveLength(1)
    world.time += 1
    void run()
    expect(answers).toHaveLength(3)
    // A clock that was set back does not keep the limit reached.
    void run()
    world.time -= 3600e3
    void run()
    expect(answers).toHaveLength(5)
  })

  it('does not block the probe of the breaker', async () => {
    const { world, store, run, waiting } = isolate()
    void [run(), run()]
    await store.probe()
    expect(world.probes).toBe(1)
    void run()
    expect(waiting).toHaveLength(1)
  })
})
