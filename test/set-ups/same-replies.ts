/** One list of requests for all set-ups: each set-up replies with the same status, headers and bodies of refusals as the gateway. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { blockConsumer } from '../../src/ops/consumers.ts'
import { createKey } from '../../src/ops/keys.ts'
import { ADDRESS_HEADER } from '../support/counted-guard.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import type { SetUpConfigName } from '../support/set-up-configs.ts'
import { type StartSetUp, startGateway } from '../support/set-ups.ts'

const TOKEN = 'a token for tests'

interface TestRequest {
  name: string
  path: string
  method?: string
  key?: 'acme' | 'pro' | 'blocked' | 'unknown' | 'malformed'
  address?: string
  headers?: Record<string, string>
}

const REQUESTS: readonly TestRequest[] = [
  { name: 'without a credential', path: '/' },
  { name: 'with a malformed key', path: '/', key: 'malformed' },
  { name: 'with a key that is not there', path: '/', key: 'unknown' },
  { name: 'of a blocked consumer', path: '/', key: 'blocked' },
  { name: 'from a blocked address', path: '/', key: 'acme', address: '192.0.2.66' },
  { name: 'that is the first of a consumer', path: '/', key: 'acme' },
  { name: 'that costs 2', path: '/reports/7', key: 'acme' },
  { name: 'that would cost more than is left', path: '/reports/7', key: 'acme' },
  { name: 'that is the last', path: '/', key: 'acme' },
  { name: 'that is one too many', path: '/', key: 'acme' },
  { name: 'of a plan with more', path: '/', key: 'pro', method: 'POST' },
  { name: 'of the same', path: '/', key: 'pro', method: 'POST' },
  { name: 'that one of two limits refuses', path: '/', key: 'pro', method: 'POST' },
  { name: 'without a credential where none is needed', path: '/open/1', address: '192.0.2.7' },
  { name: 'of the same address', path: '/open/2', address: '192.0.2.7' },
  { name: 'of another address', path: '/open/2', address: '2001:db8::7' },
  { name: 'of the same network', path: '/open/2', address: '2001:db8::8' },
  { name: 'on a route without limits', path: '/free', address: '192.0.2.7' },
  {
    name: 'of a web page',
    path: '/',
    key: 'pro',
    headers: { origin: 'https://app.example.com' },
  },
  { name: 'to a reserved path', path: '/_sluice/other', key: 'pro' },
  { name: 'with a path that has too many readings', path: `/%41${'x'.repeat(10_000)}`, key: 'pro' },
  {
    name: 'that is a preflight',
    path: '/',
    method: 'OPTIONS',
    headers: { origin: 'https://app.example.com', 'access-control-request-method': 'PUT' },
  },
]

/** The parts that must be equal. Time passes between two set-ups, so the times in headers and bodies are not compared. */
interface Reply {
  status: number
  headers: Record<string, string>
  /** Whether the origin or the user's code has received the request. */
  isReceived: boolean
  /** The body of a refusal. */
  problem?: unknown
}

const COMPARED = [
  'ratelimit-policy',
  'ratelimit',
  'retry-after',
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'www-authenticate',
  'sluice-degraded',
  'access-control-allow-origin',
  'access-control-expose-headers',
  'access-control-allow-methods',
  'access-control-max-age',
]

const withoutTime = (text: string) => text.replaceAll(/\bt=\d+/g, 't=…').replaceAll(/in \d+ s/g, 'in … s')

async function replyOf(response: Response): Promise<Omit<Reply, 'isReceived'>> {
  const headers = Object.fromEntries(
    COMPARED.flatMap(name => {
      const value = response.headers.get(name)
      return value === null ? [] : [[name, name === 'retry-after' ? '…' : withoutTime(value)]]
    }),
  )
  const text = await response.text()
  if (response.status < 400) return { status: response.status, headers }
  if (response.status !== 420) expect(response.headers.get('content-type')).toBe('application/problem+json')
  return { status: response.status, headers, problem: JSON.parse(withoutTime(text)) }
}

async function repliesOf(
  bridge: Bridge,
  start: StartSetUp,
  environment: string,
  config: SetUpConfigName,
  requests: readonly TestRequest[],
): Promise<[string, Reply][]> {
  const env = {
    UPSTASH_REDIS_REST_URL: bridge.url,
    UPSTASH_REDIS_REST_TOKEN: TOKEN,
    SLUICE_ENVIRONMENT: environment,
  }
  const admin = createAdminStore({ url: bridge.url, token: TOKEN, environment })
  const keys: Record<string, string> = {
    acme: (await createKey(admin, { consumer: 'acme', plan: 'free' })).key,
    pro: (await createKey(admin, { consumer: 'gold', plan: 'pro' })).key,
    blocked: (await createKey(admin, { consumer: 'bad', plan: 'free' })).key,
    malformed: 'slk_nonsense',
  }
  await blockConsumer(admin, 'bad', { by: 'test' })
  // A key that is not in the store.
  keys.unknown = (
    await createKey(createAdminStore({ url: bridge.url, token: TOKEN, environment: `${environment}x` }), {
      consumer: 'x',
      plan: 'free',
    })
  ).key.replace(`${environment}x`, environment)
  const setUp = await start(config, env)
  try {
    const replies: [string, Reply][] = []
    let received = 0
    for (const { name: what, path, method, key, address = '192.0.2.1', headers } of requests) {
      const response = await setUp.fetch(path, {
        method: method ?? 'GET',
        headers: {
          [ADDRESS_HEADER]: address,
          ...(key && { authorization: `Bearer ${keys[key]}` }),
          ...headers,
        },
      })
      const reply = await replyOf(response)
      const after = await setUp.received()
      replies.push([what, { ...reply, isReceived: after === received + 1 }])
      received = after
    }
    return replies
  } finally {
    await setUp.close()
  }
}

const SESSION = { headers: { 'x-session': 'user 7' } }

const REQUESTS_WITH_HOOKS: TestRequest[] = [
  { name: 'of a session', path: '/', ...SESSION },
  { name: 'that costs 3', path: '/?all', ...SESSION },
  { name: 'that costs too much', path: '/?all', ...SESSION },
  { name: 'that is not limited', path: '/healthz', ...SESSION },
  { name: 'without a session', path: '/' },
  {
    name: 'of a browser, without cors in the config',
    path: '/',
    method: 'OPTIONS',
    headers: { origin: 'https://app.example.com', 'access-control-request-method': 'PUT' },
  },
]

/** Differences by design (docs/README.md): how set-ups around the user's code reply to the request of this name. */
const EXCEPTIONS: Readonly<Record<string, { why: string; reply: Pick<Reply, 'status' | 'isReceived'> }>> = {
  'to a reserved path': {
    why: "only the gateway has paths of its own, so elsewhere the user's code receives this one",
    reply: { status: 200, isReceived: true },
  },
  'of a browser, without cors in the config': {
    why: 'the gateway passes a preflight to the origin, and other set-ups allow nothing',
    reply: { status: 204, isReceived: false },
  },
}

/** Tests that each of the set-ups replies as the gateway does. */
export function describeSetUps(setUps: Readonly<Record<string, StartSetUp>>): void {
  const LISTS = {
    limits: {
      requests: REQUESTS,
      statuses: [
        ...[401, 401, 401, 403, 403, 200, 200, 429, 200, 429],
        ...[200, 200, 429, 200, 200, 200, 200, 200, 200, 404, 400, 204],
      ],
    },
    hooks: { requests: REQUESTS_WITH_HOOKS, statuses: [200, 200, 420, 200, 420, 200] },
  }

  describe('a request', () => {
    let redis: TestRedis
    let bridge: Bridge
    beforeAll(async () => {
      redis = await startRedis()
      bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
    })
    afterAll(async () => {
      await bridge.close()
      await redis.close()
    })

    describe.each(['limits', 'hooks'] as const)('with the config %s', config => {
      const { requests, statuses } = LISTS[config]
      let expected: Awaited<ReturnType<typeof repliesOf>>
      beforeAll(async () => {
        expected = await repliesOf(bridge, startGateway, `${config}0`, config, requests)
      })

      it('gets the expected reply from the gateway', () => {
        expect(expected.map(([, { status }]) => status)).toEqual(statuses)
        expect(expected.map(([, { isReceived }]) => isReceived)).toEqual(
          statuses.map(status => status === 200),
        )
      })

      it.each(Object.keys(setUps).map((name, i) => [name, i + 1] as const))(
        'gets the same reply as from the gateway: %s',
        async (name, number) => {
          const own = await repliesOf(bridge, setUps[name]!, `${config}${number}`, config, requests)
          const expectedHere = expected.map(([request, reply]) => {
            const exception = name.includes('gateway') ? undefined : EXCEPTIONS[request]
            return [request, exception ? expect.objectContaining(exception.reply) : reply]
          })
          expect(own).toEqual(expectedHere)
        },
      )
    })
  })
}
