/** The command line as a user runs it: one command of each kind in its own process, the others in this process. */

import { type ChildProcess, spawn } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { consumerOfApiKey } from '../../src/credentials/api-key.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { sha256 } from '../../src/sha256.ts'
import { statsKey } from '../../src/store/keys.ts'
import { environmentWith, runInProcess, runProcess, SLUICE } from '../support/command-line.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { childOf } from '../support/processes.ts'
import { hasRedisServer, startRedis, type TestRedis } from '../support/redis.ts'
import { startRedisProcess } from '../support/redis-process.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** All temporary files of a run go here, so that tests can detect files that are left behind. */
let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'sl-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

const own = (env: Record<string, string>) => ({ TMPDIR: directory, ...env })
const sluice = (args: string[], env = {}, input = '') => runInProcess(args, own(env), input)
/** Runs the command in its own process. */
const sluiceProcess = (args: string[], env = {}, input = '') => runProcess(args, own(env), input)

describe('npx sluicegate check', () => {
  it("summarizes the project's config", async () => {
    const { code, stdout } = await sluiceProcess(['check'])
    expect(code).toBe(0)
    expect(stdout).toContain('The config is valid: 6 rules')
    expect(stdout).toContain('consumer-second  10 per second   by consumer  gcra')
  })

  it.each([
    ['a syntax error', "export default {\n  origin: 'route'\n  rules: [],\n}\n", 3],
    ['an undefined name', '\n\n\nexport default { origin: nowhere() }\n', 4],
  ])('names the file and the line of %s', async (_, text, line) => {
    const file = join(directory, 'wrong.config.ts')
    writeFileSync(file, text)
    const { code, stderr } = await sluiceProcess(['check', file])
    expect([code, stderr]).toEqual([1, expect.stringContaining(`wrong.config.ts:${line}: `)])
  })

  it('names the imported file if the syntax error is there', async () => {
    const file = join(directory, 'importing.config.mjs')
    writeFileSync(file, "import './imported.mts'\nexport default {}\n")
    writeFileSync(join(directory, 'imported.mts'), '\nexport const x = {')
    const { code, stderr } = await sluiceProcess(['check', file])
    expect([code, stderr]).toEqual([1, expect.stringMatching(/imported\.mts:2: /)])
  })

  it.each([
    ['sluice.config.ts', 'sluice.config.mts', "import 'node:fs'\nexport default {}\n"],
    ['other.js', 'other.mjs', 'export default {}\n'],
  ])('suggests both solutions if Node reads %s as CommonJS', async (name, renamed, text) => {
    writeFileSync(join(directory, 'package.json'), '{ "type": "commonjs" }')
    const file = join(directory, name)
    writeFileSync(file, text)
    const { code, stderr } = await sluiceProcess(['check', file])
    const waysOut = `Rename it to ${renamed}, or add "type": "module" to package.json.`
    expect([code, stderr]).toEqual([1, expect.stringContaining(waysOut)])
    expect(stderr).toContain(`${name}:1: `)
  })

  it('lists the hooks', async () => {
    const file = join(directory, 'hooks.config.ts')
    const rule = `{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 9, period: '1s' }`
    writeFileSync(
      file,
      `export default { origin: 'route', rules: [${rule}], hooks: { deadline: '50ms', cost: () => 2, identify: () => 'alice' } }\n`,
    )
    const { code, stdout } = await sluice(['check', file])
    expect(code).toBe(0)
    expect(stdout).toContain('Hooks (each may take 50ms): identify, cost\n')
    expect(stdout).toMatch(/identify +callers that hooks.identify names, as identify~<name>\n/)
  })

  it('describes each rule, including those of limits by name', async () => {
    const file = join(directory, 'modes.config.ts')
    const rules = [
      `{ name: 'a', by: 'consumer', algorithm: 'leaky-bucket', limit: 2, period: '1s', queue: 3, mode: 'shadow' }`,
      `{ name: 'b', by: 'address', algorithm: 'gcra', limit: 9, period: '1s', burst: 1, enforce: 0.07 }`,
      `{ name: 'c', by: 'address', algorithm: 'sliding-log', limit: 9, period: '1s', candidateFor: 'b' }`,
    ]
    const day = `{ name: 'd', by: ['account'], algorithm: 'fixed-window', limit: 5, period: 'day', onStoreFailure: 'open' }`
    writeFileSync(
      file,
      `export default { origin: 'route', rules: [${rules.join()}], limits: { zendesk: [${day}] } }\n`,
    )
    const { code, stdout } = await sluice(['check', file])
    expect([code, stdout.trim().split('\n')]).toEqual([
      0,
      [
        'The config is valid: 3 rules, origin route.',
        '  a  2 per second  by consumer  leaky-bucket, queue 3, shadow',
        '  b  9 per second  by address   gcra, burst 1, enforced for 7 % of callers',
        '  c  9 per second  by address   sliding-log, candidate for b',
        "Limit 'zendesk':",
        '  d  5 per day (UTC)  by account  fixed-window',
        'Credentials:',
        '  api-key  slk_…',
        'While the store does not answer:',
        '  open   no limit once an outage is confirmed: zendesk/d',
        '  local  each isolate counts by itself: b',
        '  keys   keys that the isolate has verified in the last 10 minutes are accepted, others are refused',
      ],
    ])
  })

  it('shows the numbers of each plan, the credentials of each route, and routes that are not limited', async () => {
    const file = join(directory, 'plans.config.ts')
    const jwt = fileURLToPath(new URL('../../src/credentials/jwt.ts', import.meta.url))
    const issuer = `{ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'https://issuer.example.com/', audience: 'api' }`
    const staff = `{ access: 'https://team.cloudflareaccess.com', audience: 'tag' }`
    const rules = [
      `{ name: 'second', by: ['consumer', 'route'], algorithm: 'gcra', limit: 10, period: '250ms', burst: 20 }`,
      `{ name: 'month', by: 'consumer', algorithm: 'fixed-window', limit: 10_000, period: 'month', plans: { pro: { limit: 500_000 }, partner: false } }`,
      `{ name: 'queue', by: 'consumer', algorithm: 'leaky-bucket', limit: 10, period: '1s', match: { plans: ['pro', 'partner'], routes: ['reports'] }, plans: { partner: { limit: 50, queue: 5 } } }`,
      `{ name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'sliding-window', limit: 20, period: '90s' }`,
      `{ name: 'known', by: 'claim:org', algorithm: 'sliding-log', limit: 20, period: '1h', cost: 2, match: { authenticated: true }, onStoreFailure: 'closed' }`,
    ]
    const routes = [
      `{ name: 'docs', match: { methods: ['GET'], path: '/docs/*' }, accept: ['api-key', 'anonymous'] }`,
      `{ name: 'status', match: { host: 'api.*', path: '/status' }, accept: ['anonymous'], limits: false }`,
      `{ name: 'reports', match: { path: '/reports/*' }, cost: 5 }`,
    ]
    writeFileSync(
      file,
      `import { jwt } from '${jwt}'
      export default {
        origin: 'route', environment: 'live', onStoreFailure: 'local', store: { localShare: 0.25 }, plans: ['free', 'pro', 'partner'], rules: [${rules}], routes: [${routes}],
        credentials: { accept: ['api-key', 'own'], opaqueKeys: {}, jwt: { own: jwt(${issuer}), staff: jwt(${staff}) } },
      }`,
    )
    const { code, stdout } = await sluice(['check', file])
    expect([code, stdout.trim().split('\n')]).toEqual([
      0,
      [
        'The config is valid: 5 rules, origin route.',
        '  second     10 per 250 ms           by consumer and route  gcra, burst 20',
        '  month      10000 per month (UTC)   by consumer            fixed-window, not for plan partner',
        '    pro      500000 per month (UTC)',
        '  queue      10 per second           by consumer            leaky-bucket, queue 10, route reports, plan pro|partner',
        '    partner  50 per second                                  queue 5',
        '  guesses    20 per 90 seconds       by address             sliding-window, on auth-failure',
        '  known      20 per hour             by claim:org           sliding-log, cost 2, with a credential',
        'Routes, the most specific first:',
        '  status       api.*/status  anonymous           not limited',
        '  docs         GET /docs/*   api-key, anonymous  no rule limits anonymous callers',
        '  reports      /reports/*    api-key, own        cost × 5',
        '  (elsewhere)                api-key, own',
        'Credentials:',
        '  api-key     slk_live_…',
        '  own         tokens of https://issuer.example.com/, as Authorization: Bearer',
        '  anonymous   callers without a credential, which no rule limits',
        '  staff       tokens of https://team.cloudflareaccess.com, as cf-access-jwt-assertion, not accepted anywhere',
        '  opaque-key  imported keys, as X-API-Key or Authorization: Bearer, not accepted anywhere',
        'While the store does not answer:',
        '  local   each isolate counts by itself, up to 25 % of the limit: second, month, queue, guesses',
        '  closed  requests are refused: known',
        '  keys    keys that the isolate has verified in the last 10 minutes are accepted, others are refused',
        'Warnings:',
        `  ${file}:3: rules: no enforced rule is certain to match requests on the route docs from callers without a credential. A request that matches no rule passes without a limit: add a rule for all of these, or set limits: false on a route that needs no limit.`,
      ],
    ])
  })

  it('shows only settings that apply to limits by name, and explains the use of rules without an origin', async () => {
    const file = join(directory, 'alone.config.mjs')
    const limits = `limits: { zendesk: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: 'day' }] }`
    writeFileSync(file, `export default { ${limits} }\n`)
    expect((await sluice(['check', file])).stdout.trim().split('\n')).toEqual([
      'The config is valid: 1 limit by name.',
      "Limit 'zendesk':",
      '  day  5 per day (UTC)    fixed-window',
      'While the store does not answer:',
      '  local  each isolate counts by itself: zendesk/day',
    ])
    const guarded = join(directory, 'guarded.config.mjs')
    const rule = `{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 9, period: '1s' }`
    writeFileSync(guarded, `export default { rules: [${rule}], ${limits} }\n`)
    const { stdout } = await sluice(['check', guarded])
    expect(stdout).toMatch(
      /^The config is valid: 1 rule, no origin: for guards, middleware and limits by name only\.\n/,
    )
    expect(stdout).toContain('Credentials:\n')
  })

  it('names every mistake and fails', async () => {
    const file = join(directory, 'sluice.config.ts')
    writeFileSync(file, `export default { origin: 'x', rules: [{ name: 'A', limit: 0 }] }\n`)
    const { code, stderr } = await sluice(['check', file])
    expect(code).toBe(1)
    expect(stderr).toContain("sluice.config.ts:1: origin: 'x' is not an origin.")
    expect(stderr).toContain(
      "sluice.config.ts:1: rules[0].algorithm: is missing. Use 'concurrency', 'fixed-window', 'gcra', ",
    )
  })
})

describe('npx sluicegate keys create', () => {
  it('stores only the digest of a key, and prints the key once, alone on standard output', async () => {
    const redis = await startRedis('embedded')
    const bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
    try {
      const env = { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' }
      const { code, stdout, stderr } = await sluiceProcess(
        ['keys', 'create', '--consumer', 'acme', '--plan', 'pro'],
        env,
      )
      expect([code, stderr]).toEqual([
        0,
        expect.stringMatching(
          /^Created a key for consumer 'acme' on plan 'pro'\. It cannot be shown again\. To revoke it: npx sluicegate keys revoke acme\/[0-9a-f]{12}\n$/,
        ),
      ])
      const key = stdout.trim()
      expect(consumerOfApiKey(key)).toBe('acme')
      const name = `sluice:{c:acme}:key:${sha256(key)}`
      expect(String(await redis.connection.send(['GET', name]))).toMatch(/^plan=pro created=/)
      const stored =
        String(await redis.connection.send(['KEYS', '*'])) +
        String(await redis.connection.send(['GET', name]))
      expect(stored).not.toContain(key.slice(-36))
    } finally {
      await bridge.close()
      await redis.close()
    }
  })

  it.each([
    [2, ['--consumer', 'acme'], /^No store is set\. Set UPSTASH_REDIS_REST_URL/],
    [
      2,
      ['--consumer', 'a{b', '--url', 'http://127.0.0.1:1', '--token', 't'],
      /--consumer: 'a\{b' is not a consumer name/,
    ],
    [
      2,
      ['--consumer', 'a', '--plan', 'gold', '--url', 'http://127.0.0.1:1', '--token', 't'],
      /^The config has no plan 'gold'\. Plans: free, pro/,
    ],
    [
      1,
      ['--consumer', 'a', '--url', 'http://127.0.0.1:1', '--token', 'very-secret'],
      /^The store at 127\.0\.0\.1:1 cannot be reached\.\nCheck its URL, from --url or UPSTASH_REDIS_REST_URL\. .*\n {4}curl .*\nTo start a local store, run npm start/,
    ],
    [
      2,
      ['--consumer', 'a', '--url', 'nowhere', '--token', 't'],
      /^--url is not valid\. Use the http or https URL/,
    ],
    [
      2,
      ['--consumer', 'a', '--url', 'https://$u:very-secret@host.example', '--token', 't'],
      /^--url is not valid\. .* without credentials\./,
    ],
    [
      2,
      ['--consumer', 'a', '--url', 'redis://:very-secret@127.0.0.1:6379', '--token', 't'],
      /^--url is the URL of a Redis server, not of a REST API\. To serve .* npx sluicegate bridge --redis <its URL>$/m,
    ],
    [
      2,
      ['--consumer', 'a', '--url', 'http://127.0.0.1:1'],
      /^UPSTASH_REDIS_REST_TOKEN is not set\. Set it, or/,
    ],
    [2, ['--consumer', 'a', '--token', 't'], /^UPSTASH_REDIS_REST_URL is not set\. Set it, or use --url\./],
    [2, [], /^--consumer <name> is missing\.\nAdd --help to see the usage\.$/m],
  ])('exits with %i for %j, and prints a helpful message', async (status, args, message) => {
    const { code, stdout, stderr } = await sluice(['keys', 'create', ...args])
    expect([code, stdout]).toEqual([status, ''])
    expect(stderr).toMatch(message)
    expect(stderr).not.toContain('very-secret')
    expect(stderr).not.toMatch(/^\s+at /m)
  })
})

describe('an administration command', () => {
  let redis: TestRedis
  let bridge: Bridge
  beforeAll(async () => {
    redis = await startRedis('embedded')
    bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
  })
  afterAll(async () => {
    await bridge?.close()
    await redis?.close()
  })
  const env = () => ({ UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' })
  const runOnStore = (args: string[], input = '') => sluice(args, env(), input)
  const runProcessOnStore = (args: string[], input = '') => sluiceProcess(args, env(), input)

  it('prints one JSON document on standard output and nothing else', async () => {
    const made = await runProcessOnStore([
      'keys',
      'create',
      '--consumer',
      'acme',
      '--label',
      'ci',
      '--expires',
      '90d',
      '--json',
    ])
    expect([made.code, made.stderr]).toEqual([0, ''])
    const { key, id } = JSON.parse(made.stdout)
    expect(consumerOfApiKey(key)).toBe('acme')

    // The command reads the key from standard input, for example from a secret store.
    const expired = await runProcessOnStore(['keys', 'expire', '-', '24h', '--json'], `${key}\n`)
    expect(JSON.parse(expired.stdout)).toMatchObject({ id })
    const changed = [
      'consumers',
      'override',
      'acme',
      'consumer-minute',
      '--limit',
      '7',
      '--for',
      '24h',
      '--json',
    ]
    expect(JSON.parse((await runOnStore(changed)).stdout)).toMatchObject({
      ...{ consumer: 'acme', rule: 'consumer-minute', limit: 7, status: 'applies' },
    })
    const shown = await runOnStore(['consumers', 'show', 'acme', '--json'])
    expect(JSON.parse(shown.stdout)).toMatchObject({ keys: [{ id, label: 'ci' }], overrides: [{ limit: 7 }] })
    expect(shown.stdout).not.toContain(key.slice(-36))
    const peeked = await runProcessOnStore(['limits', 'peek', '--consumer', 'acme', '--json'])
    expect(JSON.parse(peeked.stdout).rules[1]).toMatchObject({ rule: 'consumer-minute', remaining: 7 })
    expect(JSON.parse(peeked.stdout).isKnown).toBe(true)
    const misspelled = (await runProcessOnStore(['limits', 'peek', '--consumer', 'acmee'])).stdout.split('\n')
    expect(misspelled).toContain(
      "The store has no key and no setting of consumer 'acmee'. Did you mean 'acme'?",
    )
    expect(misspelled).toContainEqual(
      expect.stringMatching(/^Other rules can refuse this consumer too: .*\(by address\).* use --address\.$/),
    )
  })

  it('lists consumers in columns', async () => {
    const { stdout } = await runProcessOnStore(['consumers', 'list'])
    expect(stdout).toMatch(
      /^CONSUMER {2}PLAN {7}KEYS {2}OVERRIDES {8}BLOCKED \(UTC\)\nacme {6}\(default\) {2}1 {5}consumer-minute\n$/,
    )
  })

  it('needs --yes for a destructive change without a terminal', async () => {
    const refused = await runProcessOnStore(['consumers', 'remove', 'acme'])
    expect([refused.code, refused.stdout]).toEqual([2, ''])
    expect(refused.stderr).toBe(
      "Remove consumer 'acme', with 1 key? There is no terminal to confirm this on. Add --yes to proceed.\n",
    )
    const done = await runOnStore(['consumers', 'remove', 'acme', '--yes'])
    expect([done.code, done.stdout]).toEqual([0, "Consumer 'acme' is removed, with 1 key.\n"])
    const gone = await runOnStore(['consumers', 'show', 'acme'])
    expect([gone.code, gone.stdout, gone.stderr]).toEqual([
      1,
      '',
      expect.stringContaining("The store has no consumer 'acme'."),
    ])
  })

  it('reports a block that already exists, and a change that has no effect', async () => {
    await runOnStore(['consumers', 'block', 'slow', '--reason', 'did not pay', '--yes'])
    const again = await runOnStore(['consumers', 'block', 'slow', '--yes'])
    expect([again.code, again.stdout]).toEqual([
      0,
      expect.stringMatching(
        /^Consumer 'slow' is already blocked, since 20[\d-]+ [\d:]+ UTC, by \S+: did not pay\.\n$/,
      ),
    ])
    const unknown = await runOnStore(['consumers', 'unblock', 'nobody'])
    expect([unknown.code, unknown.stdout]).toEqual([1, ''])
    const none = await runOnStore(['consumers', 'set', 'nobody', '--no-plan'])
    expect([none.code, none.stdout, none.stderr]).toEqual([
      0,
      "Consumer 'nobody' already has no plan of its own.\n",
      '',
    ])
    expect((await runOnStore(['consumers', 'list'])).stdout).not.toContain('nobody')
    await runOnStore(['consumers', 'remove', 'slow', '--yes'])
  })

  it.each([
    [['keys', 'rotate'], '--overlap 0'],
    [['keys', 'expire'], 'now'],
    [['consumers', 'override'], '--remove'],
  ])('says in the help of %j that %s needs --yes', async (command, what) => {
    const { stdout } = await sluice([...command, '--help'])
    expect(stdout.replace(/\s+/g, ' ')).toMatch(
      new RegExp(`--yes do not ask for confirmation; without a terminal, '?${what}'? needs this`),
    )
  })

  it('does not repeat arguments that may be keys', async () => {
    const { code, stderr } = await runProcessOnStore([
      'keys',
      'revoke',
      'the-first-of-two-keys',
      'the-second-of-two-keys',
    ])
    expect([code, stderr]).toEqual([2, expect.stringContaining('revoke takes one argument, not 2.')])
    expect(stderr).not.toContain('of-two-keys')
  })

  it('uses the environment of SLUICE_ENVIRONMENT or --env', async () => {
    const { stdout } = await sluice(['keys', 'create', '--consumer', 'acme'], {
      ...env(),
      SLUICE_ENVIRONMENT: 'test',
    })
    expect(stdout).toMatch(/^slk_test_acme_/)
    const listed = await runOnStore(['keys', 'list', '--env', 'live'])
    expect([listed.code, listed.stdout]).toEqual([
      0,
      "There are no keys in environment 'live'. To list the keys of another environment, use --env <name>.\n",
    ])
    const elsewhere = await runOnStore(['keys', 'list', '--consumer', 'acme', '--env', 'other'])
    expect(elsewhere.stdout).toContain("There are no keys of consumer 'acme' in environment 'other'.")
    const misspelled = await runOnStore(['keys', 'list', '--consumer', 'acmx', '--env', 'test'])
    expect(misspelled.stdout).toContain(
      "There are no keys of consumer 'acmx' in environment 'test'. Did you mean 'acme'?",
    )
    const unknown = await runOnStore(['keys', 'revoke', 'acmx/0f3a9c1d2b4e', '--env', 'test'])
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      expect.stringContaining(
        "There is no key with this ID, and no such key was imported. Did you mean 'acme'?",
      ),
    ])
    const wrong = await runOnStore(['keys', 'list', '--env', 'Live!'])
    expect([wrong.code, wrong.stderr]).toEqual([
      2,
      expect.stringContaining("--env: 'Live!' is not an environment name. Use 1 to 16"),
    ])
  })

  it('changes the switches of the given environment, and of no other', async () => {
    const switched = await runProcessOnStore([
      'switch',
      'kill',
      'on',
      '--env',
      'staging',
      '--yes',
      '--for',
      '10m',
    ])
    expect([switched.code, switched.stdout]).toEqual([
      0,
      expect.stringMatching(/^The kill switch is ON.* This is environment 'staging'\.\n$/),
    ])
    expect((await runOnStore(['switch'])).stdout).toMatch(/^The kill switch is off/)
    expect(JSON.parse((await runOnStore(['switch', '--env', 'staging', '--json'])).stdout)).toMatchObject({
      kill: { status: 'applies' },
    })
    const taken = await runOnStore(['switch', 'kill', 'off', '--env', 'staging', '--json'])
    expect([taken.code, JSON.parse(taken.stdout)]).toMatchObject([0, { kill: null }])
    // An option before the subcommand would be ambiguous, so it is refused.
    expect((await runOnStore(['switch', '--env', 'staging', 'kill', 'on', '--yes'])).code).toBe(2)
  })

  it('explains a request without a store, and shows its cost', async () => {
    const { code, stdout } = await sluiceProcess([
      'explain',
      'GET',
      '/reports/7',
      '--consumer',
      'acme',
      '--address',
      '192.0.2.7',
    ])
    expect(code).toBe(0)
    expect(stdout).toContain(
      'acme, by api-key, plan free (assumed: the first in the config); address 192.0.2.7',
    )
    expect(stdout).toMatch(
      /address-hour +address +240 per hour, fixed-window +enforce +1 +sluice:\{ip:192\.0\.2\.7\}:state/,
    )
    expect(stdout).toContain('admitted  5 commands (EVALSHA, TIME, MGET, 2 × SETEX): $10 per million')
    expect((await sluice(['explain', '--help'])).stdout).toContain(
      'Exit codes: 0 success, or nothing to change; 1 failure',
    )
  })
})

describe('npx sluicegate stats', () => {
  it('prints the counters of the store as text, as JSON, and for Prometheus', async () => {
    const redis = await startRedis('embedded')
    const bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
    try {
      const env = { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' }
      expect((await sluiceProcess(['stats'], env)).stdout).toMatch(/^Nothing was counted since /)

      const counts = ['request limited - -', '2', 'rule limited consumer-second - pro', '2']
      await redis.connection.send(['HSET', statsKey(new Date()), ...counts])
      expect((await sluice(['stats'], env)).stdout).toMatch(/^consumer-second +0 +2 \(100 %\)$/m)
      const { since, ...document } = JSON.parse(
        (await sluice(['stats', '--since', '1h', '--json'], env)).stdout,
      )
      expect(since).toMatch(/:00:00\.000Z$/)
      expect(document).toEqual({
        rules: [
          {
            ...{ rule: 'consumer-second', route: '-', plan: 'pro', allowed: 0, limited: 2 },
            ...{ shadowAllowed: 0, shadowLimited: 0, agreed: 0, disagreed: 0 },
          },
        ],
        requests: [{ outcome: 'limited', cause: '-', route: '-', count: 2 }],
        withoutTrip: {},
        lost: 0,
      })
      expect((await sluiceProcess(['stats', '--prometheus'], env)).stdout).toMatch(
        /^gateway_rate_limit_decisions_total\{policy="consumer-second",route="",plan="pro",outcome="limited"\} 2$/m,
      )
      expect(await sluiceProcess(['stats', '--rule', 'nowhere'], env)).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^The config has no rule 'nowhere'\. Rules: consumer-second, /),
      })
    } finally {
      await bridge.close()
      await redis.close()
    }
  })
})

describe('npx sluicegate bridge', () => {
  it.each([
    [2, [], /^No Redis is set\. Use --redis/],
    [2, ['--redis', 'redis://127.0.0.1:6379'], /^No token is set\. Use --token/],
    [2, ['--redis', 'localhost', '--token', 't'], /redis:\/\/host:port/],
    [1, ['--redis', 'redis://127.0.0.1:1', '--token', 't'], /Redis did not answer at 127\.0\.0\.1:1/],
    [
      2,
      ['--redis', 'redis://127.0.0.1:1', '--token', 't', '--port', '99999'],
      /Use a number from 0 to 65535/,
    ],
  ])('exits with %i for %j, and prints a helpful message', async (status, args, message) => {
    const { code, stderr } = await sluiceProcess(['bridge', ...args], { SLUICE_BRIDGE_TOKEN: '' })
    expect(code).toBe(status)
    expect(stderr).toMatch(message)
  })

  it('ends when npx, which started it, is killed', async () => {
    const redis = await startRedis('embedded')
    const args = ['--no-install', 'sluicegate', 'bridge', '--redis', redis.url, '--token', 't', '--port', '0']
    const npx = spawn('npx', args, { env: environmentWith(own({})), stdio: 'pipe' })
    try {
      let output = ''
      npx.stdout.on('data', data => {
        output += data
      })
      await expect.poll(() => output, { timeout: 50_000, interval: 20 }).toContain('The bridge is ready on ')
      const [, url = ''] = /ready on (\S+)/.exec(output) ?? []
      npx.kill('SIGKILL')
      const isGone = () =>
        fetch(`${url}/health`).then(
          () => false,
          () => true,
        )
      await expect.poll(isGone, { timeout: 30_000 }).toBe(true)
    } finally {
      npx.kill('SIGKILL')
      await redis.close()
    }
  })
})

describe('npx sluicegate start', () => {
  // Processes that a failed test has left running.
  const running: ChildProcess[] = []
  afterEach(() => {
    for (const child of running.splice(0)) child.kill('SIGKILL')
  })

  const PORTS = ['--port', '0', '--bridge-port', '0', '--origin-port', '0']

  function copyOfProject(): string {
    const project = mkdtempSync(join(directory, 'project-'))
    for (const name of ['src', 'package.json', 'wrangler.toml', 'sluice.config.ts'])
      cpSync(join(ROOT, name), join(project, name), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules'), join(project, 'node_modules'))
    return project
  }

  /** @param project the folder with the sources; default: this repository */
  async function started(args: string[] = [], env: Record<string, string> = {}, project?: string) {
    const program = project ? join(project, 'src/node/cli/sluice.ts') : SLUICE
    const child = spawn(process.execPath, [program, 'start', ...PORTS, ...args], {
      cwd: project,
      env: environmentWith(own(env)),
      stdio: 'pipe',
    })
    running.push(child)
    let output = ''
    child.stdout.on('data', data => {
      output += data
    })
    child.stderr.on('data', data => {
      output += data
    })
    await expect.poll(() => output, { timeout: 50_000, interval: 20 }).toContain('Sluice is ready on http')
    const [, key = ''] = /Demo key: (\S+)/.exec(output) ?? []
    const [, url = ''] = /ready on (\S+)/.exec(output) ?? []
    return {
      child,
      key,
      url,
      output: () => output,
      exited: new Promise<number | null>(resolve => child.once('exit', resolve)),
    }
  }

  it('serves requests as soon as it reports that it is ready, and leaves nothing behind on SIGTERM', async () => {
    const { child, key, url, output, exited } = await started(['--redis', 'embedded'])
    expect(output()).toContain('the embedded Redis (as configured)')
    const hello = () => fetch(`${url}/hello`, { headers: { authorization: `Bearer ${key}` } })
    // On a busy machine the first decisions can miss the deadline.
    let response = await hello()
    while (response.headers.has('sluice-degraded')) response = await hello()
    expect(response.status).toBe(200)
    expect(await response.json()).toMatchObject({ path: '/hello', headers: { 'x-consumer-id': 'demo' } })
    expect(readdirSync(directory)).not.toEqual([])
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    expect(readdirSync(directory)).toEqual([])
    await expect(fetch(url)).rejects.toThrow()
  })

  it('uses the embedded Redis if no server is on the PATH, and leaves nothing behind when it is killed', async () => {
    const { child, url, output, exited } = await started([], { PATH: '/nowhere' })
    expect(output()).toContain('the embedded Redis (no valkey-server or redis-server is on the PATH)')
    child.kill('SIGKILL')
    await exited
    await expect.poll(() => readdirSync(directory), { timeout: 30_000 }).toEqual([])
    await expect
      .poll(
        () =>
          fetch(url).then(
            () => 'serves',
            () => 'gone',
          ),
        { timeout: 30_000 },
      )
      .toBe('gone')
  })

  it('ends when npm, which started it, is killed', async () => {
    const npm = spawn('npm', ['start', '--', ...PORTS, '--redis', 'embedded'], {
      env: environmentWith(own({})),
      stdio: 'pipe',
    })
    running.push(npm)
    let output = ''
    npm.stdout.on('data', data => {
      output += data
    })
    await expect.poll(() => output, { timeout: 50_000, interval: 20 }).toContain('Sluice is ready on http')
    const [, url = ''] = /ready on (\S+)/.exec(output) ?? []
    npm.kill('SIGKILL')
    const isGone = () =>
      fetch(url).then(
        () => false,
        () => true,
      )
    await expect.poll(isGone, { timeout: 30_000 }).toBe(true)
    // npm keeps its own cache in this directory.
    const ours = () => readdirSync(directory).filter(name => name.startsWith('sluice-'))
    await expect.poll(ours, { timeout: 30_000 }).toEqual([])
  })

  it.skipIf(!hasRedisServer || !existsSync('/proc'))(
    'starts another Redis when its own is killed, with a new demo key, and gives up the fourth time',
    async () => {
      const { child, key, url, output, exited } = await started()
      const renewed = () =>
        [...output().matchAll(/no longer valid\. Demo key: (\S+)/g)].map(([, key]) => key!)
      const kill = async () => {
        const pids = () => ['valkey-server', 'redis-server'].map(name => childOf(child.pid!, name))
        process.kill(
          (await vi.waitUntil(() => pids().find(pid => pid !== undefined), { timeout: 30_000 }))!,
          'SIGKILL',
        )
      }
      const ask = (key: string) => fetch(url, { headers: { 'x-api-key': key } }).then(({ status }) => status)
      for (let times = 1; times <= 3; times++) {
        await kill()
        await expect.poll(renewed, { timeout: 30_000 }).toHaveLength(times)
        // For a moment, the Worker counts in its own memory and does not know the key.
        await expect.poll(() => ask(renewed().at(-1)!), { timeout: 30_000 }).toBe(200)
      }
      expect(await ask(key)).toBe(401)
      expect(output()).toMatch(/^(valkey|redis)-server has stopped \(SIGKILL\), and its data is lost\.$/m)
      await kill()
      expect(await exited).toBe(1)
      expect(output()).toContain('Redis could not be restarted. It has stopped 4 times.')
      expect(readdirSync(directory)).toEqual([])
    },
  )

  it.skipIf(!hasRedisServer)('reports when Redis stops answering, and when it is back', async () => {
    const redis = await startRedisProcess()
    const { child, output, exited } = await started([
      '--redis',
      `redis://default:very-secret@${redis.host}:${redis.port}`,
    ])
    await redis.kill()
    await expect
      .poll(output, { timeout: 30_000 })
      .toMatch(
        new RegExp(
          `^Redis at ${redis.host}:${redis.port} does not answer: .*\\. Until it is back, the bridge answers every command with 503\\.$`,
          'm',
        ),
      )
    await redis.start()
    await expect.poll(output, { timeout: 30_000 }).toMatch(/^Redis is back after \d+ s\.$/m)
    // Redis came back empty, so there is a new demo key.
    await expect
      .poll(output, { timeout: 30_000 })
      .toMatch(/^The previous demo key is no longer valid\. Demo key: slk_/m)
    expect(output()).not.toContain('very-secret')
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    await redis.close()
  })

  it('shows a new demo key when the environment in the config changes', async () => {
    const project = copyOfProject()
    const config = join(project, 'sluice.config.ts')
    const chosen = "{ name: 'chosen', by: 'header:x-tenant', algorithm: 'gcra', limit: 1000, period: '1s' },"
    writeFileSync(config, readFileSync(config, 'utf8').replace('rules: [', `rules: [${chosen}`))
    const { child, key, url, output, exited } = await started(['--redis', 'embedded'], {}, project)
    const warnings = () =>
      output().match(
        /^Warnings about the config:\n {2}sluice\.config\.ts:\d+: rules\[0\]\.by: clients choose .*'header:x-\w+'/gm,
      )
    expect(warnings()).toHaveLength(1)
    const text = readFileSync(config, 'utf8').replace('x-tenant', 'x-account')
    writeFileSync(config, text.replace('rules: [', "environment: 'test', rules: ["))
    const renewed = () => /no longer valid\. Demo key: (\S+)/.exec(output())?.[1]
    await expect.poll(renewed, { timeout: 30_000 }).toMatch(/^slk_test_demo_/)
    const ask = (key: string) => fetch(url, { headers: { 'x-api-key': key } }).then(({ status }) => status)
    // On a busy machine, the store may be too slow at first.
    await expect
      .poll(async () => [await ask(renewed()!), await ask(key)], { timeout: 30_000 })
      .toEqual([200, 401])
    // A mistake is reported with its line, and the previous config stays in use.
    const good = readFileSync(config, 'utf8')
    const line = good.split('\n').findIndex(text => text.includes('rules: [')) + 1
    writeFileSync(config, good.replace('rules: [', 'rules ['))
    const rejected = `sluice.config.ts:${line}: The file cannot be parsed: Unexpected token`
    await expect.poll(output, { timeout: 30_000 }).toContain(rejected)
    writeFileSync(config, good)
    await expect.poll(() => output().match(/^Reloaded\.$/gm), { timeout: 30_000 }).toHaveLength(2)
    // Other changes keep the demo key.
    writeFileSync(config, readFileSync(config, 'utf8').replace('limit: 240', 'limit: 241'))
    await expect.poll(() => output().match(/^Reloaded\.$/gm), { timeout: 30_000 }).toHaveLength(3)
    expect(await ask(renewed()!)).toBe(200)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    expect(output().match(/Demo key: /g)).toHaveLength(2)
    // The same warnings are not repeated after each change.
    expect(warnings()).toHaveLength(2)
    rmSync(project, { recursive: true })
  })

  it('reads variables of the config from .dev.vars if the shell does not set them, also after the file changes', async () => {
    const project = copyOfProject()
    const config = join(project, 'sluice.config.ts')
    const secret = (name: string) =>
      `${name.toLowerCase()}: jwt({ secret: '${name}', algorithms: ['HS256'], issuer: '${name}', audience: 'a' }),`
    const jwts = `credentials: { accept: ['api-key'], jwt: { ${['QUOTED', 'LONG', 'FROM_SHELL'].map(secret).join('')} } }, rules: [`
    writeFileSync(
      config,
      `import { jwt } from './src/credentials/jwt.ts'\n${readFileSync(config, 'utf8').replace('rules: [', jwts)}`,
    )
    const long = 'a secret of the tests, of 32 bytes and some more'
    const file = join(project, '.dev.vars')
    // The syntax of dotenv, and the variables of a store, which `start` ignores because it runs a store of its own.
    const others = `# a comment\nQUOTED="${long} # too" # a comment\n\nexport LONG = ${long.replaceAll(' ', '_')}\nFROM_SHELL='short'\n`
    writeFileSync(
      file,
      `${others}SLUICE_ENVIRONMENT=dev\nUPSTASH_REDIS_REST_URL=http://127.0.0.1:9\nUPSTASH_REDIS_REST_TOKEN=t\n`,
    )
    const { child, key, url, output, exited } = await started(
      ['--redis', 'embedded'],
      { FROM_SHELL: long },
      project,
    )
    expect(key).toMatch(/^slk_dev_/)
    expect(output()).toContain(' --env dev')
    const ask = (key: string) => fetch(url, { headers: { 'x-api-key': key } }).then(({ status }) => status)
    // On a busy machine, the store may be too slow at first.
    await expect.poll(() => ask(key), { timeout: 30_000 }).toBe(200)
    writeFileSync(file, 'QUOTED=short')
    await expect
      .poll(output, { timeout: 30_000 })
      .toMatch(/QUOTED: is too short.*keeps running with the previous version/s)
    expect(output()).not.toContain(long)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    rmSync(project, { recursive: true })
  })

  it('passes every variable of .dev.vars to the Worker, for hooks, but not a store or an origin', async () => {
    const project = copyOfProject()
    const config = join(project, 'sluice.config.ts')
    const hooks = "hooks: { skip: (_, { env }) => env.LOAD_TEST === 'on' },"
    writeFileSync(config, readFileSync(config, 'utf8').replace('rules: [', `${hooks} rules: [`))
    const file = join(project, '.dev.vars')
    const elsewhere = ['UPSTASH_REDIS_REST_URL', 'ORIGIN_URL']
      .map(name => `${name}=http://127.0.0.1:9\n`)
      .join('')
    writeFileSync(file, `${elsewhere}UPSTASH_REDIS_REST_TOKEN=t\nLOAD_TEST=on\n`)
    const { child, key, url, exited } = await started(['--redis', 'embedded'], {}, project)
    const ask = async () => {
      const { status, headers } = await fetch(url, { headers: { 'x-api-key': key } })
      return [status, headers.has('ratelimit')]
    }
    await expect.poll(ask, { timeout: 30_000 }).toEqual([200, false])
    writeFileSync(file, `${elsewhere}UPSTASH_REDIS_REST_TOKEN=t\nLOAD_TEST=off\n`)
    await expect.poll(ask, { timeout: 30_000 }).toEqual([200, true])
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    rmSync(project, { recursive: true })
  })

  it('uses the Redis of REDIS_URL, and removes its demo key from it on exit', async () => {
    const redis = await startRedis('embedded')
    const { child, output, exited } = await started([], { REDIS_URL: redis.url })
    expect(output()).toContain(`Redis at ${redis.url}, as configured`)
    // The record, the consumer's index, and the list of consumers.
    expect(await redis.connection.send(['DBSIZE'])).toBe(3)
    child.kill('SIGINT')
    expect(await exited).toBe(0)
    expect(await redis.connection.send(['DBSIZE'])).toBe(0)
    await redis.close()
  })

  it('uses the store of UPSTASH_REDIS_REST_URL, and starts no bridge', async () => {
    const redis = await startRedis('embedded')
    const bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
    const env = { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' }
    const { child, key, url, output, exited } = await started([], env)
    expect(output()).toContain(
      `Redis    ${new URL(bridge.url).host}, over HTTP, because UPSTASH_REDIS_REST_URL is set`,
    )
    expect(output()).not.toContain('Bridge')
    expect((await fetch(url, { headers: { 'x-api-key': key } })).status).toBe(200)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    await bridge.close()
    await redis.close()
  })

  it('names a port that is in use, and the flag that changes it', async () => {
    const portHolder = createServer().listen(0, '127.0.0.1')
    await new Promise(resolve => portHolder.once('listening', resolve))
    const { port } = portHolder.address() as { port: number }
    for (const [flag, use] of [
      ['--port', 'gateway'],
      ['--bridge-port', 'REST bridge'],
      ['--origin-port', 'demo origin'],
    ] as const) {
      const { code, stderr } = await sluiceProcess([
        'start',
        '--redis',
        'embedded',
        ...PORTS,
        flag,
        String(port),
      ])
      expect([code, stderr]).toEqual([
        1,
        `Port ${port} for the ${use} is in use. Free it, or choose another one with ${flag}.\n`,
      ])
    }
    portHolder.close()
    expect(existsSync(directory) && readdirSync(directory)).toEqual([])
  })

  it.each([
    [2, ['--redis', 'memory'], /redis:\/\/host:port/],
    [
      1,
      ['--redis', 'redis://127.0.0.1:1'],
      /Redis did not answer at 127\.0\.0\.1:1\. Check that it is running/,
    ],
    [2, ['--origin', 'example.com'], /Use an http or https URL without query or credentials/],
    [2, ['--port', 'http'], /Use a number from 0/],
  ])('exits with %i for %j, and prints a helpful message', async (status, args, message) => {
    const { code, stderr } = await sluiceProcess(['start', ...PORTS, ...args])
    expect(code).toBe(status)
    expect(stderr).toMatch(message)
    expect(stderr).not.toMatch(/^\s+at /m)
    expect(readdirSync(directory)).toEqual([])
  })
})
