/** The client with a limiter on a store: calls that give up while they wait for it. */
import { expect, it } from 'vitest'
import { clientOn } from '../../src/client/client.ts'
import { createLanes } from '../../src/client/lanes.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { configOf, describeOnRedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const { limits } = configOf({
  rules: [],
  limits: { slow: [{ name: 'even', by: ['account'], algorithm: 'gcra', limit: 1, period: '2s', burst: 1 }] },
})
const URL_X = 'https://api.test/x'
const REASON = new Error('the user has closed the page')

describeOnRedisEngine('calls that are aborted while they wait for the limiter', fresh => {
  it('give up their places, so that the next call does not wait for them', async () => {
    // The clock advances while the limiter sleeps.
    const time = { now: NOON }
    const leaving = new AbortController()
    let sleeps = 0
    const tasks: Promise<unknown>[] = []
    const limiter = createLimiterOnStore({ limits }, storeOf(await fresh()), {
      clock: {
        now: () => time.now,
        async sleep(ms) {
          time.now += ms * 1e3
          if (++sleeps === 5) leaving.abort(REASON)
        },
        timer: () => () => {},
      },
      waitUntil: task => void tasks.push(task),
    })
    const lanes = createLanes({
      now: () => time.now / 1e3,
      wall: () => time.now / 1e3,
      timer: () => () => {},
      random: () => 0.5,
    })
    let sent = 0
    const get = clientOn(lanes, {
      limiter,
      limit: 'slow',
      identity: { account: '42' },
      maxWaitMs: 60_000,
      async fetch() {
        sent += 1
        return new Response()
      },
    })
    await get(URL_X)
    const left = await Promise.allSettled(
      Array.from({ length: 5 }, () => get(URL_X, { signal: leaving.signal })),
    )
    expect(left).toEqual(Array(5).fill({ status: 'rejected', reason: REASON }))
    for (let task = tasks.shift(); task; task = tasks.shift()) await task
    const startedAt = time.now
    expect((await get(URL_X)).status).toBe(200)
    expect(sent).toBe(2)
    expect(time.now - startedAt).toBeLessThanOrEqual(2e6)
  })
})
