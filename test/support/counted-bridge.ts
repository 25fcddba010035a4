/**
 * A bridge whose requests are counted where they arrive: a proxy in front of it would make each of them two HTTP requests. With `npm test`,
 * the store in the same process reaches it without HTTP (in-process.ts), unless a fault or a watch needs the request.
 */
import { timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createBridgeListener } from '../../src/node/rest-bridge/bridge-listener.ts'
import { commandOf, commandsOf } from '../../src/node/rest-bridge/encoding.ts'
import { type Answer, answerToFailure, RedisCommands } from '../../src/node/rest-bridge/redis-commands.ts'
import { connectRedis } from '../../src/node/rest-bridge/redis-connection.ts'
import { type CountingProxy, startCountingProxy } from './counting-proxy.ts'
import { serveInProcess, stopServingInProcess } from './in-process.ts'
import { listen } from './listen.ts'
import { PATIENT_MS } from './patience.ts'

export interface CountedBridge {
  proxy: CountingProxy
  /** The same bridge. Its requests are not counted, and have no faults. */
  url: string
  close(): Promise<void>
}

export async function startCountedBridge(redisUrl: string, token: string): Promise<CountedBridge> {
  const redis = await connectRedis(redisUrl, PATIENT_MS)
  const commands = new RedisCommands(redis)
  const listener = createBridgeListener({
    commands,
    isHealthy: async () => true,
    token,
    isEqual: timingSafeEqual,
    maxRequestBytes: 10e6,
  })
  // As in bridge.ts.
  const server = createServer({ joinDuplicateHeaders: true }, listener)
  server.keepAliveTimeout = 120_000
  await listen(server, 0)
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const proxy = await startCountingProxy(url, listener)
  serveInProcess(url, (path, init) => answerInProcess(commands, path, init))
  serveInProcess(proxy.url, (path, init) =>
    proxy.countInProcess() ? answerInProcess(commands, path, init) : undefined,
  )
  return {
    proxy,
    url,
    async close() {
      for (const each of [url, proxy.url]) stopServingInProcess(each)
      await proxy.close()
      const closed = new Promise(resolve => server.close(resolve))
      server.closeAllConnections()
      await closed
      redis.close()
    },
  }
}

/** Answers like the bridge (bridge-listener.ts), which also checks the token. */
async function answerInProcess(
  commands: RedisCommands,
  path: string,
  { body: sent }: RequestInit,
): Promise<Response> {
  const { status, body } = await run(commands, path, JSON.parse(sent as string)).catch(answerToFailure)
  return new Response(JSON.stringify(body), { status })
}

async function run(commands: RedisCommands, path: string, sent: unknown): Promise<Answer> {
  switch (path) {
    case '/pipeline':
      return await commands.pipeline(commandsOf(sent), false)
    case '/multi-exec':
      return await commands.transaction(commandsOf(sent), false)
    default:
      return await commands.single(commandOf(sent), false)
  }
}
