/** The messages of the bridge when Redis stops answering, and when it is back. */
import { expect, it, vi } from 'vitest'
import type { Outage } from '../../src/node/rest-bridge/redis-server.ts'
import { watchRedis } from '../../src/node/rest-bridge/watch-redis.ts'

const GONE: Outage = { address: 'Redis at a.test:6379', reason: 'does not answer: refused', status: 503 }
const SLOW: Outage = { ...GONE, reason: 'does not answer: no reply within 2 s', status: 504 }

/** The lines that are written if successive checks have these answers. */
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

it('one line reports that Redis stops answering, and one that it is back', async () => {
  expect((await linesFor([undefined, GONE, GONE, SLOW, undefined, undefined, SLOW])).lines).toEqual([
    '2 s: Redis at a.test:6379 does not answer: refused. Until it is back, the bridge answers every command with 503.',
    '5 s: Redis is back after 3 s.',
    '7 s: Redis at a.test:6379 does not answer: no reply within 2 s. Until it is back, the bridge answers every command with 504.',
  ])
})

it('a Redis that answers with errors is not said to refuse every command', async () => {
  const reason = 'answers with an error: MISCONF no disk'
  expect((await linesFor([{ ...GONE, reason, status: 400 }])).lines).toEqual([
    '1 s: Redis at a.test:6379 answers with an error: MISCONF no disk. Until it is back, the bridge passes its errors on with 400.',
  ])
})

it('at most one line is written per second, however often Redis fails', async () => {
  const { lines, pauses } = await linesFor([GONE, undefined, GONE, undefined])
  expect(lines).toHaveLength(4)
  expect(pauses).toEqual([1000, 1000, 1000, 1000])
})

it('on a cluster, the line says that only the keys of this node are affected', async () => {
  expect((await linesFor([GONE], { isCluster: true })).lines).toEqual([
    '1 s: Redis at a.test:6379 does not answer: refused. Until it is back, the bridge answers commands on its keys with 503.',
  ])
})

it('watching can be stopped, also during a check', async () => {
  const { promise, resolve } = Promise.withResolvers<Outage[]>()
  const log = vi.fn()
  const outages = vi.fn(() => promise)
  const pause = vi.fn(() => Promise.resolve())
  watchRedis({ isCluster: false, outages }, log, { pause })()
  resolve([GONE])
  await promise
  await Promise.resolve()
  expect([log, outages, pause].map(({ mock }) => mock.calls.length)).toEqual([0, 1, 0])
})
