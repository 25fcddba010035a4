/** How a key in a WebSocket subprotocol is read. test/e2e/web-socket-keys.test.ts has real handshakes. */
import { expect, it } from 'vitest'
import { withWebSocketKeys } from '../../src/set-ups/http/web-socket-key.ts'

/** What the gateway reads as X-API-Key. */
async function keyIn(protocols: string): Promise<string | null> {
  const handle = withWebSocketKeys(async ({ request }: { request: Request }) =>
    Response.json({ key: request.headers.get('x-api-key') }),
  )
  const headers = { upgrade: 'websocket', 'sec-websocket-protocol': protocols }
  const reply = await handle({ request: new Request('http://gateway.test/', { headers }) }, undefined)
  return ((await reply.json()) as { key: string | null }).key
}

it.each([
  ['is decoded', 'sluice-key.an%2Bopaque%2Fkey', 'an+opaque/key'],
  ['stays as it is if its escapes are not UTF-8', 'sluice-key.a%FFb', 'a%FFb'],
  // A header with these would be an exception, and so a line in the log.
  ['keeps the escape of a line break', 'sluice-key.a%0Ab', 'a%0Ab'],
  ['keeps the escape of NUL', 'sluice-key.%00', '%00'],
  ['keeps the escapes of what is not ASCII', 'sluice-key.%C4%80', '%C4%80'],
])('a key %s', async (_, protocol, key) => expect(await keyIn(`${protocol}, chat`)).toBe(key))
