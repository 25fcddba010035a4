/** The origin's machines push their utilization to the gateway, authenticated with a secret. */
import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { signalScript } from '../../src/script/signal-text.ts'
import { createUtilizationHandler } from '../../src/set-ups/http/utilization.ts'
import { reportersKey, signalKey } from '../../src/store/keys.ts'
import type { ScriptCall, Store, StoreCall } from '../../src/store/store.ts'
import { describeOnRedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'

const SECRET = 'a secret of the tests'.replaceAll(' ', '-')
const PUSHES = { signal: 'origin', staleAfterMs: 5000, secretName: 'PUSH_SECRET', secret: SECRET }
const BODY = { reporter: 'api-7', utilization: 0.83 }

/** A store that records the calls. */
function answering(answer: (calls: readonly StoreCall[]) => unknown = () => [[1, 830, 1]]) {
  const calls: ScriptCall[] = []
  const store: Store = {
    async run(sent) {
      calls.push(...(sent as ScriptCall[]))
      return answer(sent) as unknown[]
    },
    ping: async () => {},
  }
  return { store, calls }
}

type PushInit = Omit<RequestInit, 'body'> & { body?: unknown; token?: string | undefined }

async function push(
  { body = BODY, token = `Bearer ${SECRET}`, headers, ...init }: PushInit = {},
  { store = answering().store, pushes = PUSHES }: { store?: Store; pushes?: Partial<typeof PUSHES> } = {},
) {
  const handler = createUtilizationHandler(store, { ...PUSHES, ...pushes }, signalScript)
  const isRaw = typeof body === 'string' || body instanceof Uint8Array || body instanceof ReadableStream
  const text = isRaw ? body : JSON.stringify(body)
  const method = init.method ?? 'POST'
  const request = new Request('https://gateway.test/_sluice/utilization', {
    ...{ method, ...init, headers: { ...(headers as object), ...(token && { authorization: token }) } },
    ...(method !== 'GET' && method !== 'HEAD' && { body: text as string }),
    ...(body instanceof ReadableStream && { duplex: 'half' }),
  })
  const response = await handler(request)
  const content = await response.text()
  if (response.status === 204) expect(content).toBe('')
  else expect(response.headers.get('content-type')).toBe('application/problem+json')
  expect(response.headers.get('cache-control')).toBe('no-store')
  return { status: response.status, headers: response.headers, ...(content && JSON.parse(content)) }
}

describe('a push', () => {
  it('is stored in thousandths, and answered with 204', async () => {
    const { store, calls } = answering()
    expect((await push({}, { store })).status).toBe(204)
    expect(calls.map(({ keys, args }) => [keys, args])).toEqual([
      [
        ['sluice:{signal:origin}', 'sluice:{signal:origin}:reporters'],
        ['push', '', 'api-7', '830', '5000'],
      ],
    ])
  })

  it.each([
    ...[{ utilization: 0 }, { utilization: 1 }, { utilization: 5e-324 }, { utilization: 0.9999999 }],
    ...[{ reporter: 'a' }, { reporter: 'a'.repeat(64) }, { reporter: 'ip-10-0-0-1.eu:8080_b' }],
  ])('may have %j', async change => {
    expect((await push({ body: { ...BODY, ...change } })).status).toBe(204)
  })

  it('may arrive in pieces, with any content type', async () => {
    const bytes = new TextEncoder().encode(JSON.stringify(BODY))
    const body = new ReadableStream({
      start(controller) {
        for (const byte of bytes) controller.enqueue(Uint8Array.of(byte))
        controller.close()
      },
    })
    expect((await push({ body, headers: { 'content-type': 'text/plain' } })).status).toBe(204)
  })

  it.each(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])('is refused as %s', async method => {
    const { status, headers, detail } = await push({ method, body: 'x' }).catch(error => error)
    expect([status, headers.get('allow')]).toEqual([405, 'POST'])
    expect(detail).toContain(`${method} is not allowed here. Send POST`)
  })
})

describe('the secret', () => {
  it.each([
    undefined,
    '',
    'Bearer',
    'Bearer ',
    SECRET,
    `Basic ${SECRET}`,
    `Bearer ${SECRET} x`,
    `Bearer x ${SECRET}`,
  ])('is missing in %j', async token => {
    const { store, calls } = answering()
    const { status, headers, detail } = await push({ token: token ?? '' }, { store })
    expect([status, headers.get('www-authenticate')]).toEqual([401, 'Bearer realm="sluice"'])
    expect(detail).toContain('Authorization: Bearer <secret>')
    expect(calls).toEqual([])
  })

  it.each([`${SECRET}x`, SECRET.slice(0, -1), SECRET.toUpperCase(), 'x', '0', 'undefined', 'x'.repeat(5000)])(
    'is not %j',
    async token => {
      const { store, calls } = answering()
      const { status, headers, ...rest } = await push({ token: `Bearer ${token}` }, { store })
      expect([status, headers.get('www-authenticate')]).toEqual([
        ...[401, 'Bearer realm="sluice", error="invalid_token"'],
      ])
      expect(JSON.stringify(rest)).not.toContain(SECRET)
      expect(calls).toEqual([])
    },
  )

  it('is checked before the body is read', async () => {
    const body = new ReadableStream({
      pull() {
        throw new Error('read')
      },
    })
    expect((await push({ body, token: 'Bearer x' })).status).toBe(401)
  })

  it.each(['bearer', 'BEARER'])('is accepted after %s: the scheme may have any case', async scheme => {
    expect((await push({ token: `${scheme}  ${SECRET}` })).status).toBe(204)
  })

  it.each([undefined, '', null, 7])(
    'is not set if it is %j in the environment: every push is refused, and the reply says what to set',
    async secret => {
      for (const token of [`Bearer ${SECRET}`, 'Bearer undefined', 'Bearer null', 'Bearer 7', '']) {
        const { status, detail } = await push({ token }, { pushes: { secret: secret as never } })
        expect([status, detail]).toEqual([
          ...[
            503,
            'Pushes cannot be authenticated: the variable PUSH_SECRET of the gateway is not set. Set it to a secret.',
          ],
        ])
      }
    },
  )
})

describe('a body', () => {
  const of = (change: object) => ({ ...BODY, ...change })
  it.each([
    ['', 'The body is not JSON: "". Send an object like {"reporter":"api-7","utilization":0.83}.'],
    ['{"reporter":', 'The body is not JSON: "{\\"reporter\\":". Send an object'],
    ['NaN', 'The body is not JSON: "NaN".'],
    ['\ufeff{}x', 'The body is not JSON'],
    [[], 'The body is []. Send an object'],
    [[BODY], 'The body is [{"reporter":"api-7","utilization":0.83}]. Send an object'],
    [null, 'The body is null. Send an object'],
    [0.83, 'The body is 0.83. Send an object'],
    ['"x"', 'The body is "x". Send an object'],
    [{}, 'reporter is missing. Send the name of the machine: 1 to 64 of the characters A-Z a-z 0-9 . _ : -'],
    ...['', 'a b', 'a\n', 'a'.repeat(65), '{x}', 'é', '\0', '*', 'a/b', '__proto__ '].map(
      reporter => [of({ reporter }), `reporter is ${JSON.stringify(reporter).slice(0, 20)}`] as const,
    ),
    ...[7, null, ['a'], { a: 1 }].map(
      reporter => [of({ reporter }), `reporter is ${JSON.stringify(reporter)}. Send the name`] as const,
    ),
    [
      { reporter: 'a' },
      'utilization is missing. Send a number from 0 to 1: the share of workers that are busy.',
    ],
    ...['0.5', null, [0.5], true, {}, -0.1, -1e300].map(
      utilization =>
        [
          of({ utilization }),
          `utilization is ${JSON.stringify(utilization)}. Send a number from 0 to 1`,
        ] as const,
    ),
    ['{"reporter":"a","utilization":1e999}', 'utilization is Infinity. The maximum is 1'],
    [
      of({ utilization: 83 }),
      'utilization is 83. The maximum is 1: all workers are busy. Divide a percentage by 100: 83 % is 0.83.',
    ],
    [of({ utilization: 1.0000001 }), 'utilization is 1.0000001. The maximum is 1'],
    [of({ signal: 'other' }), '"signal" is not a field. Send reporter and utilization only.'],
    ['{"__proto__":{},"reporter":"a","utilization":1}', '"__proto__" is not a field.'],
    ['['.repeat(4000), 'The body is not JSON'],
    [new Uint8Array([0x7b, 0xff, 0x7d]), 'The body is not UTF-8. Send JSON in UTF-8.'],
  ] as const)('%j is refused with the reason', async (body, reason) => {
    const { store, calls } = answering()
    const { status, title, detail } = await push({ body }, { store })
    expect([status, title]).toEqual([400, 'Bad Request'])
    expect(detail).toContain(reason)
    expect(detail.length).toBeLessThan(250)
    expect(calls).toEqual([])
  })

  it('has at most 4 KiB, whatever its headers claim', async () => {
    const padded = (length: number) => JSON.stringify(BODY).padEnd(length)
    expect((await push({ body: padded(4096) })).status).toBe(204)
    const endless = () =>
      new ReadableStream({
        pull(controller) {
          controller.enqueue(new Uint8Array(1000).fill(32))
        },
      })
    for (const body of [padded(4097), endless()]) {
      const { status, detail } = await push({ body })
      expect([status, detail]).toEqual([413, expect.stringContaining('more than 4096 bytes')])
    }
    const lying = { 'content-length': '1000000' }
    expect((await push({ headers: lying }).catch(() => ({ status: 413 }))).status).toBe(413)
  })

  it('that breaks off is refused', async () => {
    let pulls = 0
    const body = new ReadableStream({
      pull(controller) {
        if (pulls++ > 0) throw new Error('gone')
        controller.enqueue(new TextEncoder().encode('{"rep'))
      },
    })
    expect(await push({ body })).toMatchObject({
      status: 400,
      detail: 'The body ended early. Send it again.',
    })
  })
})

describe('a store', () => {
  it.each([
    () => Promise.reject(new GatewayError('ERR_STORE_TIMEOUT', 'The secret key sluice:{x} is late.')),
    () => [new GatewayError('ERR_STORE_TIMEOUT', 'late')],
  ])('that does not answer causes a 503, which can be retried', async answer => {
    const { status, headers, detail } = await push({}, { store: answering(answer).store })
    expect([status, headers.get('retry-after')]).toEqual([503, '1'])
    expect(detail).toBe('The utilization was not stored (ERR_STORE_TIMEOUT). Push again with the next value.')
  })

  it.each([[[]], [['OK']], [[[1, 2]]], [[null]]])('that answers %j causes a 503', async reply => {
    const { status, detail } = await push({}, { store: answering(() => reply).store })
    expect([status, detail]).toEqual([503, expect.stringContaining('ERR_STORE_REPLY_INVALID')])
  })
})

describeOnRedisEngine('pushes', fresh => {
  it('of several machines are averaged, each with its last value', async () => {
    const redis = await fresh()
    const store = storeOf(redis, { isCluster: true })
    for (const [reporter, utilization] of [
      ['a', 0.1],
      ['b', 0.9],
      ['a', 0.5],
    ] as const) {
      expect((await push({ body: { reporter, utilization } }, { store })).status).toBe(204)
    }
    expect(String(await redis.send(['GET', signalKey('origin')]))).toMatch(/^\|700 \d+ 5000000 2$/)
    expect(Number(await redis.send(['HLEN', reportersKey('origin')]))).toBe(2)
  })
})
