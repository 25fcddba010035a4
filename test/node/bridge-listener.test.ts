/** The HTTP side of the bridge stays up whatever happens to one request. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { afterEach, expect, it, vi } from 'vitest'
import { createBridgeListener } from '../../src/node/rest-bridge/bridge-listener.ts'
import type { RedisCommands } from '../../src/node/rest-bridge/redis-commands.ts'

const TOKEN = 'a token for tests'

let close: (() => Promise<unknown>) | undefined
afterEach(async () => {
  await close?.()
  close = undefined
})

/** Starts a server whose commands are run by `single`. @returns its port */
async function start(single: RedisCommands['single']): Promise<number> {
  const server = createServer(
    createBridgeListener({
      commands: { single } as RedisCommands,
      isHealthy: async () => true,
      token: TOKEN,
      isEqual: () => true,
      maxRequestBytes: 1000,
    }),
  )
  await once(server.listen(0, '127.0.0.1'), 'listening')
  close = () => {
    server.closeAllConnections()
    return once(server.close(), 'close')
  }
  return (server.address() as AddressInfo).port
}

const ping = async (port: number) => {
  const init = { method: 'POST', headers: { authorization: `Bearer ${TOKEN}` }, body: '["PING"]' }
  const response = await fetch(`http://127.0.0.1:${port}`, init)
  return [response.status, await response.json()]
}

it('answers 500 if a reply cannot be written as JSON, and serves the next request', async () => {
  const results: unknown[] = [1n, 'PONG']
  const port = await start(async () => ({ status: 200, body: { result: results.shift() } }))
  expect(await ping(port)).toEqual([500, { error: 'ERR the bridge failed' }])
  expect(await ping(port)).toEqual([200, { result: 'PONG' }])
})

it.each([
  ['before its body has arrived', 100, 0],
  ['before its command has an answer', '["PING"]'.length, 1],
])('serves the next request after a caller has left %s', async (_, length, commands) => {
  const answer = Promise.withResolvers<void>()
  const run = vi.fn(async () => {
    await answer.promise
    return { status: 200 as const, body: { result: 'PONG' } }
  })
  const port = await start(run)
  const caller = connect(port, '127.0.0.1')
  const head = `POST / HTTP/1.1\r\nhost: bridge\r\nauthorization: Bearer ${TOKEN}\r\ncontent-length: ${length}`
  caller.write(`${head}\r\n\r\n["PING"]`)
  await vi.waitUntil(() => run.mock.calls.length === commands)
  caller.resetAndDestroy()
  answer.resolve()
  expect(await ping(port)).toEqual([200, { result: 'PONG' }])
  expect(run).toHaveBeenCalledTimes(commands + 1)
})
