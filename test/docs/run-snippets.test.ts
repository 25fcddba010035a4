/**
 * The snippets of README.md and docs/*.md that are code, not configs: each runs as it is written, against a store, and limits what its page
 * says that it limits. Only their imports are resolved to the sources, and what the reader's own code would do is added around them.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { unstable_readConfig, unstable_startWorker } from 'wrangler'
import { warningsOf } from '../../src/config/check/warnings.ts'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { startTestStore, type TestStore } from '../../src/node/testing.ts'
import { bundleOptions } from '../../src/node/worker-bundle.ts'
import { addressOfApp, closeApps } from '../support/express.ts'
import { sign, signingKey, startKeyServer } from '../support/key-server.ts'
import { listen } from '../support/listen.ts'
import { startOrigin, type TestOrigin } from '../support/origin.ts'
import { type Block, blocksOf, blockWith, isConfig, PAGES, ROOT, readPage } from '../support/pages.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { bundleForWorkerd, writeModules } from '../support/snippet-modules.ts'

const README_EXPRESS = blockWith('README.md', 'expressGuard(')
const README_HEADERS = blockWith('README.md', 'ratelimit-policy: "minute"', 'http')
const README_LIMITER = blockWith('README.md', 'createLimiter(')
const GUARD = blockWith('docs/guard.md', 'export default { fetch: ')
const GUARD_CONFIG = blockWith('docs/guard.md', 'export default defineConfig(')
const GUARD_EXPRESS = blockWith('docs/guard.md', "from 'express'")
const GUARD_TESTS = blockWith('docs/guard.md', 'startTestStore(')
const HONO = blockWith('docs/guard.md', "from 'sluicegate/hono'")
const LIMITS_CONFIG = blockWith('docs/limits-by-name.md', 'export default defineConfig(')
const LIMITS_WORKER = blockWith('docs/limits-by-name.md', "from 'cloudflare:workers'")
const LIMITS_PROCESS = blockWith('docs/limits-by-name.md', 'limiter.acquire(')
const LIMITS_NUMBERS = blockWith('docs/limits-by-name.md', "limiter.limit('tenant'")
const LIMITS_QUEUES = blockWith('docs/limits-by-name.md', 'message.retry(')
const LIMITS_BULLMQ = blockWith('docs/limits-by-name.md', 'moveToDelayed(')
const CLIENT = blockWith('docs/client.md', 'instanceof LimitError')
const CLIENT_LIMITER = blockWith('docs/client.md', 'createLimiter(config)')
const PAUSE_CONFIG = blockWith('docs/background-work.md', 'export default defineConfig(')
const PAUSE = blockWith('docs/background-work.md', 'limiter.pause(')
const HONO_AFTER = blockWith('docs/migrating.md', "from 'sluicegate/hono'")
const EXPRESS_BEFORE = blockWith('docs/migrating.md', "from 'express-rate-limit'")
const FLEXIBLE_BEFORE = blockWith('docs/migrating.md', "from 'rate-limiter-flexible'")
const FLEXIBLE_AFTER = blockWith('docs/migrating.md', '{ login: [')
const UPSTASH_BEFORE = blockWith('docs/migrating.md', "from '@upstash/ratelimit'")
const UPSTASH_AFTER = blockWith('docs/migrating.md', 'createLimiter(config)')
const HOOKS = blockWith('docs/hooks.md', 'export default defineConfig(')
const BINDING_CONFIG = blockWith('docs/binding.md', 'export default defineConfig(')
const BINDING_LIMITS = blockWith('docs/binding.md', 'limitsEntrypoint(config)')
const BINDING_TOML = blockWith('docs/binding.md', '[[services]]', 'toml')
const BINDING_UNITS = blockWith('docs/binding.md', 'using units')
const BINDING_REFUND = blockWith('docs/binding.md', 'createAccount()')
const BINDING_GATEWAY = blockWith('docs/binding.md', 'built/binding.generated.ts')
const BINDING_TYPES = blockWith('docs/binding.md', 'const signups: RateLimit')
const APPLICATIONS = blockWith('docs/rules.md', "by: 'claim:azp'")
const TRUSTED_CONFIG = blockWith('docs/security.md', 'trustedWorkers')
const TRUSTED_TOML = blockWith('docs/security.md', '[[services]]', 'toml')
const TRUSTED_CALL = blockWith('docs/security.md', 'env.GATEWAY.fetch')
const ASSETS_TOML = blockWith('docs/api-reference.md', '[assets]', 'toml')
/** test/ops/admin.test.ts runs it. */
const ADMIN = blockWith('docs/operations.md', 'createAdmin(config')

const RUN: readonly string[] = [
  ADMIN,
  ...[README_EXPRESS, README_LIMITER, EXPRESS_BEFORE, FLEXIBLE_BEFORE, FLEXIBLE_AFTER],
  ...[GUARD, GUARD_EXPRESS, GUARD_TESTS, HONO, LIMITS_WORKER, LIMITS_PROCESS],
  ...[LIMITS_NUMBERS, LIMITS_QUEUES, LIMITS_BULLMQ, CLIENT, CLIENT_LIMITER, PAUSE],
  ...[HONO_AFTER, UPSTASH_BEFORE, UPSTASH_AFTER, BINDING_LIMITS, BINDING_UNITS, BINDING_REFUND],
  ...[BINDING_GATEWAY, BINDING_TYPES, TRUSTED_CALL, BINDING_TOML, TRUSTED_TOML, ASSETS_TOML],
]
/** hono-rate-limiter is not a dependency of this repository, so its code is only compiled (snippet-types.test.ts). */
const isOfAnotherLibrary = ({ code }: Block) => code.includes("from 'hono-rate-limiter'")

it('every snippet runs here, or is a config', () => {
  const code = PAGES.flatMap(blocksOf).filter(({ language }) => ['ts', 'toml'].includes(language))
  const others = code.filter(block => !isConfig(block) && !RUN.includes(block.code))
  expect(others.filter(block => !isOfAnotherLibrary(block))).toEqual([])
  expect(others).toHaveLength(1)
})

let directory: string
let store: TestStore
let redis: TestRedis
beforeAll(async () => {
  redis = await startRedis()
  directory = mkdtempSync(join(tmpdir(), 'sluice-snippets-'))
  store = await startTestStore()
})
afterAll(async () => {
  await store?.close()
  await redis?.close()
  rmSync(directory, { recursive: true, force: true })
})
beforeEach(async () => {
  await store.clear()
  await redis.connection.send(['FLUSHALL'])
})

let count = 0
/** Writes the files to a folder of their own. @returns the folder */
function write(files: Record<string, string>): string {
  const folder = join(directory, String(count++))
  writeModules(folder, files)
  return folder
}

/** Puts the code from a line on into a function, which returns some of its variables: what a handler does with each request. */
function inFunction(code: string, line: string, head: string, result: string): string {
  const [before, after] = code.split(line)
  if (after === undefined) throw new Error(`There is no ${line} in: ${code}`)
  return `${before}\nexport async function ${head} {\n${line}${after}\nreturn ${result}\n}\n`
}

function without(code: string, text: string | RegExp): string {
  const rest = code.replace(text, '')
  expect(rest).not.toBe(code)
  return rest
}

const numberIn = (code: string, name: string) => Number(new RegExp(`\\b${name}: ([\\d_]+)`).exec(code)![1])

/** Asks until a request is not admitted. @returns how many were admitted, and the reply that is not a 200 */
async function askUntilRefused(ask: () => Promise<Response>) {
  for (let admitted = 0; admitted < 1000; admitted++) {
    const reply = await ask()
    if (reply.status !== 200) return { admitted, reply }
    await reply.body?.cancel()
  }
  throw new Error('No request is refused.')
}

/** The budget may refill while the requests are sent, so more than `limit` can be admitted, but never fewer. */
async function expectLimit(limit: number, ask: () => Promise<Response>) {
  const { admitted, reply } = await askUntilRefused(ask)
  expect(reply.status).toBe(429)
  expect(admitted).toBeGreaterThanOrEqual(limit)
  expect(Number(reply.headers.get('retry-after'))).toBeGreaterThan(0)
}

/** What the config of docs/guard.md does, on each platform. */
async function expectGuarded(ask: (headers: Record<string, string>) => Promise<Response>, stranger: unknown) {
  const key = await store.createKey('acme', 'pro')
  const reply = await ask({ 'x-api-key': key })
  expect([reply.status, await reply.json()]).toEqual([200, expect.objectContaining({ hello: 'acme' })])
  expect(reply.headers.get('ratelimit-policy')).toContain('"consumer";q=1000')
  expect(await (await ask({})).json()).toEqual(stranger)
  await expectLimit(numberIn(GUARD_CONFIG, 'limit') - 1, () => ask({}))
  expect((await ask({ 'x-api-key': 'slk_acme_wrong' })).status).toBe(401)
}

describe('the snippets work on Node', () => {
  beforeEach(() => {
    for (const [name, value] of Object.entries(store.env)) vi.stubEnv(name, value as string)
    // Refused requests and lost stores are logged.
    for (const name of ['log', 'info', 'warn', 'error'] as const)
      vi.spyOn(console, name).mockImplementation(() => {})
  })
  afterEach(closeApps)

  const importFrom = (files: Record<string, string>, file = Object.keys(files)[0]!) =>
    import(join(write(files), file))

  /** Serves an Express app. @returns a function that sends a request to it */
  async function serve(files: Record<string, string>) {
    await importFrom(files)
    const url = await addressOfApp()
    return (headers: Record<string, string> = {}) => fetch(url, { headers })
  }

  /** The code with the Redis of these tests as that of the app. */
  const onOwnRedis = (code: string, url = redis.url) => {
    expect(code).toContain('new Redis()')
    return code.replace('new Redis()', `new Redis(${JSON.stringify(url)}, { lazyConnect: true })`)
  }
  /** Without the variables of another store. */
  const unsetVariables = () => {
    for (const name of Object.keys(store.env)) vi.stubEnv(name, undefined)
  }

  describe('README.md, in an Express app', () => {
    /** What has signed in by the time that the second snippet runs. */
    const LOGIN = `app.use((req, res, next) => {
      req.user = { id: req.headers['x-user'] }
      next()
    })`
    const [before, after] = README_EXPRESS.split("app.get('/'")
    const appOn = (url: string) => ({
      'app.ts': `${onOwnRedis(before!.replace('limit: 100', 'limit: 100_000'), url)}\n${LOGIN}\n${README_LIMITER}\napp.get('/'${after}`,
    })
    beforeEach(unsetVariables)

    it('limits each address, with the headers of the page', async () => {
      const ask = await serve({ 'app.ts': onOwnRedis(README_EXPRESS) })
      const { status, headers } = await ask()
      const [line, ...lines] = README_HEADERS.trim().split('\n')
      expect(line).toBe(`HTTP/1.1 ${status} OK`)
      for (const [name, value] of lines.map(text => text.split(': '))) expect(headers.get(name!)).toBe(value)
      await expectLimit(numberIn(README_EXPRESS, 'limit') - 1, ask)
    })

    it('limits each user', async () => {
      const ask = await serve(appOn(redis.url))
      await expectLimit(numberIn(README_LIMITER, 'limit'), () => ask({ 'x-user': 'alice' }))
      expect((await ask({ 'x-user': 'bob' })).status).toBe(200)
    })

    it('goes on while Redis is away', async () => {
      const ask = await serve(appOn('redis://127.0.0.1:1'))
      await expectLimit(numberIn(README_LIMITER, 'limit'), () => ask({ 'x-user': 'alice' }))
    })
  })

  it('docs/guard.md, in Express', async () => {
    const ask = await serve({ 'app.ts': GUARD_EXPRESS, 'sluice.config.ts': GUARD_CONFIG })
    await expectGuarded(ask, { hello: 'stranger' })
  })

  it('docs/guard.md, in tests', async () => {
    const own = await importFrom({
      'test.ts': `import { config, handle } from './worker.ts'\n${GUARD_TESTS}\nexport { handler, key, store }`,
      'worker.ts': `${GUARD}\nexport { config, handle }`,
      'sluice.config.ts': GUARD_CONFIG,
    })
    try {
      const request = (headers: Record<string, string>) => new Request('http://app.test/', { headers })
      const reply = await own.handler(request({ 'x-api-key': own.key }))
      expect([reply.status, await reply.json()]).toEqual([200, { hello: 'acme' }])
      expect(reply.headers.get('ratelimit-policy')).toContain('"consumer";q=1000')
      await expectLimit(numberIn(GUARD_CONFIG, 'limit'), () => own.handler(request({})))
      await own.store.clear()
      expect((await own.handler(request({ 'x-api-key': own.key }))).status).toBe(401)
    } finally {
      await own.store.close()
    }
  })

  describe('docs/guard.md, on a platform of its table', () => {
    /** The code that the table has for a platform. */
    const codeFor = (platform: string) =>
      new RegExp(`^\\| ${platform} \\| \`([^|]*?)\`[ ,|]`, 'm').exec(readPage('docs/guard.md'))![1]!
    const files = (code: string) => ({
      'app.ts': code,
      'worker.ts': `${GUARD}\nexport { config, handle }`,
      'sluice.config.ts': GUARD_CONFIG,
    })
    const imports = `import { guard } from 'sluicegate/guard'\nimport { config, handle } from './worker.ts'`

    it('Node', async () => {
      const { server } = await importFrom(
        files(`${imports}
          import { nodeListener } from 'sluicegate/express'
          import { createServer } from 'node:http'
          export const server = ${codeFor('Node')}`),
      )
      await listen(server, 0)
      try {
        const url = `http://127.0.0.1:${server.address().port}/`
        await expectGuarded(headers => fetch(url, { headers }), { hello: 'stranger' })
      } finally {
        server.closeAllConnections()
        await new Promise(resolve => server.close(resolve))
      }
    })

    it.each([
      ['Vercel', 'GET', {}],
      ['Netlify', 'default', { ip: '192.0.2.9', waitUntil() {} }],
    ])('%s, as it calls the function', async (platform, name, context) => {
      const { [name]: handler } = await importFrom(files(`${imports}\n${codeFor(platform)}`))
      const ask = (headers: Record<string, string>) =>
        handler(new Request('http://function.test/', { headers }), context)
      await expectGuarded(ask, { hello: 'stranger' })
    })
  })

  it('docs/guard.md, in Hono', async () => {
    const { default: app } = await importFrom({ 'app.ts': HONO, 'sluice.config.ts': GUARD_CONFIG })
    const left = numberIn(GUARD_CONFIG, 'limit') - 1
    await expectGuarded(headers => app.request('/api/hello', { headers }), { left })
  })

  it('docs/migrating.md, from hono-rate-limiter', async () => {
    const route = "app.get('/api/hello', c => c.text('hello'))\nexport default app"
    const { default: app } = await importFrom({ 'app.ts': `${HONO_AFTER}\n${route}` })
    await expectLimit(numberIn(HONO_AFTER, 'limit'), () => app.request('/api/hello'))
    const code = without(HONO_AFTER, /^ *credentials: .*\n/m)
    const { default: other } = await importFrom({ 'app.ts': `${code}\n${route}` })
    expect((await other.request('/api/hello')).status).toBe(401)
  })

  it('docs/migrating.md, from express-rate-limit, before', async () => {
    const route = "app.get('/', (req, res) => res.json({}))\napp.listen(3000)"
    const ask = await serve({ 'app.ts': `${onOwnRedis(EXPRESS_BEFORE)}\n${route}` })
    await expectLimit(numberIn(EXPRESS_BEFORE, 'limit'), ask)
  })

  it.each([
    ['before', FLEXIBLE_BEFORE, 'const allowed', /points: 5, duration: 60/],
    ['after', FLEXIBLE_AFTER, 'const { allowed', / limit: 5, period: '1m'/],
  ])('docs/migrating.md, from rate-limiter-flexible, %s', async (_, code, line, limit) => {
    expect(code).toMatch(limit)
    unsetVariables()
    const { handle } = await importFrom({
      'limits.ts': inFunction(onOwnRedis(code), line, 'handle(userId: string)', 'allowed'),
    })
    const allowed = await Promise.all([1, 2, 3, 4, 5].map(() => handle('alice')))
    expect(allowed).toEqual([true, true, true, true, true])
    expect([await handle('alice'), await handle('bob')]).toEqual([false, true])
  })

  it.each([
    ['before', UPSTASH_BEFORE, 'const { success', 'success', /\(10, /],
    ['after', UPSTASH_AFTER, 'const { allowed', 'allowed', / limit: 10, /],
  ])('docs/migrating.md, from @upstash/ratelimit, %s', async (_, code, line, result, limit) => {
    expect(code).toMatch(limit)
    const log = vi.mocked(console.log)
    const { handle } = await importFrom({
      'limits.ts': inFunction(code, line, 'handle(userId: string)', result),
    })
    let admitted = 0
    while (await handle('alice')) admitted += 1
    // The sliding window moves on, so a slow machine gets some units back.
    expect(admitted).toBeGreaterThanOrEqual(10)
    expect(log.mock.calls).toEqual([[expect.stringMatching(/^Try again in [1-9]\d* ms\.$/)]])
    expect(await handle('bob')).toBe(true)
  })

  it('docs/limits-by-name.md, with numbers at the call: admits as many as the call says', async () => {
    const start = "import { createLimiter } from 'sluicegate'\nimport config from './sluice.config.ts'"
    const { allowed, limiter, numbers } = await importFrom({
      'numbers.ts': `${start}\nexport const limiter = createLimiter(config)\n${LIMITS_NUMBERS}export { allowed, numbers }`,
      'sluice.config.ts': LIMITS_CONFIG,
    })
    expect(allowed).toBe(true)
    const { rules } = await limiter.peek('tenant', { tenant: '42' }, { numbers })
    expect(rules).toMatchObject([{ name: 'quota', limit: 300 }])
  })

  it('docs/limits-by-name.md, in a process: waits for a free unit, and gives it back', async () => {
    const log = vi.mocked(console.log)
    const files = { 'sluice.config.ts': LIMITS_CONFIG, 'limits.ts': LIMITS_PROCESS }
    const other = "import { createLimiter } from 'sluicegate'\nimport config from './sluice.config.ts'"
    const { limiter } = await importFrom({
      'others.ts': `${other}\nexport const limiter = createLimiter(config)`,
      ...files,
    })
    const account = { account: '42' }
    const held = await Promise.all([1, 2, 3, 4, 5].map(() => limiter.acquire('exports', account)))
    expect(held.every(({ allowed }) => allowed)).toBe(true)
    const fetched = vi.spyOn(globalThis, 'fetch')
    const process = importFrom(files, 'limits.ts')
    await vi.waitFor(() => expect(fetched.mock.calls.length).toBeGreaterThan(2), { timeout: 20_000 })
    expect(log).not.toHaveBeenCalled()
    for (const units of held) units.release()
    await process
    expect(log.mock.calls).toEqual([['exporting']])
    await vi.waitFor(async () => {
      const { rules } = await limiter.peek('exports', account)
      expect(rules[0].remaining).toBe(5)
    }, PATIENT_MS)
  })

  describe('docs/client.md', () => {
    const platformFetch = fetch
    function answerFor(origin: string, answer: () => Response): string[] {
      const asked: string[] = []
      vi.stubGlobal('fetch', async (...args: Parameters<typeof fetch>) => {
        if (!String(args[0]).startsWith(origin)) return platformFetch(...args)
        asked.push(String(args[0]))
        return answer()
      })
      return asked
    }

    it('prints the status of a reply, and when to come back if that is too long to wait', async () => {
      answerFor('https://api.example.com', () => new Response())
      await importFrom({ 'admitted.ts': CLIENT })
      expect(console.log).toHaveBeenLastCalledWith(200)
      const headers = { ratelimit: '"daily";r=0;t=86400', 'retry-after': '86400' }
      answerFor('https://api.example.com', () => new Response(null, { status: 429, headers }))
      await importFrom({ 'refused.ts': CLIENT })
      expect(console.log).toHaveBeenLastCalledWith(expect.stringMatching(/^daily: come back at 20\d\d-.*Z$/))
    })

    it('with a limiter: spends from its limit', async () => {
      const asked = answerFor('https://example.zendesk.com', () => new Response())
      await importFrom({ 'client.ts': CLIENT_LIMITER, 'sluice.config.ts': LIMITS_CONFIG })
      expect(asked).toEqual(['https://example.zendesk.com/api/v2/tickets.json'])
      const { createLimiter } = await import('../../src/set-ups/sluice.ts')
      const { default: config } = await importFrom({ 'sluice.config.ts': LIMITS_CONFIG })
      const { rules } = await createLimiter(config).peek('zendesk', { account: '42' })
      expect(rules.find(({ name }) => name === 'account-day')).toMatchObject({ remaining: 4999 })
    })
  })

  it('docs/background-work.md: a limit is paused for as long as a third party says', async () => {
    const { run, limiter } = await importFrom({
      'worker.ts': `import { createLimiter } from 'sluicegate'
        import config from './sluice.config.ts'
        export const limiter = createLimiter(config)
        export const run = async (fetch, url) => { ${PAUSE} }`,
      'sluice.config.ts': PAUSE_CONFIG,
    })
    const account = { account: '42' }
    await run(async () => new Response())
    expect((await limiter.limit('zendesk', account)).allowed).toBe(true)
    await run(async () => new Response(null, { status: 429, headers: { 'retry-after': '30' } }))
    expect(await limiter.limit('zendesk', account)).toMatchObject({
      allowed: false,
      pausedUntil: expect.any(Number),
    })
  })

  describe('docs/limits-by-name.md, in a queue consumer', () => {
    const consumerWith = async (code: string, head: string) =>
      (
        await importFrom({
          'consumer.ts': `import { createLimiter } from 'sluicegate'
            import { DelayedError, UnrecoverableError } from 'bullmq'
            import config from './sluice.config.ts'
            const limiter = createLimiter(config)
            export async function consume(${head}, callZendesk) {\n${code}\n}`,
          'sluice.config.ts': LIMITS_CONFIG,
        })
      ).consume
    const account = { account: '42' }
    const thirty = <T>(make: () => T) => Array.from({ length: 30 }, make)

    it('of Cloudflare: calls, or retries when the limit allows it', async () => {
      const consume = await consumerWith(LIMITS_QUEUES, 'message')
      const call = vi.fn()
      const messages = thirty(() => ({ body: account, ack: vi.fn(), retry: vi.fn() }))
      await Promise.all(messages.map(message => consume(message, call)))
      const retries = messages.flatMap(({ retry }) => retry.mock.calls)
      expect(retries.length).toBeGreaterThan(0)
      expect(retries).toEqual(retries.map(() => [{ delaySeconds: 1 }]))
      expect(messages.flatMap(({ ack }) => ack.mock.calls)).toHaveLength(call.mock.calls.length)
      expect(call.mock.calls.length + retries.length).toBe(30)
    })

    it('of BullMQ: calls, or moves the job to a time when the limit allows it', async () => {
      const consume = await consumerWith(LIMITS_BULLMQ, 'job, token')
      const call = vi.fn()
      const jobs = thirty(() => ({ data: account, moveToDelayed: vi.fn() }))
      const startedAt = Date.now()
      const results = await Promise.allSettled(jobs.map(job => consume(job, 'a token', call)))
      const moves = jobs.flatMap(({ moveToDelayed }) => moveToDelayed.mock.calls)
      expect(moves.length).toBeGreaterThan(0)
      for (const [until, token] of moves) {
        expect(until).toBeGreaterThan(startedAt)
        expect(token).toBe('a token')
      }
      const reasons = results.flatMap(result => (result.status === 'rejected' ? [result.reason.name] : []))
      expect(reasons).toEqual(moves.map(() => 'DelayedError'))
      expect(call.mock.calls.length + moves.length).toBe(30)
    })
  })

  describe('docs/hooks.md', () => {
    const guarded = async (more: Record<string, unknown> = {}) => {
      const SESSIONS = { get: async (id: string) => (id === 's-1' ? 'alice' : null) }
      const { default: create } = await importFrom({
        'guard.ts': `import { guard } from 'sluicegate/guard'
          import config from './sluice.config.ts'
          export default env => guard(config, { env })(request => Response.json(request.method))`,
        'sluice.config.ts': HOOKS,
      })
      const handler = create({ ...store.env, SESSIONS, ...more })
      return (init: RequestInit = {}): Promise<Response> => handler(new Request('http://app.test/', init))
    }
    const ALICE = { headers: { cookie: 'session=s-1' } }

    it('identifies a caller, gives it a plan, and charges its requests', async () => {
      const ask = await guarded()
      const reply = await ask(ALICE)
      expect(reply.headers.get('ratelimit-policy')).toBe('"minute";q=1200;w=60')
      expect(reply.headers.get('ratelimit')).toMatch(/^"minute";r=1199;/)
      const charged = await ask({ ...ALICE, method: 'POST' })
      expect(charged.headers.get('ratelimit')).toMatch(/^"minute";r=119[45];/)
    })

    it('limits other callers by address, and refuses them with a reply of its own', async () => {
      const ask = await guarded()
      expect((await ask({ headers: { cookie: 'session=s-2' } })).headers.get('ratelimit-policy')).toContain(
        '"address";q=60',
      )
      const { reply } = await askUntilRefused(() => ask({ method: 'POST' }))
      const wait = Number(reply.headers.get('retry-after'))
      expect([reply.status, await reply.json()]).toEqual([429, { error: 'slow down', wait }])
    })

    it('does not limit requests that are skipped', async () => {
      const reply = await (await guarded({ LOAD_TEST: 'on' }))(ALICE)
      expect([reply.status, reply.headers.get('ratelimit')]).toEqual([200, null])
    })
  })

  describe('docs/rules.md, limits of applications', () => {
    /** Admits two requests of each application, and three of each other caller, so that a test needs few requests. */
    const limits = APPLICATIONS.replaceAll('limit: 1000,', 'limit: 2,').replace('limit: 100,', 'limit: 3,')

    async function guarded() {
      const key = await signingKey('RS256', 'first')
      const issuer = await startKeyServer(key.jwk)
      onTestFinished(() => issuer.close())
      const config = limits.replace('https://login.example.com/.well-known/jwks.json', issuer.url)
      const { handler } = await importFrom({
        'guard.ts': `import { callerOf, guard } from 'sluicegate/guard'
          import config from './sluice.config.ts'
          export const handler = guard(config)(request => new Response(callerOf(request).consumer))`,
        'sluice.config.ts': `import { defineConfig, jwt } from 'sluicegate'\nexport default defineConfig({\n${config}\n})`,
      })
      const tokenOf = (sub: string, azp: string) => {
        const claims = {
          iss: 'https://login.example.com/',
          aud: 'https://api.example.com',
          exp: 4e9,
          sub,
          azp,
        }
        return sign(claims, key)
      }
      /** @returns the statuses of the replies to this many equal requests */
      const ask = async (count: number, headers: Record<string, string>) => {
        const statuses: number[] = []
        for (let i = 0; i < count; i++)
          statuses.push((await handler(new Request('http://app.test/', { headers }))).status)
        return statuses
      }
      return { ask, tokenOf }
    }

    it('has no mistake, and no warning', async () => {
      const file = join(
        write({
          'sluice.config.ts': `import { defineConfig, jwt } from 'sluicegate'\nexport default defineConfig({\norigin: 'route',\n${APPLICATIONS}\n})`,
        }),
        'sluice.config.ts',
      )
      const { input } = await loadConfig(file)
      expect(warningsOf(input)).toEqual([])
    })

    it('counts all tokens of an OAuth client together, and those of another one separately', async () => {
      const { ask, tokenOf } = await guarded()
      const bearer = async (sub: string, azp: string) => ({
        authorization: `Bearer ${await tokenOf(sub, azp)}`,
      })
      expect(await ask(1, await bearer('alice', 'web'))).toEqual([200])
      expect(await ask(1, await bearer('bob', 'web'))).toEqual([200])
      expect(await ask(1, await bearer('carol', 'web'))).toEqual([429])
      expect(await ask(3, await bearer('alice', 'mobile'))).toEqual([200, 200, 429])
      // An unsigned claim is worth nothing.
      const [head, , signature] = (await tokenOf('mallory', 'web')).split('.')
      const forged = Buffer.from('{"sub":"mallory","azp":"other","exp":4000000000}').toString('base64url')
      expect(await ask(1, { authorization: `Bearer ${head}.${forged}.${signature}` })).toEqual([401])
    })

    it('counts by the header only what the proxy sends', async () => {
      const { ask, tokenOf } = await guarded()
      const proxy = { 'x-api-key': await store.createKey('edge', 'proxy') }
      const app = (id: string) => ({ 'x-client-id': id })
      expect(await ask(1, { ...proxy, ...app('a') })).toEqual([200])
      // Forged headers: no key, a wrong key, the key of another caller, a token.
      for (const credential of [{}, { 'x-api-key': 'slk_edge_wrong' }])
        expect(await ask(2, { ...credential, ...app('a') })).toEqual([401, 401])
      const other = { 'x-api-key': await store.createKey('acme', 'free') }
      const statuses = []
      for (const id of ['a', 'b', 'c', 'd']) statuses.push(...(await ask(1, { ...other, ...app(id) })))
      expect(statuses).toEqual([200, 200, 200, 429])
      const token = { authorization: `Bearer ${await tokenOf('mallory', 'web')}` }
      expect(await ask(1, { ...token, ...app('a') })).toEqual([200])
      // They have spent nothing of the applications behind the proxy.
      expect(await ask(2, { ...proxy, ...app('a') })).toEqual([200, 429])
      expect(await ask(3, { ...proxy, ...app('b') })).toEqual([200, 200, 429])
    })
  })
})

interface Service {
  binding: string
  service: string
  entrypoint?: string
  props?: Record<string, unknown>
}

it('the assets of docs/api-reference.md are served without the Worker', async () => {
  const folder = write({
    'wrangler.toml': `name = "any"\nmain = "index.ts"\ncompatibility_date = "2026-10-01"\n${ASSETS_TOML}`,
    'index.ts': "export default { fetch: () => new Response('from the Worker') }",
    'public/_sluice/v1/openapi.json': '{}',
  })
  const dev = { logLevel: 'none', watch: false, inspector: false, server: { port: 0 } } as const
  const worker = await unstable_startWorker({ config: join(folder, 'wrangler.toml'), dev })
  const get = async (path: string) => (await worker.fetch(`http://a.test/${path}`)).text()
  expect(await get('_sluice/v1/openapi.json')).toBe('{}')
  expect(await get('_sluice/v1/keys')).toBe('from the Worker')
  await worker.dispose()
})

/** The bindings of a wrangler.toml that has only these lines. */
function servicesOf(toml: string): Service[] {
  const content = `name = "caller"\ncompatibility_date = "2026-10-01"\n${toml}`
  return unstable_readConfig({ config: join(write({ 'wrangler.toml': content }), 'wrangler.toml') }).services
}

describe('the snippets work in workerd', () => {
  const TOML = unstable_readConfig({ config: join(ROOT, 'wrangler.toml') })
  let origin: TestOrigin
  let miniflare: Miniflare

  beforeAll(async () => {
    origin = await startOrigin()
    const worker = async (name: string, files: Record<string, string>, services: Service[] = []) => {
      const script = await bundleForWorkerd(join(write(files), Object.keys(files)[0]!))
      return { ...workerOf(name, script), serviceBindings: toBindings(services) }
    }
    const limits = servicesOf(BINDING_TOML)
    miniflare = new Miniflare(
      convertV4MiniflareOptions({
        workers: await Promise.all([
          worker('guard', { 'index.ts': GUARD, 'sluice.config.ts': GUARD_CONFIG }),
          worker('messages', MESSAGES),
          worker('limits', { 'src/index.ts': BINDING_LIMITS, 'sluice.config.ts': BINDING_CONFIG }),
          worker('caller', { 'index.ts': CALLER }, limits),
          builtGateway('built').then(script => workerOf('built', script)),
          worker('caller-of-built', { 'index.ts': CALLER }, bindTo('built', limits)),
          worker(TOML.name!, TRUSTING_GATEWAY),
          worker('storefront', { 'index.ts': STOREFRONT }, servicesOf(TRUSTED_TOML)),
          worker('stranger', { 'index.ts': STOREFRONT }, withoutProps(servicesOf(TRUSTED_TOML))),
        ]),
        cf: false,
        log: new Log(LogLevel.NONE),
        handleStructuredLogs: () => {},
        // The types lack the props of a binding.
      } as unknown as Parameters<typeof convertV4MiniflareOptions>[0]),
    )
    await miniflare.ready
  })
  afterAll(async () => {
    await miniflare?.dispose()
    await origin?.close()
  })

  const workerOf = (name: string, script: string) => ({
    ...{ name, script, modules: true, routes: [`${name}.example/*`] },
    ...{ compatibilityDate: TOML.compatibility_date!, compatibilityFlags: TOML.compatibility_flags },
    bindings: { ...store.env, ORIGIN_URL: origin.url },
  })

  const toBindings = (services: Service[]) =>
    Object.fromEntries(
      services.map(({ binding, service, entrypoint, props }) => [
        binding,
        { name: service, ...(entrypoint && { entrypoint }), ...(props && { props: { ...props } }) },
      ]),
    )
  const bindTo = (service: string, services: Service[]) => services.map(each => ({ ...each, service }))
  const withoutProps = (services: Service[]) => services.map(({ props: _, ...each }) => each)

  /** @param name of a Worker */
  async function ask(name: string, path = '/', headers: Record<string, string> = {}): Promise<Response> {
    const reply = await miniflare.dispatchFetch(`https://${name}.example${path}`, { headers })
    return new Response(await reply.text(), { status: reply.status, headers: [...reply.headers] })
  }
  const json = async (...of: Parameters<typeof ask>) => (await ask(...of)).json()

  it('docs/guard.md', async () => {
    await expectGuarded(headers => ask('guard', '/', headers), { hello: 'stranger' })
  })

  const MESSAGES = {
    'src/index.ts': `import { limitMessages } from './messages.ts'
      const userOf = request => new URL(request.url).pathname
      export default {
        fetch: async (request, env) => (await limitMessages(userOf(request), env)) ?? new Response('Sent.'),
      }`,
    'src/messages.ts': LIMITS_WORKER,
    'sluice.config.ts': LIMITS_CONFIG,
  }

  it('docs/limits-by-name.md, by user id', async () => {
    await expectLimit(20, () => ask('messages', '/alice'))
    expect((await ask('messages', '/bob')).status).toBe(200)
  })

  /** The calls in the table of docs/binding.md, without those of a unit, which test/set-ups/rpc.test.ts makes with such a limit. */
  const CALLS = [...readPage('docs/binding.md').matchAll(/^\| `(env\.[^`]+)` \|/gm)]
    .map(([, call]) => call!)
    .filter(call => !/\.(reserve|settle)\(/.test(call))

  /**
   * The Worker that calls the limits of docs/binding.md. A request can say how long it waits for a free unit: a short time if no unit will
   * be free, so that the test takes less time.
   */
  const CALLER = `export default {
    async fetch(request, env) {
      const { pathname, searchParams } = new URL(request.url)
      const address = searchParams.get('address')
      if (pathname === '/units') {
        ${BINDING_UNITS.replace('timeoutMs: 5000', "timeoutMs: Number(searchParams.get('wait'))")}
        return new Response('Exported.')
      }
      if (pathname === '/refund') {
        const createAccount = async () => searchParams.has('works')
        ${BINDING_REFUND}
        return Response.json(allowed)
      }
      if (pathname === '/table') {
        const [key, delta, account, timeoutMs] = [address, 1, '7', ${PATIENT_MS}]
        const { receipt } = await env.LIMITS.limit('signups', { address })
        return Response.json([${CALLS.map(call => `await (await ${call}).${/\{ key/.test(call) ? 'success' : 'allowed'}`)}])
      }
      ${BINDING_TYPES}
      return Response.json({ success, allowed })
    },
  }`

  /** The gateway of this repository with the limits of docs/binding.md, as `npx sluicegate build` makes it. */
  async function builtGateway(name: string): Promise<string> {
    const files = {
      'sluice.config.ts':
        "import own from './own.ts'\nimport shipped from './shipped.ts'\nexport default { ...shipped, ...own }",
      'own.ts': BINDING_CONFIG,
      'shipped.ts': readPage('sluice.config.ts').replace('./src/config/define.ts', 'sluicegate'),
    }
    const config = join(directory, name, 'sluice.config.ts')
    writeModules(join(directory, name), files)
    const { entryPoints: _, ...options } = bundleOptions(config, () => loadConfig(config))
    const stdin = { contents: BINDING_GATEWAY, resolveDir: join(ROOT, 'src'), loader: 'ts' as const }
    const { outputFiles } = await build({ ...options, stdin })
    return outputFiles![0]!.text
  }

  describe.each([
    ['caller', 'limitsEntrypoint(config)'],
    ['caller-of-built', 'the class that is built with the gateway'],
  ])('docs/binding.md, %s, with %s', caller => {
    const account = { account: '42' }

    it('waits for a unit, which is free again after the request', async () => {
      expect(BINDING_UNITS).toContain('timeoutMs: 5000')
      for (let i = 0; i < 4; i++)
        expect(await (await ask(caller, `/units?wait=${PATIENT_MS}`)).text()).toBe('Exported.')
      const { limiter } = await import(
        join(
          write({
            'limiter.ts': `import { createLimiter } from 'sluicegate'
              import config from './sluice.config.ts'
              export const limiter = createLimiter(config, { env: ${JSON.stringify(store.env)} })`,
            'sluice.config.ts': BINDING_CONFIG,
          }),
          'limiter.ts',
        )
      )
      const held = [await limiter.acquire('exports', account), await limiter.acquire('exports', account)]
      expect(held.map(({ allowed }) => allowed)).toEqual([true, true])
      const reply = await ask(caller, '/units?wait=50')
      expect([reply.status, await reply.text()]).toEqual([429, 'Two exports are running.'])
      for (const units of held) units.release()
    })

    it('gives back the unit of an account that was not created', async () => {
      const limit = numberIn(BINDING_CONFIG, 'limit')
      for (let i = 0; i < 2 * limit; i++) expect(await json(caller, `/refund?address=a-${caller}`)).toBe(true)
      for (let i = 0; i < limit; i++)
        expect(await json(caller, `/refund?works&address=a-${caller}`)).toBe(true)
      expect(await json(caller, `/refund?works&address=a-${caller}`)).toBe(false)
    })

    it('decides by key, as a binding of Cloudflare does, and by name, with a cost', async () => {
      const calls = [await json(caller, `/?address=b-${caller}`), await json(caller, `/?address=b-${caller}`)]
      expect(calls).toEqual([
        { success: true, allowed: true },
        { success: true, allowed: false },
      ])
    })
  })

  it('docs/binding.md: the calls in the table work', async () => {
    expect(CALLS).toHaveLength(5)
    expect(await json('caller', '/table?address=c')).toEqual(Array(5).fill(true))
  })

  it('docs/binding.md: the gateway still limits requests', async () => {
    expect((await ask('built')).status).toBe(401)
    const key = await store.createKey('acme')
    expect((await ask('built', '/', { 'x-api-key': key })).headers.get('ratelimit')).toContain(
      '"consumer-hour";r=239',
    )
  })

  it('docs/binding.md binds as examples/binding does', () => {
    const { services } = unstable_readConfig({ config: join(ROOT, 'examples/binding/caller/wrangler.toml') })
    const sorted = (all: Service[]) => all.toSorted((a, b) => a.binding.localeCompare(b.binding))
    expect(sorted(servicesOf(BINDING_TOML))).toEqual(sorted(services!))
  })

  const TRUSTING_GATEWAY = {
    'index.ts':
      "import { gateway } from 'sluicegate/worker'\nimport config from './sluice.config.ts'\nexport default gateway(config)",
    'sluice.config.ts': `import { defineConfig } from 'sluicegate'
      export default defineConfig({
        ${TRUSTED_CONFIG}
        origin: 'https://api.example.com',
        credentials: { accept: ['anonymous'] },
        rules: [{ name: 'address', by: 'address', algorithm: 'fixed-window', limit: 2, period: '300d' }],
      })`,
  }
  const STOREFRONT = `export default { async fetch(request, env) {\n${TRUSTED_CALL}\n} }`

  it('docs/security.md: a trusted Worker names its client, and each client has its own limit', async () => {
    const from = async (worker: string, address: string) =>
      (await ask(worker, '/', { 'cf-connecting-ip': address })).status
    const statuses = []
    for (const last of [1, 1, 1, 2]) statuses.push(await from('storefront', `192.0.2.${last}`))
    expect(statuses).toEqual([200, 200, 429, 200])
    expect(origin.received.at(-1)).toMatchObject({
      url: '/orders',
      headers: { 'x-forwarded-for': '192.0.2.2' },
    })
    // Without the props, all clients count as one.
    const others = []
    for (const last of [3, 4, 5]) others.push(await from('stranger', `192.0.2.${last}`))
    expect(others).toEqual([200, 200, 429])
  })
})
