/** The commands that end, as a user runs them: a few in a process of their own, the others in this process. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { consumerOfApiKey } from '../../src/credentials/api-key.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { sha256 } from '../../src/sha256.ts'
import { runInProcess, runProcess } from '../support/command-line.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { storeCounts } from '../support/stored-counts.ts'

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
    expect(stdout).toContain('consumer-second  10 per second   by consumer          gcra')
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
        '  keys   keys that this copy of the Worker has admitted in the last 10 minutes pass; others get a 503',
        'Find out whether these rules work on your store: npx sluicegate doctor',
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
        '  keys    keys that this copy of the Worker has admitted in the last 10 minutes pass; others get a 503',
        'Find out whether these rules work on your store: npx sluicegate doctor',
        'Warnings:',
        `  ${file}:3: rules: requests on the route docs from callers without a credential may pass without a limit. Add a rule that matches all of them, or set limits: false on a route if that is intended.`,
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
      'Find out whether these rules work on your store: npx sluicegate doctor',
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
    const redis = await startRedis()
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
      /^--token is for the URL of a REST API\. The URL of a Redis has its password inside\.$/m,
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
    redis = await startRedis()
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
      expect.stringMatching(
        /^Other rules can refuse this consumer too: .*\(by address and mode\).* use --address\.$/,
      ),
    )
  })

  it('signs new keys with SLUICE_KEY_SECRET, and never prints it', async () => {
    const secret = (await sluice(['keys', 'secret'])).stdout.trim()
    expect(secret).toMatch(/^[0-9A-Za-z]{2}:[0-9A-Za-z]{43}$/)
    const file = join(directory, 'signed.config.ts')
    writeFileSync(file, `export default { credentials: { apiKeys: { signature: 'require' } } }\n`)
    const run = (variable: string, ...args: string[]) =>
      sluice(['--config', file, ...args], {
        ...env(),
        SLUICE_KEY_SECRET: variable,
        SLUICE_ENVIRONMENT: 'signed',
      })
    const create = ['keys', 'create', '--consumer', 'signed', '--json']
    const made = await run(`${secret},zz:${'z'.repeat(40)}`, ...create)
    expect(JSON.parse(made.stdout)).toMatchObject({ signedBy: secret.slice(0, 2) })
    const unset = await run('', ...create)
    expect([unset.code, unset.stderr]).toEqual([1, expect.stringContaining('Set SLUICE_KEY_SECRET')])
    const wrong = await run('my-wrong-secret', ...create)
    expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringMatching(/SLUICE_KEY_SECRET: is not valid/)])
    // Only commands that make keys read it: a wrong one must not be in the way of others in an emergency.
    const stats = await run('my-wrong-secret', 'keys', 'stats')
    expect(stats.stdout).toMatch(
      new RegExp(`signed by ${secret.slice(0, 2)} +1\nnot signed +0\n.*refuses none`),
    )
    const printed = [made, unset, wrong, stats].map(({ stdout, stderr }) => stdout + stderr).join()
    for (const text of [secret.slice(3), 'my-wrong-secret', 'zzzz']) expect(printed).not.toContain(text)
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
        "There is no key with this ID: it never existed, has expired, or was revoked. No such key was imported either. Did you mean a key of consumer 'acme'?",
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
      /address-hour +address \+ mode +240 per hour, fixed-window +enforce +1 +sluice:\{ip:192\.0\.2\.7\}:state:mode=live/,
    )
    expect(stdout).toContain('admitted  5 commands (EVALSHA, TIME, MGET, 2 × SETEX): $10 per million')
    expect((await sluice(['explain', '--help'])).stdout).toContain(
      'Exit codes: 0 success, or nothing to change; 1 failure',
    )
  })
})

describe('npx sluicegate stats', () => {
  it('prints the counters of the store as text, as JSON, and for Prometheus', async () => {
    const redis = await startRedis()
    const bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
    try {
      const env = { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' }
      expect((await sluiceProcess(['stats'], env)).stdout).toMatch(/^Nothing was counted since /)

      const counts = { 'request limited - -': 2, 'rule limited consumer-second - pro': 2 }
      await redis.connection.send(storeCounts(counts))
      expect((await sluice(['stats'], env)).stdout).toMatch(/^consumer-second +0 +2 \(100 %\)$/m)
      const { since, ...document } = JSON.parse(
        (await sluice(['stats', '--since', '1h', '--json'], env)).stdout,
      )
      expect(since).toMatch(/:00\.000Z$/)
      expect(document).toEqual({
        rules: [
          {
            ...{ rule: 'consumer-second', route: '-', plan: 'pro', mode: 'live', allowed: 0, limited: 2 },
            ...{ shadowAllowed: 0, shadowLimited: 0, agreed: 0, disagreed: 0 },
          },
        ],
        requests: [{ outcome: 'limited', cause: '-', route: '-', count: 2 }],
        withoutTrip: {},
        test: {},
        lost: 0,
        unit: 'minute',
        ...{ calls: [], callsWithoutTrip: {}, lostCalls: 0 },
      })
      expect((await sluiceProcess(['stats', '--prometheus'], env)).stdout).toMatch(
        /^gateway_rate_limit_decisions_total\{policy="consumer-second",route="",plan="pro",outcome="limited"\} 2$/m,
      )
      const failAbove = (bound: string, ...more: string[]) =>
        sluice(['stats', '--since', '1h', '--fail-above', bound, ...more], env)
      expect(await failAbove('limited>99%')).toMatchObject({
        ...{ code: 3, stderr: 'limited>99%: 100 % of requests (2 of 2)\n' },
        stdout: expect.stringMatching(/^consumer-second /m),
      })
      expect(
        await failAbove('limited>50%', '--fail-above', 'shed>1%', '--rule', 'consumer-second'),
      ).toMatchObject({
        ...{ code: 2, stderr: expect.stringContaining("'shed' is not counted for a rule") },
      })
      expect(await failAbove('limited>50%', '--rule', 'consumer-second')).toMatchObject({
        ...{ code: 3, stderr: 'limited>50%: 100 % of rule consumer-second (2 of 2)\n' },
      })
      expect(await failAbove('degraded>0.1%', '--fail-above', 'shed>1%')).toMatchObject({
        ...{ code: 0, stderr: '' },
        stdout: expect.stringMatching(
          /\n\nNo share is above:\ndegraded>0\.1%: 0 % of requests \(0 of 2\)\nshed>1%: 0 % of requests \(0 of 2\)\n$/,
        ),
      })
      const asJson = await failAbove('limited>99%', '--json')
      expect([asJson.code, JSON.parse(asJson.stdout).checks]).toEqual([
        3,
        [{ bound: 'limited>99%', of: 'requests', count: 2, sum: 2, isAbove: true }],
      ])
      expect((await failAbove('limited')).code).toBe(2)
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
