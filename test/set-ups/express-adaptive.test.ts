/** What an adaptive limit measures of an Express app: the time until its response has been sent, and its failures. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { expressGuard } from '../../src/node/express.ts'
import { signalKey } from '../../src/store/keys.ts'
import { listening } from '../support/endings.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'

const CONFIG: ConfigInput = {
  credentials: { accept: ['anonymous'] },
  rules: [{ name: 'app', by: 'global', algorithm: 'concurrency', limit: 10, adaptive: {} }],
}

const gateway = useGateway()

/** The sums that are reported after one request to the app: ended, failed, latency (ms), in flight, refused. */
async function sumsAfter(app: (res: ServerResponse, pass: (ms: number) => void) => void): Promise<string> {
  let now = 1_700_000_000_000
  const pass = (ms: number) => {
    now += ms
  }
  let ended = Promise.withResolvers<void>()
  const limits = expressGuard(
    CONFIG,
    { env: { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN } },
    {
      ...{ clock: { now: () => now }, reportAt: () => now * 1000, timer: () => () => {} },
      reporting: { timer: () => () => {}, onFinish: () => ended.resolve() },
    },
  )
  const server = await listening((req: IncomingMessage, res: ServerResponse) =>
    limits(req, res, () => (req.url === '/' ? app(res, pass) : res.end())),
  )
  try {
    await (await fetch(server.url)).text()
    await ended.promise
    ended = Promise.withResolvers()
    pass(1500)
    await (await fetch(new URL('/report', server.url))).text()
    await ended.promise
    const text = String(await gateway.redis.connection.send(['GET', signalKey('adaptive-limit')]))
    return text.split(';')[1]!
  } finally {
    await server.close()
  }
}

it.each<[string, string, Parameters<typeof sumsAfter>[0]]>([
  [
    'the time until the response is over',
    '1 0 250 1 0',
    (res, pass) => {
      res.write('begun')
      pass(250)
      res.end()
    },
  ],
  ['a failure', '1 1 0 1 0', res => void res.writeHead(500).end()],
  [
    'nothing, if the time depends on how fast the client reads',
    '0 0 0 0 0',
    res => void res.end('x'.repeat(1e5)),
  ],
])('measures %s', async (_, sums, app) => expect(await sumsAfter(app)).toBe(sums))
