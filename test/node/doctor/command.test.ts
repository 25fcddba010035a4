/** The command `npx sluicegate doctor`: its exit codes, its document, and what it leaves behind. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../../src/node/rest-bridge/bridge.ts'
import { runInProcess } from '../../support/command-line.ts'
import { startFakeStore } from '../../support/fake-store.ts'
import { listen } from '../../support/listen.ts'
import { PATIENT_MS } from '../../support/patience.ts'
import { startRedis, type TestRedis } from '../../support/redis.ts'

const TOKEN = 'a-token-to-hide-4711'
const SLUICE = fileURLToPath(new URL('../../../src/node/cli/sluice.ts', import.meta.url))

let redis: TestRedis
let bridge: Bridge
beforeAll(async () => {
  redis = await startRedis()
  bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

const env = (url = bridge.url) => ({ UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: TOKEN })
const keys = async () => ((await redis.connection.send(['KEYS', '*'])) as Buffer[]).map(String)

describe('the command', () => {
  it('prints each check, the verdict with its fixes, and exits with 3 if there are limits', async () => {
    const { code, stdout, stderr } = await runInProcess(['doctor'], env())
    expect(stdout).toMatch(/^ok {5}store-address {4}The host is an IP address/)
    expect(stdout).toMatch(
      /^Verdict: works, with these limits:\n {2}persistence: .*\n {4}Fix: .*appendonly yes/m,
    )
    expect([code, stderr]).toEqual([3, 'It works, with limits.\n'])
    expect(await keys()).toEqual([])
  })

  it('prints one document with --json, and no token', async () => {
    const { code, stdout } = await runInProcess(['doctor', '--json'], env())
    const document = JSON.parse(stdout)
    expect(code).toBe(3)
    expect(Object.keys(document)).toEqual(['verdict', 'stopped', 'prices_of', 'checks'])
    for (const check of document.checks)
      expect(Object.keys(check)).toEqual(['name', 'verdict', 'finding', 'fix', 'measured'])
    expect(document.checks.map(({ name }: { name: string }) => name)).toEqual([
      ...['store-address', 'store-tls', 'protocol', 'permissions'],
      ...['version', 'memory', 'persistence', 'replicas', 'clock'],
      ...[
        'script-cache',
        'time-in-scripts',
        'struct',
        'arguments',
        'key-locking',
        'algorithms',
        'rules',
        'latency',
      ],
      'removal',
    ])
  })

  it.each(['--store', 'REDIS_URL'])(
    'reaches a Redis directly, by %s, and hides its password',
    async source => {
      const url = redis.url.replace(/^unix:\/\/(.*)$/, 'unix://$1?password=planted-password')
      const flags = source === '--store' ? ['--store', url] : []
      await redis.connection.send(['CONFIG', 'SET', 'requirepass', 'planted-password'])
      try {
        const environment: Record<string, string> = source === '--store' ? env() : { REDIS_URL: url }
        const { code, stdout } = await runInProcess(['doctor', '--json', ...flags], environment)
        expect(stdout).not.toContain('planted')
        const { checks } = JSON.parse(stdout)
        expect(checks.map(({ name }: { name: string }) => name)).not.toContain('key-locking')
        expect([code, await keys()]).toEqual([3, []])
      } finally {
        await redis.connection.send(['CONFIG', 'SET', 'requirepass', ''])
      }
    },
  )

  it('does not choose between two stores of the environment', async () => {
    const { code, stderr } = await runInProcess(['doctor'], { ...env(), REDIS_URL: redis.url })
    expect([code, stderr]).toEqual([2, expect.stringContaining('Two stores are set')])
  })

  it('exits with 1 if the store is not to be used', async () => {
    const wrong = { ...env(), UPSTASH_REDIS_REST_TOKEN: 'another' }
    expect(await runInProcess(['doctor'], wrong)).toMatchObject({
      ...{ code: 1, stderr: 'Do not deploy. Fix what is marked as FAULT, and run this again.\n' },
      stdout: expect.stringContaining('The store does not accept the token'),
    })
  })

  it('says what a load costs, and needs a confirmation', async () => {
    const upstash = ['--store', 'https://planted.upstash.io', '--token', TOKEN]
    const refused = await runInProcess(['doctor', '--load', '20/s', '--for', '1s', ...upstash], {})
    expect([refused.code, refused.stdout]).toEqual([2, ''])
    expect(refused.stderr).toMatch(
      /^20 decisions in 1 s take at most \d+ commands: \$0\.01 at Upstash.*\n.*Add --yes/,
    )
  })

  it.each([
    ['the bridge', () => bridge.url],
    ['a Redis that it reaches directly', () => redis.url],
  ])('makes the load, and shows no price for %s', async (_, url) => {
    const store = ['--store', url(), ...(url().startsWith('http') ? ['--token', TOKEN] : [])]
    const args = ['doctor', ...store, '--load', '20/s', '--for', '1s', '--yes', '--json']
    const { stdout, stderr } = await runInProcess(args, {})
    expect(stderr).toMatch(/^20 decisions in 1 s take at most \d+ commands\.\n/)
    const load = JSON.parse(stdout).checks.find(({ name }: { name: string }) => name === 'load')
    expect(load.measured).toMatchObject({ admitted: 20, refused: 0, errors: 0, commands: 100 })
    expect(load.measured.usd).toBeUndefined()
    expect(load.finding).not.toContain('$')
    expect(await keys()).toEqual([])
  })

  it.each([
    ['--load', '0/s'],
    ['--load', '20'],
    ['--for', '1h'],
    ['--store', 'ftp://a'],
  ])('rejects %s %s', async (...args) => {
    expect(await runInProcess(['doctor', ...args], env())).toMatchObject({ code: 2, stdout: '' })
  })
})

it('no output has a host, a token or a text of the server, whatever the server answers', async () => {
  const planted = `key sluice:{c:planted-consumer} of planted-host.example with ${TOKEN} and planted-password`
  const bodies = [
    `{"error":"ERR ${planted}"}`,
    `{"error":"WRONGPASS ${planted}"}`,
    `{"result":"${planted}"}`,
    `<html>${planted}</html>`,
  ]
  const fakes = await Promise.all([
    ...[200, 400, 500].flatMap(status =>
      bodies.map(body =>
        startFakeStore({ bridge: { url: bridge.url, token: TOKEN }, reply: { status, body } }),
      ),
    ),
    ...['INFO', 'TIME', 'EVAL', 'EVALSHA', 'EXISTS'].flatMap(named =>
      [{ error: `NOPERM ${planted}` }, { result: planted }].map(answer =>
        startFakeStore({
          bridge: { url: bridge.url, token: TOKEN },
          answer: ([name]) => (name === named ? answer : undefined),
        }),
      ),
    ),
  ])
  for (const { url, close } of fakes) {
    const { stdout, stderr } = await runInProcess(['doctor'], env(url))
    expect(stdout).toMatch(/^Verdict: /m)
    expect(stdout + stderr).not.toMatch(/planted|a-token-to-hide/)
    await close()
  }
  const gone = await runInProcess(
    ['doctor', '--store', 'https://planted-name.invalid', '--token', 'planted-token'],
    {},
  )
  expect(gone).toMatchObject({ code: 1, stdout: expect.stringContaining('does not resolve') })
  expect(gone.stdout + gone.stderr).not.toContain('planted')
})

it('no output about a gateway has its host, a key, a header or a text of its replies', async () => {
  const planted = 'planted-host.example planted-key-4711 planted-password'
  for (const status of [200, 401, 429]) {
    const server = createServer((incoming, outgoing) => {
      const health = { live: true, ready: true, store: { ok: true, latencyMs: 1, error: planted } }
      const isHealth = incoming.url!.endsWith('/health')
      const headers = {
        ...{ 'x-request-id': planted, location: `https://${planted.split(' ')[0]}/`, 'retry-after': planted },
        ...{ ratelimit: `"${planted}";r=0;t=0`, 'ratelimit-policy': `"${planted}";q=2;w=1` },
      }
      outgoing
        .writeHead(isHealth ? 200 : status, headers)
        .end(JSON.stringify(isHealth ? health : { [planted]: planted }))
    })
    await listen(server, 0)
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const secret = [
      '--key',
      'planted-key-4711',
      '--header',
      'x-planted: planted-password',
      '--path',
      '/planted',
    ]
    const args = ['doctor', '--url', url, '--origin', `${url}/planted`, ...secret]
    for (const json of [[], ['--json']]) {
      const { stdout, stderr } = await runInProcess([...args, ...json], {})
      expect(stdout).toMatch(/verdict/i)
      expect(stdout + stderr).not.toContain('planted')
    }
    await new Promise(resolve => void server.close(resolve).closeAllConnections())
  }
})

it.each(['SIGINT', 'SIGTERM'] as const)('after %s, it removes its keys and exits with 1', async signal => {
  const child = spawn(process.execPath, [SLUICE, 'doctor', '--load', '50/s', '--for', '60s', '--yes'], {
    env: { ...process.env, ...env() },
  })
  let stdout = ''
  const isLoadRunning = () => / latency .*\n/.test(stdout)
  child.stdout.on('data', part => {
    const wasRunning = isLoadRunning()
    stdout += part
    // npx passes signals on, so they arrive twice.
    if (!wasRunning && isLoadRunning()) for (const _ of [1, 2]) child.kill(signal)
  })
  const [code] = await once(child, 'exit')
  expect(stdout).toMatch(/The [1-9]\d* keys of this examination are removed: none is left\./)
  expect([code, await keys()]).toEqual([1, []])
})
