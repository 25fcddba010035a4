/** A REST server like Upstash's: it passes commands on to a bridge, except those that a fake answers itself. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { RestAnswer } from '../../src/store/upstash-client.ts'
import { listen } from './listen.ts'

export type FakeCommand = readonly (string | number)[]

export interface FakeStoreOptions {
  /** The bridge that answers all other commands. */
  bridge: { url: string; token: string }
  /** The answer to a command, or a change of the real one. Undefined: the real one. */
  answer?: (
    command: FakeCommand,
    real: () => Promise<RestAnswer>,
  ) => RestAnswer | undefined | Promise<RestAnswer | undefined>
  /** The reply to every request, instead of answers. */
  reply?: { status: number; body: string; type?: string }
}

export async function startFakeStore({ bridge, answer, reply }: FakeStoreOptions) {
  const real = async (path: string, body: unknown): Promise<RestAnswer> => {
    const response = await fetch(bridge.url + path, {
      ...{ method: 'POST', body: JSON.stringify(body) },
      headers: { authorization: `Bearer ${bridge.token}` },
    })
    return (await response.json()) as RestAnswer
  }
  const server = createServer(async (incoming, outgoing) => {
    let body = ''
    for await (const chunk of incoming) body += chunk
    const send = (status: number, text: string, type = 'application/json') =>
      outgoing.writeHead(status, { 'content-type': type }).end(text)
    if (reply) return void send(reply.status, reply.body, reply.type)
    if (incoming.headers.authorization !== `Bearer ${bridge.token}`)
      return void send(401, '{"error":"WRONGPASS invalid or missing auth token"}')
    const parsed = JSON.parse(body)
    const answerTo = async (command: FakeCommand) => {
      const ask = () => real('/', command)
      return (await answer?.(command, ask)) ?? (await ask())
    }
    if (incoming.url === '/') {
      const single = await answerTo(parsed)
      return void send(single.error ? 400 : 200, JSON.stringify(single))
    }
    const all: RestAnswer[] = []
    for (const command of parsed) all.push(await answerTo(command))
    send(200, JSON.stringify(all))
  })
  await listen(server, 0)
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    token: bridge.token,
    close: () => new Promise<void>(resolve => void server.close(() => resolve()).closeAllConnections()),
  }
}
