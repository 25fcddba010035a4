/** Clients of node-redis, which are cheap to create. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import { createRedisClient } from '../../src/node/rest-bridge/redis-client.ts'
import { RedisServer } from '../../src/node/rest-bridge/redis-server.ts'

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

it('a server that is left while it connects keeps no connection, also if it never answers', async () => {
  const silent = createServer().listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const connected = once(silent, 'connection') as Promise<[Socket]>
  new RedisServer(`redis://127.0.0.1:${(silent.address() as AddressInfo).port}`, 60_000).destroy()
  const [socket] = await connected
  socket.resume().on('error', () => {})
  await once(socket, 'close')
  silent.close()
})
