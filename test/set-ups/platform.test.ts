/** The data that each platform passes beside a request, and how an edge reads it. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import { guard } from '../../src/set-ups/guard/index.ts'
import { addressFrom, backgroundFrom, environmentOf, goneFrom } from '../../src/set-ups/platform.ts'

const request = (headers: Record<string, string> = {}) => new Request('https://api.test/', { headers })

describe('the address of a client', () => {
  it.each<[string, unknown[], string | undefined]>([
    ['Deno', [{ remoteAddr: { transport: 'tcp', hostname: '192.0.2.1', port: 1 } }], '192.0.2.1'],
    ['Bun', [{ requestIP: () => ({ address: '192.0.2.2', family: 'IPv4', port: 1 }) }], '192.0.2.2'],
    // Empty differs from undefined: with an empty address, headers of proxies are not trusted.
    ['Bun, when the client has gone', [{ requestIP: () => null }], ''],
    ['Node, when the client has gone', [{ incoming: { socket: {} } }], ''],
    ['Hono on Netlify', [{ context: { ip: '192.0.2.4', geo: {} } }], '192.0.2.4'],
    ['Hono on Bun', [{ server: { requestIP: () => ({ address: '192.0.2.2' }) } }], '192.0.2.2'],
    ['Hono on Lambda@Edge', [{ request: { clientIp: '192.0.2.8', uri: '/' } }], '192.0.2.8'],
    ['Node', [{ incoming: { socket: { remoteAddress: '192.0.2.3' } } }], '192.0.2.3'],
    ['Netlify', [{ ip: '192.0.2.4', geo: {}, waitUntil() {} }], '192.0.2.4'],
    ['a Lambda function URL', [{ requestContext: { http: { sourceIp: '192.0.2.5' } } }], '192.0.2.5'],
    [
      'an API gateway with Lambda',
      [{ requestContext: { identity: { sourceIp: '192.0.2.6' } } }],
      '192.0.2.6',
    ],
    ['an unknown platform', [{}, 'text', undefined, null, 7], undefined],
  ])('is the one that the platform reports: %s', (_, args, expected) => {
    expect(addressFrom(request(), args)).toBe(expected)
  })

  it('is never read from a header that clients can write', () => {
    const headers = {
      'x-real-ip': '203.0.113.9',
      'x-forwarded-for': '203.0.113.9',
      'cf-connecting-ip': '203.0.113.9',
      forwarded: 'for=203.0.113.9',
      'client-ip': '203.0.113.9',
    }
    expect(addressFrom(request(headers), [{}])).toBeUndefined()
    expect(addressFrom(request(headers), [{ incoming: { socket: { remoteAddress: '192.0.2.3' } } }])).toBe(
      '192.0.2.3',
    )
  })

  it('is X-Real-IP on Vercel, whose edge overwrites it', () => {
    vi.stubEnv('VERCEL', '1')
    expect(addressFrom(request({ 'x-real-ip': '192.0.2.7' }), [{}])).toBe('192.0.2.7')
  })
})

describe('variables', () => {
  it('are the bindings of a Worker, else the environment variables of the process', () => {
    vi.stubEnv('UPSTASH_REDIS_REST_URL', 'https://process.test')
    const bindings = { UPSTASH_REDIS_REST_URL: 'https://binding.test' }
    expect(environmentOf([bindings, { waitUntil() {} }])).toBe(bindings)
    expect(environmentOf([{ incoming: {} }]).UPSTASH_REDIS_REST_URL).toBe('https://process.test')
    expect(environmentOf().UPSTASH_REDIS_REST_URL).toBe('https://process.test')
  })
})

describe('work after the reply', () => {
  const VERCEL = Symbol.for('@vercel/request-context')
  afterEach(() => {
    delete (globalThis as Record<symbol, unknown>)[VERCEL]
  })

  it('is passed to the platform: Workers, Netlify', async () => {
    const kept: Promise<unknown>[] = []
    const ctx = { waitUntil: (task: Promise<unknown>) => void kept.push(task) }
    backgroundFrom([{}, ctx])(Promise.reject(new Error('lost')))
    // Its failure is ignored.
    await expect(Promise.all(kept)).resolves.toEqual([undefined])
  })

  it('goes on without `waitUntil` if the platform refuses it', async () => {
    const waitUntil = () => {
      throw new Error('the request has ended')
    }
    let hasRun = false
    const task = Promise.resolve().then(() => {
      hasRun = true
    })
    expect(() => backgroundFrom([{ waitUntil }])(task)).not.toThrow()
    expect(() => backgroundFrom([{ waitUntil }])(Promise.reject(new Error('failed')))).not.toThrow()
    await task
    expect(hasRun).toBe(true)
  })

  it('is passed to the platform that Hono wraps', () => {
    const waitUntil = vi.fn()
    backgroundFrom([{ context: { waitUntil } }])(Promise.resolve())
    expect(waitUntil).toHaveBeenCalledOnce()
  })

  it('is passed to Vercel', () => {
    const kept: Promise<unknown>[] = []
    const context = { waitUntil: (task: Promise<unknown>) => void kept.push(task) }
    Object.assign(globalThis, { [VERCEL]: { get: () => context } })
    backgroundFrom([{}])(Promise.resolve())
    expect(kept).toHaveLength(1)
  })

  it('runs on by itself elsewhere, and its failure does not end the process', async () => {
    expect(() => backgroundFrom([undefined])(Promise.reject(new Error('lost')))).not.toThrow()
    await new Promise(resolve => setImmediate(resolve))
  })
})

/** An object of a platform, of which reading anything throws, except for what it has. */
const throwing = (own: object = {}) =>
  new Proxy(own, {
    get(target, name) {
      if (name in target) return Reflect.get(target, name)
      throw new Error(`${String(name)} cannot be read here`)
    },
  })

describe('an object of a platform, whose properties throw when they are read', () => {
  it('reports no address, no variables, no end and no `waitUntil`', () => {
    vi.stubEnv('UPSTASH_REDIS_REST_URL', 'https://process.test')
    const args = [throwing(), throwing({ context: throwing(), outgoing: throwing() })]
    const incoming = request()
    expect(addressFrom(incoming, args)).toBeUndefined()
    expect(environmentOf(args).UPSTASH_REDIS_REST_URL).toBe('https://process.test')
    expect(goneFrom(incoming, args)).toBe(incoming.signal)
    expect(() => backgroundFrom(args)(Promise.resolve())).not.toThrow()
  })

  it('still keeps work alive: the event that middleware of Next.js gets', async () => {
    const kept: Promise<unknown>[] = []
    const event = throwing({ waitUntil: (task: Promise<unknown>) => void kept.push(task) })
    const config = { credentials: { accept: ['anonymous' as const] } }
    const handler = guard(config, {
      env: { UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:1', UPSTASH_REDIS_REST_TOKEN: 't' },
    })((_: Request, _event: unknown) => new Response('hello'))
    expect((await handler(request(), event)).status).toBe(200)
    backgroundFrom([event])(Promise.resolve())
    expect(kept.length).toBeGreaterThan(0)
  })
})
