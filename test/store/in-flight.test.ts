/** The bound on calls in flight, on a clock that is passed in. */

import { describe, expect, it } from 'vitest'
import { RESET } from '../../src/script/reset.ts'
import { type GuardedStore, withBreaker } from '../../src/store/breaker.ts'
import { withInFlightLimit } from '../../src/store/in-flight.ts'

const CALL = { script: RESET, keys: ['k'], args: [] }

/** A store that answers when the test says so. */
function isolate() {
  const world = { time: 1e6, probes: 0 }
  const answers: ((failure?: Error) => void)[] = []
  const breaker = { failures: 1, slowCalls: 1, slowAfterMs: 250, retryAfterMs: 1000 }
  const guarded: GuardedStore = withBreaker(
    {
      run: () =>
        new Promise((resolve, reject) =>
          answers.push(failure => (failure ? reject(failure) : resolve(['reply']))),
        ),
      ping: async () => {},
    },
    breaker,
    async () => {
      world.probes += 1
    },
    { now: () => world.time },
  )
  const store = withInFlightLimit(guarded, { most: 2, expiresAfterMs: 500 }, () => world.time)
  const run = () =>
    store.run([CALL]).then(
      () => 'ok',
      error => error.code,
    )
  return { world, answers, store, run }
}

describe('the bound on calls in flight', () => {
  it('refuses one call more at once, and opens no breaker over it', async () => {
    const { answers, store, run } = isolate()
    const both = [run(), run()]
    expect(await run()).toBe('ERR_STORE_OVERLOAD')
    expect([answers.length, store.isOpen()]).toEqual([2, false])
    for (const answer of answers) answer()
    expect(await Promise.all(both)).toEqual(['ok', 'ok'])
  })

  it('has room again when a call has ended, also when it has failed', async () => {
    const { answers, run } = isolate()
    const [first] = [run(), run()]
    answers[0]!(new Error('gone'))
    await first
    void run()
    expect(answers).toHaveLength(3)
  })

  it('has room again when calls were lost with the requests that the platform ended', async () => {
    const { world, answers, run } = isolate()
    void [run(), run()]
    world.time += 499
    expect(await run()).toBe('ERR_STORE_OVERLOAD')
    world.time += 1
    void run()
    expect(answers).toHaveLength(3)
    // A clock that is set back does not keep the bound reached.
    void run()
    world.time -= 3600e3
    void run()
    expect(answers).toHaveLength(5)
  })

  it('does not keep the probe of the breaker out', async () => {
    const { world, store, run } = isolate()
    void [run(), run()]
    await store.probe()
    expect(world.probes).toBe(1)
    expect(await run()).toBe('ERR_STORE_OVERLOAD')
  })
})
