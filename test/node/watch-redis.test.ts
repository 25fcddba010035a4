/** What the bridge says when Redis goes and comes back. */
import { expect, it, vi } from 'vitest'
import type { Outage } from '../../src/node/rest-bridge/redis-server.ts'
import { watchRedis } from '../../src/node/rest-bridge/watch-redis.ts'

const GONE: Outage = { address: 'Redis at a.test:6379', reason: 'does not answer: refused', status: 503 }
const SLOW: Outage = { ...GONE, reason: 'does not answer: no reply within 2 s', status: 504 }

/** The lines for these answers, one for each check. */
async function linesFor(answers: readonly (Outage | undefined)[], { isCluster = false } = {}) {
  const lines: string[] = []
  const pauses: number[] = []
  const left = [...answers]
  let now = 1000
  let end = () => {}
  await new Promise<void>(resolve => {
    end = watchRedis(
      { isCluster, outages: async () => [undefined, left.shift()] },
      line => lines.push(`${now / 1e3} s: ${line}`),
      {
        now: () => now,
        pause: ms => {
          pauses.push(ms)
          now += ms
          if (left.length > 0) return Promise.resolve()
          resolve()
          return new Promise(() => {})
        },
      },
    )
  })
  end()
  return { lines, pauses }
}

it('is one line when it stops answering, and one when it is back', async () => {
  expect((await linesFor([undefined, GONE, GONE, SLOW, undefined, undefined, SLOW])).lines).toEqual([
    '2 s: Redis at a.test:6379 does not answer: refused. Until it is back, the bridge answers every command with 503.',
    '5 s: Redis is back after 3 s.',
    '7 s: Redis at a.test:6379 does not answer: no reply within 2 s. Until it is back, the bridge answers every command with 504.',
  ])
})

it('is at most one line a second, however often it goes', async () => {
  const { lines, pauses } = await linesFor([GONE, undefined, GONE, undefined])
  expect(lines).toHaveLength(4)
  expect(pauses).toEqual([1000, 1000, 1000, 1000])
})

it('says of a cluster that a part of the keys is concerned', async () => {
  expect((await linesFor([GONE], { isCluster: true })).lines).toEqual([
    '1 s: Redis at a.test:6379 does not answer: refused. Until it is back, the bridge answers commands on its keys with 503.',
  ])
})

it('ends when it is told to, also in the middle of a check', async () => {
  const { promise, resolve } = Promise.withResolvers<Outage[]>()
  const say = vi.fn()
  const outages = vi.fn(() => promise)
  const pause = vi.fn(() => Promise.resolve())
  watchRedis({ isCluster: false, outages }, say, { pause })()
  resolve([GONE])
  await promise
  await Promise.resolve()
  expect([say, outages, pause].map(({ mock }) => mock.calls.length)).toEqual([0, 1, 0])
})
