/** The store of a set-up whose connection to Redis is not open yet. */
import { expect, it } from 'vitest'
import { createDirectStore, type OpenDirect } from '../../src/node/redis-store/direct-store.ts'
import { type DirectRedis, createDirectStore as refuseDirectStore } from '../../src/set-ups/no-direct.ts'
import type { Store } from '../../src/store/store.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'

const CALL = [{ command: 'GET', key: 'a' }] as const
const OPTIONS = { redis: 'redis://a.test', deadlineMs: 250, environment: undefined, cluster: false }

function redisThat(isCluster: boolean, closed: () => void = () => {}): DirectRedis {
  const store: Store = { isCluster, run: async () => ['ran'], ping: async () => {} }
  return { store, admin: {} as DirectRedis['admin'], close: async () => closed() }
}

it('calls wait until it is open', async () => {
  const { promise, resolve } = Promise.withResolvers<DirectRedis>()
  const { store } = createDirectStore(OPTIONS, 'redis', createDeadlineClock(), () => () => promise)
  const replies = Promise.all([store.run(CALL), store.run(CALL)])
  resolve(redisThat(false))
  expect(await replies).toEqual([['ran'], ['ran']])
})

it('calls that wait longer than their deadline were not sent', async () => {
  const clock = createDeadlineClock()
  const { store } = createDirectStore(OPTIONS, 'redis', clock, () => () => new Promise(() => {}))
  const failure = store.run(CALL).catch(error => error)
  clock.pass(250)
  expect(await failure).toMatchObject({ code: 'ERR_STORE_TIMEOUT', fate: 'not-sent' })
})

it('a cluster that the config does not name is refused, and closed', async () => {
  let closed = 0
  const open: OpenDirect = () => async () => redisThat(true, () => closed++)
  const { store } = createDirectStore(OPTIONS, 'redis', createDeadlineClock(), open)
  await expect(store.run(CALL)).rejects.toThrow(/cluster: true/)
  expect(closed).toBeGreaterThan(0)
  const { store: cluster } = createDirectStore(
    { ...OPTIONS, cluster: true },
    'redis',
    createDeadlineClock(),
    open,
  )
  expect(await cluster.run(CALL)).toEqual(['ran'])
})

it('closing waits for a connection that is being opened, and the next call opens another', async () => {
  let opened = 0
  let closed = 0
  const { promise, resolve } = Promise.withResolvers<void>()
  const open: OpenDirect = () => async () => {
    opened += 1
    await promise
    return redisThat(false, () => closed++)
  }
  const direct = createDirectStore(OPTIONS, 'redis', createDeadlineClock(), open)
  const closing = direct.close()
  resolve()
  await closing
  expect([opened, closed]).toEqual([1, 1])
  expect(await direct.store.run(CALL)).toEqual(['ran'])
  expect([opened, closed]).toEqual([2, 1])
})

it('a platform without connections says which variables to set', () => {
  const create = () => refuseDirectStore(OPTIONS, 'REDIS_URL')
  expect(create).toThrow(/REDIS_URL: .*UPSTASH_REDIS_REST_URL/)
})
