/** What the API replies while Redis answers, and refuses what it is asked to do. */
import { json } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { connectRedisStore, type RedisStore } from '../../src/node/redis-store/redis-store.ts'
import { problemType } from '../../src/set-ups/api/problems.ts'
import { type ApiCall, apiOf, tokenWith } from '../support/api.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'
import { hasRedisServer } from '../support/servers.ts'

const CONFIG: Partial<ConfigInput> = {
  plans: ['free', 'pro'],
  rules: [{ name: 'minute', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: '1m' }],
}

const SCOPES = [
  'keys:write',
  'consumers:block',
  'consumers:write',
  'overrides:write',
  'switches:write',
  'tokens:write',
]

const CHANGES = [
  ['POST keys', { consumer: 'other' }],
  ['POST keys/{id}/rotate', {}],
  ['PATCH keys/{id}', { label: 'new' }],
  ['DELETE keys/{id}', undefined],
  ['POST tokens', { name: 'b', scopes: ['keys:write'] }],
  ['PATCH consumers/acme', { plan: 'pro' }],
  ['PUT consumers/acme/block', {}],
  ['PUT consumers/other/overrides/minute', { limit: 5 }],
  ['PUT switches/minute', { mode: 'off' }],
] as const

/** The faults of Redis: commands that begin and end them, and what the API says about them. */
const FAULTS = {
  'is a replica': [
    ['REPLICAOF', '127.0.0.1', '1'],
    ['REPLICAOF', 'NO', 'ONE'],
    'The store answered READONLY.',
  ],
  'is full': [
    ['CONFIG', 'SET', 'maxmemory', '1'],
    ['CONFIG', 'SET', 'maxmemory', '0'],
    'The store answered OOM.',
  ],
} as const

describe.runIf(hasRedisServer)('a Redis', () => {
  const gateway = useGateway('redis-server')
  let direct: RedisStore
  let token: string
  let id: string

  beforeAll(async () => {
    direct = await connectRedisStore({ url: gateway.redis.url })
  })
  afterAll(() => direct?.close())

  const send = (command: readonly string[]) => gateway.redis.connection.send([...command])

  /** The text of every record, except statistics, which isolates write in the background. */
  async function records(): Promise<unknown[]> {
    const keys = ((await send(['KEYS', '*'])) as Buffer[]).map(String).filter(key => !key.includes('{stats}'))
    return await Promise.all(keys.sort().map(async key => [key, String(await send(['DUMP', key]))]))
  }

  describe.each(['over HTTP', 'over a direct connection'])('%s', connection => {
    let api: ApiCall

    beforeEach(async () => {
      api = apiOf(gateway, CONFIG, connection === 'over HTTP' ? {} : { connection: direct.admin })
      token = await tokenWith(gateway, SCOPES)
      id = (await api('POST keys', { token, body: { consumer: 'acme' } })).body.id
    })
    afterEach(async () => {
      for (const [, end] of Object.values(FAULTS)) await send(end)
    })

    describe.each(Object.entries(FAULTS))('that %s', (_, [begin, end, says]) => {
      it.each(CHANGES)('is named in the reply to %s, and has changed nothing', async (what, body) => {
        const before = await records()
        await send(begin)
        const reply = await api(what.replace('{id}', id), { token, body })
        expect(reply).toMatchObject({
          status: 503,
          body: {
            ...{ type: problemType('store-unavailable'), change: 'none' },
            detail: `${says} Nothing was changed. Try again later.`,
          },
        })
        await send(end)
        expect(await records()).toEqual(before)
        expect((await api(what.replace('{id}', id), { token, body })).status).toBeLessThan(300)
      })

      it('does not keep callers from reading', async () => {
        await send(begin)
        expect((await api('GET keys', { token })).status).toBe(200)
      })

      it('creates nothing for an Idempotency-Key, which can be used again', async () => {
        const request = { token, body: { consumer: 'other' }, headers: { 'idempotency-key': 'a' } }
        await send(begin)
        expect((await api('POST keys', request)).body).toMatchObject({
          ...{ change: 'none', detail: expect.stringMatching(`^${says} Repeat it with the same`) },
        })
        await send(end)
        expect((await api('POST keys', request)).status).toBe(201)
      })
    })
  })

  describe('over HTTP', () => {
    let api: ApiCall

    beforeEach(async () => {
      api = apiOf(gateway, CONFIG)
      token = await tokenWith(gateway, SCOPES)
    })

    const WRONG_TOKEN = '{"error":"WRONGPASS invalid or missing auth token"}'

    it.each([
      ['knows the token', true],
      ['has not checked the token yet', false],
    ])('that refuses its credentials is named, if the isolate %s', async (_, isKnown) => {
      if (isKnown) await api('GET keys', { token })
      gateway.store.fault = (_, response) => void response.writeHead(401).end(WRONG_TOKEN)
      const { body } = await api('POST keys', { token, body: { consumer: 'acme' } })
      expect(body).toMatchObject({
        ...{ status: 503, change: 'none' },
        detail: expect.stringMatching(
          /^The store answered WRONGPASS\. Check UPSTASH_REDIS_REST_TOKEN\. Nothing was/,
        ),
      })
      const { host } = new URL(gateway.store.url)
      for (const secret of [token, TOKEN, host]) expect(JSON.stringify(body)).not.toContain(secret)
    })

    const refused = (error: string) => ({ error })
    it.each([
      [
        'some of the commands',
        [{ result: 0 }, refused('OOM command not allowed')],
        'The store answered OOM to some commands.',
      ],
      [
        'scripts that may have written',
        [refused('ERR script: @sluice:{c:acme}'), refused('ERR')],
        'The store answered ERR.',
      ],
      [
        'a transaction',
        [refused('EXECABORT sluice:{c:acme}'), refused('EXECABORT')],
        'The store answered EXECABORT.',
      ],
    ])('that refuses %s may have made a change', async (_, [first, ...others], says) => {
      await api('POST keys', { token, body: { consumer: 'acme' } })
      // A removal begins with a script for each hour.
      gateway.store.fault = async (request, response) => {
        const [, ...commands] = (await json(request)) as unknown[]
        response.end(JSON.stringify([first, ...commands.flatMap(() => others)]))
      }
      const { body } = await api('DELETE consumers/acme', { token })
      expect(body).toMatchObject({
        change: 'unknown',
        detail: expect.stringMatching(`^${says} The request may`),
      })
      expect(body.detail).not.toContain('sluice:')
    })

    it('that refuses the second change of a request may have made the first', async () => {
      await api('POST keys', { token, body: { consumer: 'acme' } })
      let requests = 0
      gateway.store.fault = (_, response, passOn) => {
        if (requests++ === 0) return passOn()
        response.writeHead(400).end('{"error":"READONLY You can\'t write against a read only replica."}')
      }
      expect((await api('DELETE consumers/acme', { token })).body).toMatchObject({
        ...{
          change: 'unknown',
          detail: expect.stringMatching(/^The store answered READONLY\. The request may/),
        },
      })
    })
  })
})
