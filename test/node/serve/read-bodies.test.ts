/** Requests whose body is read before they are decided: the origin gets all of it, and the client all of the reply. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import { KEY_SECRET, newKeySecret } from '../../../src/credentials/key-signature.ts'
import type { Isolate } from '../../../src/node/serve/isolate.ts'
import { startRedis, type TestRedis } from '../../support/redis.ts'
import { serveInProcess } from '../../support/serve.ts'

const origin = createServer(async (request, reply) => {
  let body = ''
  for await (const chunk of request) body += chunk
  reply.writeHead(200, { 'x-cost': '3' }).end(`got ${body}`)
})
let redis: TestRedis
beforeAll(async () => {
  redis = await startRedis()
  await new Promise<void>(resolve => origin.listen(0, '127.0.0.1', resolve))
})
afterAll(async () => {
  origin.close()
  await redis.close()
})
let isolate: Isolate | undefined
afterEach(async () => await isolate?.stop(0, true))

const RULE = { by: 'global', algorithm: 'fixed-window', limit: 1e6, period: '1d' } as const
const CONFIGS: Record<string, Partial<ConfigInput>> = {
  'for an estimate whose actual amount is in a header': {
    units: { tokens: { estimate: { defaultOutput: 10 }, actual: { header: 'x-cost' } } },
    rules: [{ name: 'tokens', unit: 'tokens', ...RULE }],
  },
  'for a field': { rules: [{ name: 'logins', ...RULE, by: 'field:email' }] },
  'for a field, under a rule that counts by status': {
    rules: [{ name: 'logins', ...RULE, by: 'field:email', countIf: { status: [401] } }],
  },
  'for a field and for an estimate': {
    units: { tokens: { estimate: { defaultOutput: 10 }, actual: { usage: 'openai' } } },
    rules: [
      { name: 'tokens', unit: 'tokens', ...RULE },
      { name: 'logins', ...RULE, by: 'field:email' },
    ],
  },
}

it.each(Object.keys(CONFIGS))('a body that is read %s', async what => {
  const { port } = origin.address() as AddressInfo
  isolate = await serveInProcess(
    {
      ...{
        origin: `http://127.0.0.1:${port}`,
        credentials: { accept: ['anonymous'] },
        stats: { keep: false },
      },
      ...{ store: { deadline: '20s' }, ...CONFIGS[what] },
    },
    { REDIS_URL: redis.url, [KEY_SECRET]: newKeySecret() },
    // As in a process of its own: otherwise Node cannot copy a request of @hono/node-server.
    { replacesGlobals: true },
  )
  const headers = { 'content-type': 'application/json' }
  for (const body of ['{"email":"ada"}', `{"email":"ada","pad":"${'x'.repeat(100_000)}"}`]) {
    const reply = await fetch(isolate.url, { method: 'POST', body, headers })
    expect([reply.status, reply.headers.has('ratelimit')]).toEqual([200, true])
    expect(await reply.text()).toBe(`got ${body}`)
    const chunks = { method: 'POST', body: new Blob([body]).stream(), headers, duplex: 'half' } as RequestInit
    expect(await (await fetch(isolate.url, chunks)).text()).toBe(`got ${body}`)
  }
})
