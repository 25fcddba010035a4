/** API keys in WebSocket subprotocols: the gateway in workerd, an origin with ws, and two clients: ws, and one like that of browsers. */
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import WebSocketOfWs, { WebSocketServer } from 'ws'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import type { Stack } from '../../src/node/start/stack.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { startTestStack } from '../support/stack.ts'

let stack: Stack
let key: string
const handshakes: IncomingMessage[] = []
const server = createServer()
// Selects `chat` if it is offered, and otherwise no protocol.
const sockets = new WebSocketServer({
  server,
  handleProtocols: names => (names.has('chat') ? 'chat' : false),
})
sockets.on('connection', (socket, request) => {
  handshakes.push(request)
  socket.on('message', data => socket.send(`echo ${data}`))
})

beforeAll(async () => {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  stack = await startTestStack('web-socket-keys.config.ts', {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  })
  const created = await createKey(createAdminStore(stack.rest), { consumer: 'acme', plan: 'free' })
  key = created.key
})
afterAll(async () => {
  await stack?.close()
  sockets.close()
  server.close()
  server.closeAllConnections()
})
beforeEach(() => {
  handshakes.length = 0
})

interface Opened {
  protocol: string
  reply: string
}

type Client = (path: string, protocols: string[]) => Promise<Opened | 'refused'>

const urlOf = (path: string) => `${stack.url.replace('http', 'ws')}${path}`

const CLIENTS: [string, Client][] = [
  [
    'ws',
    (path, protocols) =>
      new Promise(resolve => {
        const socket = new WebSocketOfWs(urlOf(path), protocols)
        socket.on('open', () => socket.send('hello'))
        socket.on('error', () => resolve('refused'))
        socket.on('message', data => {
          resolve({ protocol: socket.protocol, reply: String(data) })
          socket.close()
        })
      }),
  ],
  [
    'the standard WebSocket',
    (path, protocols) =>
      new Promise(resolve => {
        const socket = new WebSocket(urlOf(path), protocols)
        socket.addEventListener('open', () => socket.send('hello'))
        socket.addEventListener('error', () => resolve('refused'))
        socket.addEventListener('message', ({ data }) => {
          resolve({ protocol: socket.protocol, reply: String(data) })
          socket.close()
        })
      }),
  ],
]

/** Sends a handshake with these protocols. @returns the status, the selected protocol and the body */
function handshake(
  protocols: string,
  headers: Record<string, string> = {},
): Promise<[number, string, string]> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocketOfWs(urlOf('/'), {
      headers: { 'sec-websocket-protocol': protocols, ...headers },
    })
    socket.on('upgrade', ({ statusCode, headers }) => {
      resolve([statusCode!, headers['sec-websocket-protocol'] ?? '', ''])
      socket.terminate()
    })
    socket.on('unexpected-response', async (_, response) => {
      let text = ''
      for await (const part of response) text += part
      resolve([response.statusCode!, response.headers['sec-websocket-protocol'] ?? '', text])
    })
    socket.on('error', reject)
  })
}

describe.each(CLIENTS)('%s', (_, open) => {
  it.each(['/', '/held'])(
    'is authenticated by the key, and gets the protocol that the origin selects (%s)',
    async path => {
      expect(await open(path, [`sluice-key.${key}`, 'chat'])).toEqual({
        protocol: 'chat',
        reply: 'echo hello',
      })
      expect(handshakes.map(({ headers }) => headers)).toMatchObject([
        { 'sec-websocket-protocol': 'chat', 'x-consumer-id': 'acme' },
      ])
      expect(JSON.stringify(handshakes[0]!.rawHeaders)).not.toContain(key)
    },
  )

  it.each(['/', '/held'])(
    'that has no other protocol to offer also offers sluice, and the gateway selects it (%s)',
    async path => {
      expect(await open(path, ['sluice', `sluice-key.${key}`])).toEqual({
        protocol: 'sluice',
        reply: 'echo hello',
      })
      expect(handshakes[0]!.headers).not.toHaveProperty('sec-websocket-protocol')
    },
  )

  it('that offers sluice and another protocol gets the other one', async () => {
    const opened = await open('/', ['sluice', 'chat', `sluice-key.${key}`])
    expect(opened).toEqual({ protocol: 'chat', reply: 'echo hello' })
  })

  it('is refused with a bad key, and with only the key', async () => {
    expect(await open('/', [`sluice-key.${key}x`, 'chat'])).toBe('refused')
    expect(await open('/', [`sluice-key.${mintApiKey('acme')}`, 'chat'])).toBe('refused')
    expect(await open('/', [`sluice-key.${key}`])).toBe('refused')
    expect(handshakes).toEqual([])
  })
})

describe('a handshake', () => {
  it('with only the key gets a reply that explains the fix and does not repeat the key', async () => {
    const [status, selected, body] = await handshake(`sluice-key.${key}`)
    expect([status, selected, JSON.parse(body).title]).toEqual([400, '', 'Bad Request'])
    expect(body).toContain("or 'sluice'")
    expect(body).not.toContain(key)
  })

  it('with a bad key, two keys or no key gets a 401', async () => {
    expect((await handshake('sluice-key.slk_x, chat'))[0]).toBe(401)
    expect((await handshake(`sluice-key.${key}, sluice-key.${key}, chat`))[0]).toBe(401)
    expect((await handshake('chat'))[0]).toBe(401)
  })

  it('with two kinds of keys is authenticated by the header, and the origin receives neither key', async () => {
    const own = await createKey(createAdminStore(stack.rest), { consumer: 'other', plan: 'free' })
    expect((await handshake(`sluice-key.${key}, chat`, { 'x-api-key': own.key }))[0]).toBe(101)
    expect(handshakes[0]!.headers['x-consumer-id']).toBe('other')
    expect(JSON.stringify(handshakes[0]!.rawHeaders)).not.toContain('slk_')
  })

  it('is authenticated although it has an Authorization header for the origin, which is kept', async () => {
    const authorization = 'Basic dXNlcjpwYXNz'
    expect((await handshake(`sluice-key.${key}, chat`, { authorization }))[0]).toBe(101)
    expect(handshakes[0]!.headers).toMatchObject({ authorization, 'x-consumer-id': 'acme' })
  })

  it('accepts percent-encoded keys of other systems', async () => {
    const foreign = 'a/key+made=elsewhere'
    await importKey(createAdminStore(stack.rest), { key: foreign }, { consumer: 'partner', plan: 'free' })
    expect((await handshake(`sluice-key.${encodeURIComponent(foreign)}, chat`))[0]).toBe(101)
    expect(handshakes[0]!.headers['x-consumer-id']).toBe('partner')
  })

  it('without a key in its protocols is not changed', async () => {
    expect(await handshake('chat, sluice', { 'x-api-key': key })).toEqual([101, 'chat', ''])
    expect(handshakes[0]!.headers['sec-websocket-protocol']).toBe('chat, sluice')
  })
})

it('a key in Sec-WebSocket-Protocol does not authenticate a request that is not a handshake', async () => {
  const response = await fetch(stack.url, {
    headers: { 'sec-websocket-protocol': `sluice-key.${key}, chat` },
  })
  expect(response.status).toBe(401)
})
