/** `limits acquire`, `take` and `refund`, as a shell runs them: real processes on a real Redis. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type ApiCall, apiOf, appWithApi, tokenWith } from '../support/api.ts'
import { environmentWith, type Result, runProcess, SLUICE } from '../support/command-line.ts'
import { useGateway } from '../support/gateway.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const CONFIG: Partial<ConfigInput> = {
  origin: 'route',
  units: { tokens: { estimate: 1 } },
  limits: {
    sms: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 5, period: '300d' }],
    steady: [{ name: 'pace', algorithm: 'gcra', limit: 1, period: '700ms' }],
    exports: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 1, ttl: '3s' }],
    imports: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 1, ttl: '1h' }],
    tenant: [
      {
        name: 'quota',
        by: ['tenant'],
        algorithm: 'gcra',
        numbers: 'call',
        max: { limit: 100, period: '1s' },
      },
    ],
    llm: [{ name: 'day', algorithm: 'fixed-window', limit: 1000, period: '300d', unit: 'tokens' }],
  },
}
const ACCOUNT = ['--by', 'account=42']
/** A test starts up to ten commands, each of which takes seconds on a busy machine. */
const TIMED = { timeout: 300_000 }

let directory: string
let file: string
let redis: TestRedis
let bridge: Bridge
const running: ChildProcess[] = []

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'sl-'))
  file = join(directory, 'acquire.config.mjs')
  const rules = [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }]
  writeFileSync(file, `export default ${JSON.stringify({ rules, ...CONFIG })}\n`)
  redis = await startRedis()
})
beforeEach(async () => {
  await redis.connection.send(['FLUSHALL'])
  bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
})
afterEach(async () => {
  for (const child of running.splice(0)) child.kill('SIGKILL')
  await bridge.close()
})
afterAll(async () => {
  await redis?.close()
  rmSync(directory, { recursive: true, force: true })
})

const env = () => ({ UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' })
const argumentsOf = (args: readonly string[]) => ['--config', file, 'limits', ...args]
const limits = (...args: string[]): Promise<Result> => runProcess(argumentsOf(args), env())

/** Starts a command that goes on. */
const start = (...args: string[]) => startWith(env(), argumentsOf(args))

function startWith(variables: Record<string, string>, args: readonly string[]) {
  const child = spawn(process.execPath, [SLUICE, ...args], {
    env: environmentWith(variables),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  running.push(child)
  const output = { text: '' }
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', data => {
      output.text += data
    })
  const ended = once(child, 'exit') as Promise<[code: number | null, signal: string | null]>
  return {
    child,
    output,
    ended,
    says: (text: string) => expect.poll(() => output.text, PATIENT).toContain(text),
  }
}

/** A command that says that it runs, handles signals, and ends if the process that has started it was killed. */
const WORK = `
  process.on('SIGTERM', () => { console.log('got SIGTERM'); process.exit(9) })
  for (const signal of ['SIGINT', 'SIGHUP', 'SIGQUIT']) process.on(signal, () => console.log('got ' + signal))
  const { ppid } = process
  setInterval(() => process.ppid === ppid || process.exit(), 100)
  console.log('runs')`
const work = [process.execPath, '-e', WORK]

describe('limits acquire', () => {
  it('runs a command with its arguments and its exit code, and spends', TIMED, async () => {
    const done = await limits(
      'acquire',
      'sms',
      ...ACCOUNT,
      '--',
      'sh',
      '-c',
      'echo "$0 $1"; exit 7',
      'a b',
      '--json',
    )
    expect(done).toEqual({ code: 7, stdout: 'a b --json\n', stderr: '' })
    expect(JSON.parse((await limits('take', 'sms', ...ACCOUNT, '--json')).stdout)).toMatchObject({
      rules: [{ remaining: 3 }],
    })
    expect((await limits('acquire', 'sms', ...ACCOUNT, '--', 'sh', '-c', 'kill -9 $$')).code).toBe(137)
  })

  it('gives the units back if the command cannot be run', TIMED, async () => {
    const missing = await limits('acquire', 'sms', ...ACCOUNT, '--', './none')
    expect(missing).toMatchObject({ code: 127, stderr: "The command './none' cannot be run (ENOENT).\n" })
    expect((await limits('acquire', 'sms', ...ACCOUNT, '--', directory)).code).toBe(126)
    expect((await limits('take', 'sms', ...ACCOUNT)).stdout).toContain('day has 4 left')
  })

  it('waits for its turn, or exits with 75 and says why', TIMED, async () => {
    const startedAt = Date.now()
    const turns = await Promise.all([1, 2, 3].map(() => limits('acquire', 'steady', '--', 'date', '+%s%N')))
    // The last turn is two periods after the first one, which can be at once. Each command can start later than its turn.
    const lastAt = Math.max(...turns.map(({ stdout }) => Number(stdout) / 1e6))
    expect(lastAt - startedAt).toBeGreaterThanOrEqual(1400)
    await limits('take', 'sms', ...ACCOUNT, '--cost', '5')
    const late = await limits('acquire', 'sms', ...ACCOUNT, '--timeout', '1s', '--', 'echo', 'no')
    expect(late).toMatchObject({ code: 75, stdout: '' })
    expect(late.stderr).toMatch(
      /^Limit 'sms' of account=42 refuses \(day\); again in .*\. The command was not run\.\n$/,
    )
    await limits('pause', 'steady', '--for', '1h')
    const paused = await limits('acquire', 'steady', '--timeout', '5s', '--', 'echo', 'no')
    expect(paused.code).toBe(75)
    expect(paused.stderr).toMatch(/^Limit 'steady' is paused until .* UTC\. The command was not run\.\n$/)
    expect((await limits('acquire', 'sms', ...ACCOUNT, '--cost', '6', '--', 'echo', 'no')).code).toBe(1)
  })

  it('holds units in flight for longer than their ttl, and releases them at the end', TIMED, async () => {
    const first = start('acquire', 'exports', ...ACCOUNT, '--', ...work)
    await first.says('runs')
    const next = start('acquire', 'exports', ...ACCOUNT, '--', 'echo', 'next')
    await new Promise(resolve => setTimeout(resolve, 4500))
    expect(next.output.text).toBe('')
    first.child.kill('SIGTERM')
    expect(await first.ended).toEqual([9, null])
    expect(first.output.text).toContain('got SIGTERM')
    expect(await next.ended).toEqual([0, null])
    expect(next.output.text).toBe('next\n')
  })

  it('passes signals on', TIMED, async () => {
    const { child, says, ended } = start('acquire', 'sms', ...ACCOUNT, '--', ...work)
    await says('runs')
    for (const signal of ['SIGINT', 'SIGHUP', 'SIGQUIT'] as const) {
      child.kill(signal)
      await says(`got ${signal}`)
    }
    child.kill('SIGTERM')
    expect(await ended).toEqual([9, null])
  })

  it('leaves its units to their ttl if it is killed', TIMED, async () => {
    const { child, says, ended } = start('acquire', 'exports', ...ACCOUNT, '--', ...work)
    await says('runs')
    child.kill('SIGKILL')
    await ended
    expect((await limits('acquire', 'exports', ...ACCOUNT, '--timeout', '10s', '--', 'true')).code).toBe(0)
  })

  it('lets the command go on if the store goes away, and says so once', TIMED, async () => {
    const { child, says, output, ended } = start('acquire', 'exports', ...ACCOUNT, '--', ...work)
    await says('runs')
    await bridge.close()
    await says('The store does not answer. The command goes on')
    await new Promise(resolve => setTimeout(resolve, 2500))
    child.kill('SIGTERM')
    expect(await ended).toEqual([9, null])
    expect(output.text.match(/does not answer/g)).toHaveLength(1)
    bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
  })
})

describe('limits take and refund', () => {
  it('decide once, and give back once', TIMED, async () => {
    const taken = await limits('take', 'sms', ...ACCOUNT, '--cost', '4', '--json')
    expect(taken.code).toBe(0)
    const refused = await limits('take', 'sms', ...ACCOUNT, '--cost', '2', '--json')
    expect([refused.code, JSON.parse(refused.stdout).allowed]).toEqual([75, false])
    const back = () => runProcess(argumentsOf(['refund', 'sms', '--receipt', '-']), env(), taken.stdout)
    for (const _ of [1, 2]) expect((await back()).stdout).toBe("Given back to limit 'sms': day has 5 left.\n")
    expect((await limits('take', 'llm', '--cost', 'tokens=900')).stdout).toContain('day has 100 left')
    expect((await limits('take', 'exports', ...ACCOUNT)).stderr).toContain(
      'Use limits acquire exports -- <command>.',
    )
    expect((await limits('refund', 'sms', '--receipt', 'no')).code).toBe(2)
  })
})

describe('numbers at the call', () => {
  const quota = ['tenant', '--by', 'tenant=42', '--numbers', 'quota=50/1d,burst=5']

  it('are those of the option', TIMED, async () => {
    expect((await limits('take', ...quota, '--cost', '2')).stdout).toContain('quota has 3 left')
    expect((await limits('acquire', ...quota, '--timeout', '1s', '--', 'echo', 'runs')).stdout).toBe('runs\n')
    expect((await limits('take', ...quota, '--cost', '3')).code).toBe(75)
    const [first] = JSON.parse((await limits('peek', ...quota, '--json')).stdout).rules
    expect(first).toMatchObject({ limit: 50, burst: 5, remaining: 2 })
    expect((await limits('reset', ...quota, '--yes')).code).toBe(0)
    expect((await limits('take', ...quota)).stdout).toContain('quota has 4 left')
    const missing = await limits('take', 'tenant', '--by', 'tenant=42')
    expect([missing.code, missing.stderr]).toEqual([
      2,
      expect.stringContaining("numbers of 'quota' from each call"),
    ])
    const wrong = await limits('peek', 'tenant', '--by', 'tenant=42', '--numbers', 'quota')
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('Use the form rule=limit/period')])
  })
})

describe('by the HTTP API', () => {
  const gateway = useGateway()
  let server: ReturnType<typeof serve>
  let byApi: (...args: string[]) => Promise<Result>
  let api: ApiCall
  let token: string
  let startByApi: (...args: string[]) => ReturnType<typeof startWith>

  beforeAll(async () => {
    const app = appWithApi(gateway, CONFIG)
    server = serve({
      port: 0,
      hostname: '127.0.0.1',
      async fetch(request: Request) {
        const { method, headers } = request
        const body = await request.text()
        return await app(new URL(request.url).pathname, { method, headers, ...(body && { body }) })
      },
    })
    await once(server, 'listening')
  })
  afterAll(() => new Promise(resolve => void server.close(resolve)))
  beforeEach(async () => {
    api = apiOf(gateway, CONFIG)
    token = await tokenWith(gateway, ['limits:use'])
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const variables = { SLUICE_API_TOKEN: token, SLUICE_API_URL: url }
    byApi = (verb, ...args) => runProcess(['limits', verb!, ...args], variables)
    startByApi = (verb, ...args) => startWith(variables, ['limits', verb!, ...args])
  })

  it('takes with numbers of the call, with the scope for them', TIMED, async () => {
    const quota = ['tenant', '--by', 'tenant=42', '--numbers', 'quota=50/1d']
    expect((await byApi('take', ...quota)).stderr).toContain('limits:numbers')
    const variables = {
      SLUICE_API_TOKEN: await tokenWith(gateway, ['limits:use', 'limits:numbers']),
      SLUICE_API_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    }
    const taken = await runProcess(['limits', 'take', ...quota, '--cost', '2'], variables)
    expect(taken.stdout).toContain('quota has 48 left')
    const peeked = await runProcess(['limits', 'peek', ...quota, '--json'], variables)
    expect(JSON.parse(peeked.stdout).rules).toMatchObject([{ limit: 50, remaining: 48 }])
  })

  it('does the same', TIMED, async () => {
    expect((await byApi('take', 'sms', ...ACCOUNT, '--cost', '4')).stdout).toContain('day has 1 left')
    const refused = await byApi('take', 'sms', ...ACCOUNT, '--cost', '2')
    expect([refused.code, refused.stderr]).toEqual([75, expect.stringContaining('refuses (day)')])
    const taken = JSON.parse((await byApi('take', 'sms', ...ACCOUNT, '--json')).stdout)
    const receipt = JSON.stringify(taken.receipt)
    expect((await byApi('refund', 'sms', '--receipt', receipt)).stdout).toContain('day has 1 left')
    expect((await byApi('pause', 'sms', ...ACCOUNT, '--for', '1h')).stdout).toContain('is paused until')
    expect((await byApi('resume', 'sms', ...ACCOUNT)).stdout).toContain('is not paused')
    await byApi('pause', 'sms', ...ACCOUNT, '--for', '1s')
    const ran = await byApi('acquire', 'sms', ...ACCOUNT, '--timeout', '30s', '--', 'sh', '-c', 'exit 7')
    expect(ran).toEqual({ code: 7, stdout: '', stderr: '' })
    expect((await byApi('take', 'exports', ...ACCOUNT)).stderr).toContain(
      'Use limits acquire exports -- <command>.',
    )
  })

  it('holds units in flight for longer than their ttl, and releases them at the end', TIMED, async () => {
    const first = startByApi('acquire', 'exports', ...ACCOUNT, '--', ...work)
    await first.says('runs')
    const next = startByApi('acquire', 'exports', ...ACCOUNT, '--', 'echo', 'next')
    const late = await byApi('acquire', 'exports', ...ACCOUNT, '--timeout', '4s', '--', 'echo', 'late')
    expect([late.code, late.stdout]).toEqual([75, ''])
    expect(late.stderr).toContain('refuses (at-once)')
    expect(next.output.text).toBe('')
    first.child.kill('SIGINT')
    await first.says('got SIGINT')
    first.child.kill('SIGTERM')
    expect(await first.ended).toEqual([9, null])
    expect(await next.ended).toEqual([0, null])
    expect(next.output.text).toBe('next\n')
    expect((await byApi('acquire', 'exports', ...ACCOUNT, '--', './none')).code).toBe(127)
    expect((await byApi('acquire', 'exports', ...ACCOUNT, '--timeout', '0s', '--', 'true')).code).toBe(0)
  })

  it('leaves its units to their ttl if it is killed', TIMED, async () => {
    const held = ['exports', 'imports'].map(limit => startByApi('acquire', limit, ...ACCOUNT, '--', ...work))
    for (const { child, ended, says } of held) {
      await says('runs')
      child.kill('SIGKILL')
      await ended
    }
    const acquire = (limit: string, timeout: string) =>
      byApi('acquire', limit, ...ACCOUNT, '--timeout', timeout, '--', 'true')
    // On a busy machine, these commands start after more than the three seconds of the first limit.
    const [next, refused] = await Promise.all([acquire('exports', '20s'), acquire('imports', '0s')])
    expect([next.code, refused.code]).toEqual([0, 75])
  })

  it('lets the command go on while the API is away, says so once, and is counted again', TIMED, async () => {
    const { child, says, output, ended } = startByApi('acquire', 'exports', ...ACCOUNT, '--', ...work)
    await says('runs')
    const { port } = server.address() as AddressInfo
    server.close()
    ;(server as Server).closeAllConnections()
    await says('The API does not answer. The command goes on')
    const left = async () => {
      const { body } = await api('POST limits/exports/peek', { token, body: { identity: { account: '42' } } })
      return body.rules[0].remaining
    }
    await expect.poll(left, PATIENT).toBe(1)
    server.listen(port, '127.0.0.1')
    await expect.poll(left, PATIENT).toBe(0)
    child.kill('SIGTERM')
    expect(await ended).toEqual([9, null])
    expect(output.text.match(/does not answer/g)).toHaveLength(1)
    expect(await left()).toBe(1)
  })
})
