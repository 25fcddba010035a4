/** Clients of node-redis, which are cheap to create. */
import { expect, it } from 'vitest'
import { createRedisClient } from '../../src/node/rest-bridge/redis-client.ts'

it('the class with all commands is built once, and clients with different options share it', () => {
  const one = createRedisClient({ url: 'redis://127.0.0.1:1' })
  const other = createRedisClient({ url: 'redis://user:secret@127.0.0.1:2/3', disableOfflineQueue: true })
  expect(Object.getPrototypeOf(one)).toBe(Object.getPrototypeOf(other))
  expect(one.options).toMatchObject({ RESP: 2, socket: { host: '127.0.0.1', port: 1 } })
  expect(one.options.username).toBeUndefined()
  expect(one.options.disableOfflineQueue).toBeUndefined()
  expect(other.options).toMatchObject({
    ...{ RESP: 2, socket: { host: '127.0.0.1', port: 2 } },
    ...{ username: 'user', password: 'secret', database: 3 },
  })
})
