/** The command line with `--api`: it uses the API of a gateway in place of the store. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { serve } from '@hono/node-server'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { callFor } from '../../src/metrics/add-counts.ts'
import { createTopCallers } from '../../src/metrics/top-callers.ts'
import { createApiClient } from '../../src/node/cli/api-client.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { operationOf } from '../../src/set-ups/api/openapi-operations.ts'
import { ROUTES } from '../../src/set-ups/api/routes.ts'
import { appWithApi } from '../support/api.ts'
import config from '../support/api-commands.config.ts'
import { runInProcess } from '../support/command-line.ts'
import { freePort } from '../support/free-port.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'

const CONFIG = fileURLToPath(new URL('../support/api-commands.config.ts', import.meta.url))

const ALL = [
  ...['keys:write', 'consumers:block', 'consumers:write', 'overrides:write', 'switches:write'],
  ...['stats:read', 'audit:read', 'tokens:write', 'limits:use', 'limits:reset'],
]

const SECRETS = /sl[kt]_\w+/

const gateway = useGateway()
let server: ReturnType<typeof serve>
let url: string
let token: string
/** Replaces the reply of the gateway. */
let replace: ((reply: Response) => Response | Promise<Response>) | undefined
let requests: Request[]

beforeAll(async () => {
  const app = appWithApi(gateway, config)
  server = serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request: Request) {
      requests.push(request.clone())
      const { method, headers } = request
      const body = await request.text()
      const { pathname, search } = new URL(request.url)
      const reply = await app(pathname + search, { method, headers, ...(body && { body }) })
      return replace ? await replace(reply) : reply
    },
  })
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})

afterAll(() => new Promise(resolve => void server.close(resolve)))

beforeEach(async () => {
  replace = undefined
  requests = []
  token = await tokenWith(...ALL)
})

const tokenWith = async (...scopes: string[]) =>
  (await createToken(gateway.admin, { name: 'support', scopes })).token

/** Without a config, and without the token of the store. */
const byApi = (args: readonly string[], { own = token, input = '' } = {}) =>
  runInProcess([...args, '--config', 'none.ts'], { SLUICE_API_URL: url, SLUICE_API_TOKEN: own }, input)

const byStore = (...args: string[]) =>
  runInProcess([...args, '--config', CONFIG], {
    UPSTASH_REDIS_REST_URL: gateway.store.url,
    UPSTASH_REDIS_REST_TOKEN: TOKEN,
  })

/** Runs a command that succeeds. */
async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await byApi(args)
  expect([args, code, code === 0 ? '' : stderr]).toEqual([args, 0, ''])
  return stdout
}

const json = async (...args: string[]) => JSON.parse(await ok(...args, '--json'))

async function sendRefusal(): Promise<void> {
  const isolate = createTopCallers('consumers')
  const verdicts = [{ rule: { name: 'minute' }, mode: 'enforce', allowed: false }] as const
  isolate.record({ outcome: 'limited', verdicts }, { consumer: 'acme' })
  const counts: [string, number][] = [
    ['request limited - -', 1],
    ['rule limited minute - free', 1],
  ]
  const now = new Date()
  await gateway.admin.decisions.run([isolate.addTo(callFor(counts, now), now).call])
}

describe('commands that read', () => {
  it('print the same JSON with and without the API', async () => {
    const { id } = await json('keys', 'create', '--consumer', 'acme', '--label', 'ci')
    await json('keys', 'create', '--consumer', 'beta', '--expires', '90d')
    await json('consumers', 'override', 'acme', 'minute', '--limit', '600', '--for', '1d')
    await json('consumers', 'block', 'beta', '--reason', 'zahlt nicht – seit März', '--yes')
    const made = await json('tokens', 'create', '--name', 'ci', '--scopes', 'stats:read, keys:write')
    await sendRefusal()
    for (const args of [
      ['keys', 'list'],
      ['keys', 'list', '--consumer', 'beta'],
      ['consumers', 'list'],
      ['consumers', 'show', 'acme'],
      ['consumers', 'show', 'beta'],
      ['stats'],
      ['stats', '--rule', 'minute', '--since', '2h'],
      ['stats', '--top', 'consumers'],
      ['why', 'acme'],
      ['why', id],
      ['why', 'account=42'],
      ['tokens', 'list'],
      ['tokens', 'show', made.id],
      ['audit'],
      ['audit', '--target', 'acme', '--since', '1h'],
    ]) {
      const [document, { stdout }] = [await ok(...args, '--json'), await byStore(...args, '--json')]
      // Needs another scope than `why`.
      const { lastChange: _, changes: __, ...local } = JSON.parse(stdout)
      const shown = Array.isArray(JSON.parse(stdout)) ? stdout : `${JSON.stringify(local, null, 2)}\n`
      expect(document.length).toBeGreaterThan(50)
      // Statistics begin with the hour, which can end in between.
      const again = document === shown ? document : await ok(...args, '--json')
      expect([args, again]).toEqual([args, shown])
    }
  })

  it('follow the cursors of lists', async () => {
    await Promise.all(Array.from({ length: 101 }, (_, i) => gateway.key(`c${i}`)))
    expect(await json('keys', 'list')).toHaveLength(101)
    expect(requests).toHaveLength(2)
  })

  it('print text as without the API, or the values of the document', async () => {
    await json('keys', 'create', '--consumer', 'acme', '--label', 'ci')
    await ok('consumers', 'block', 'acme', '--for', '2h', '--yes')
    await ok('switch', 'rule', 'minute', 'shadow', '--for', '1h')
    await sendRefusal()
    expect(await ok('keys', 'list')).toBe((await byStore('keys', 'list')).stdout)
    expect(await ok('consumers', 'list')).toBe((await byStore('consumers', 'list')).stdout)
    expect(await ok('tokens', 'list')).toBe((await byStore('tokens', 'list')).stdout)
    const top = ['stats', '--top', 'consumers']
    expect(await ok(...top)).toBe((await byStore(...top)).stdout)
    expect(await ok('audit')).toBe((await byStore('audit')).stdout)
    expect(await ok('consumers', 'show', 'acme')).toMatch(
      /^consumer +acme\nplan +none\nblocked at +20[\d-]{8} \d\d:\d\d UTC\n/,
    )
    const [shown, local] = [await ok('switch'), (await byStore('switch')).stdout]
    expect(shown.split('\n\n').slice(0, 2)).toEqual(local.split('\n\n').slice(0, 2))
    expect(shown).toMatch(/^The kill switch is off: limits apply\.\n\nRULE +SWITCHED TO /)
    expect(await ok('why', 'acme')).toMatch(/^acme is refused with a 403: blocked .*\n\ncaller +acme\n/s)
    expect(await ok('stats')).toContain('requests:\nOUTCOME ')
    expect((await byApi(['stats', '--fail-above', 'limited>1%'])).code).toBe(3)
    expect(await ok('limits', 'peek', 'sms', '--by', 'account=42')).toMatch(/^limit +sms$/m)
  })
})

describe('commands that change', () => {
  it('create, change, rotate and revoke keys', async () => {
    const created = await byApi(['keys', 'create', '--consumer', 'acme', '--plan', 'pro'])
    expect(created.stdout).toMatch(/^slk_acme_\w+\n$/)
    const [, id] = /keys revoke (\S+)/.exec(created.stderr)!
    const key = id!
    expect(await json('keys', 'label', key, 'ci')).toEqual({ id: key, label: 'ci' })
    expect(await json('keys', 'label', key, '--clear')).toEqual({ id: key, label: null })
    expect(await json('keys', 'plan', key, '--clear')).toEqual({ id: key, plan: null })
    expect(await json('keys', 'expire', key, '2090-01-02')).toEqual({
      id: key,
      expiresAt: '2090-01-02T00:00:00.000Z',
    })
    expect(await json('keys', 'expire', key, 'never')).toEqual({ id: key, expiresAt: null })
    const rotated = await byApi(['keys', 'rotate', key, '--overlap', '1h'])
    expect(rotated.stdout).toMatch(/^slk_acme_\w+\n$/)
    expect(rotated.stderr).toMatch(`The old key '${key}' expires at `)
    expect(await ok('keys', 'revoke', key, '--yes')).toBe(`Key '${key}' is revoked.\n`)
    const opaque = 'a-key-that-was-made-elsewhere'
    const imported = await byApi(['keys', 'import', '-', '--consumer', 'beta'], { input: opaque })
    expect(imported.stdout).toMatch(/^Key 'beta\/[0-9a-f]{12}' belongs to consumer 'beta' now\.\n$/)
    expect((await byApi(['keys', 'import', '--consumer', 'beta'])).code).toBe(2)
    expect(await json('keys', 'list')).toHaveLength(2)
  })

  it('change, block and remove consumers', async () => {
    await json('keys', 'create', '--consumer', 'acme', '--plan', 'pro')
    expect(await ok('consumers', 'set', 'acme', '--plan', 'free')).toMatch(
      /^Consumer 'acme' is on plan 'free'\. These keys .*acme\/\w+ \(pro\)/,
    )
    expect((await json('consumers', 'set', 'acme', '--no-plan')).plan).toBeNull()
    expect(await ok('switch', 'block', 'acme', '--reason', 'unpaid', '--until', 'never', '--yes')).toMatch(
      /^Consumer 'acme' is blocked, since .* UTC, by support: unpaid\.\n$/,
    )
    expect((await byApi(['consumers', 'block', 'acme'])).stderr).toContain('--yes')
    expect(await ok('consumers', 'unblock', 'acme')).toBe("Consumer 'acme' is not blocked.\n")
    expect(
      await json('consumers', 'override', 'acme', 'minute', '--limit', '9', '--mode', 'shadow'),
    ).toMatchObject({ consumer: 'acme', limit: 9, mode: 'shadow', until: null })
    expect((await json('consumers', 'override', 'acme', 'minute', '--remove')).overrides).toEqual([])
    expect(await ok('consumers', 'remove', 'acme', '--yes')).toBe("Consumer 'acme' is removed, with 1 key.\n")
  })

  it('set switches, and reset limits by name', async () => {
    expect(await ok('switch', 'kill', 'on', '--for', '5m', '--reason', 'incident', '--yes')).toMatch(
      /^The kill switch is ON: no limit applies\. Since .* UTC by support, until .*: incident\.\n$/,
    )
    expect((await json('switch')).kill).toMatchObject({
      by: 'support',
      reason: 'incident',
      status: 'applies',
    })
    expect(await ok('switch', 'kill', 'off')).toBe('The kill switch is off: limits apply.\n')
    await ok('switch', 'rule', 'minute', 'enforce', '--share', '0.25')
    expect(await ok('switch', 'rule', 'sms/week', 'off')).toMatch(
      /^Rule 'sms\/week' is switched to off, since .* by support, until it is switched back\.\n$/,
    )
    const shared = await byApi(['switch', 'rule', 'sms/week', '--share', '0.5'])
    expect(shared.stderr).toBe(
      "Rule 'sms/week' is in mode off: the share has no effect until the rule is enforced.\n",
    )
    expect((await json('switch')).rules).toMatchObject([
      { rule: 'minute', share: 0.25 },
      { rule: 'sms/week' },
    ])
    expect(await ok('switch', 'rule', 'minute', 'reset')).toBe("Rule 'minute' follows the config.\n")
    expect((await json('switch')).rules).toHaveLength(1)
    const limit = ['limits', 'reset', 'sms', '--by', 'account=42', '--yes']
    expect(await json(...limit)).toEqual(JSON.parse((await byStore(...limit, '--json')).stdout))
  })

  it('create, rotate and revoke tokens, whose own text can be given', async () => {
    const created = await byApi([
      'tokens',
      'create',
      '--name',
      'ci',
      '--scopes',
      'keys:write',
      '--expires',
      '1d',
    ])
    expect(created.stdout).toMatch(/^slt_\w+\n$/)
    const own = created.stdout.trim()
    const shown = await byApi(['tokens', 'show', '-', '--json'], { input: own })
    expect(JSON.parse(shown.stdout)).toMatchObject({ name: 'ci', by: 'support' })
    const { id } = JSON.parse(shown.stdout)
    const rotated = await byApi(['tokens', 'rotate', id, '--overlap', '0', '--yes'])
    expect(rotated.stderr).toContain(`The old token '${id}' is revoked.`)
    const other = /tokens revoke (\w+)/.exec(rotated.stderr)![1]!
    expect(await json('tokens', 'revoke', other, '--yes')).toEqual({ id: other, revoked: true })
    expect(requests.some(request => request.url.includes(own))).toBe(false)
  })

  it('send the reason in a header, or in the body of changes that keep it', async () => {
    await byApi(['consumers', 'block', 'acme', '--reason', 'unbezahlt – März', '--yes'])
    expect(await requests[0]!.json()).toEqual({ reason: 'unbezahlt – März' })
    await ok('consumers', 'unblock', 'acme', '--reason', 'bezahlt – im April')
    expect(Buffer.from(requests[1]!.headers.get('sluice-reason')!, 'latin1').toString()).toBe(
      'bezahlt – im April',
    )
    expect((await json('audit')).items).toMatchObject([
      {
        action: 'consumers.unblock',
        reason: 'bezahlt – im April',
        actor: { kind: 'token', name: 'support' },
      },
      { action: 'consumers.block', reason: 'unbezahlt – März' },
    ])
  })
})

describe('a lost reply', () => {
  it('of a creation leads to a second request that creates nothing, and to the id', async () => {
    const client = createApiClient({ url, token, fetch: losing(1) })
    const made = client.call('createKey', { body: { consumer: 'acme' } })
    await expect(made).rejects.toThrow(/reply was lost when the API created 'acme\/[0-9a-f]{12}'/)
    expect(await json('keys', 'list')).toHaveLength(1)
  })

  it('of a request that did not arrive leads to a second one that creates', async () => {
    let sent = 0
    const client = createApiClient({
      ...{ url, token },
      fetch: (...of) => (sent++ === 0 ? Promise.reject(new TypeError('fetch failed')) : fetch(...of)),
    })
    expect(await client.call('createKey', { body: { consumer: 'acme' } })).toHaveProperty('key')
    expect(await json('keys', 'list')).toHaveLength(1)
  })

  it('of a change is not repeated, and says that the change may have been made', async () => {
    const client = createApiClient({ url, token, fetch: losing(1) })
    const made = client.call('blockConsumer', { params: { consumer: 'acme' }, body: {} })
    await expect(made).rejects.toThrow('it may have been made: check before you repeat it')
    expect(requests).toHaveLength(1)
  })

  it('within the deadline says so', async () => {
    const silent: typeof fetch = (_, init) =>
      new Promise((_, reject) => {
        init!.signal!.addEventListener('abort', () => reject(init!.signal!.reason))
      })
    const client = createApiClient({ url, token, deadlineMs: 5, fetch: silent })
    await expect(client.call('listSwitches')).rejects.toMatchObject({
      kind: 'store',
      message: expect.stringMatching(/^The API at 127\.0\.0\.1:\d+ did not answer within 0\.005 s\./),
    })
  })
})

/** A fetch that loses the first replies. */
function losing(count: number): typeof fetch {
  return async (...of) => {
    const reply = await fetch(...of)
    if (count-- > 0) throw new TypeError('fetch failed', { cause: { code: 'UND_ERR_SOCKET' } })
    return reply
  }
}

describe('a token', () => {
  it('for support blocks and reads statistics, and nothing else', async () => {
    const own = await tokenWith('consumers:block', 'stats:read')
    for (const args of [
      ['consumers', 'block', 'acme', '--yes'],
      ['consumers', 'unblock', 'acme'],
      ['stats'],
      ['switch'],
    ])
      expect([args, (await byApi(args, { own })).code]).toEqual([args, 0])
    for (const [scope, ...args] of [
      ['keys:write', 'keys', 'create', '--consumer', 'acme'],
      ['keys:write', 'keys', 'list'],
      ['consumers:write', 'consumers', 'set', 'acme', '--plan', 'pro'],
      ['consumers:write', 'consumers', 'remove', 'acme', '--yes'],
      ['overrides:write', 'consumers', 'override', 'acme', 'minute', '--limit', '9'],
      ['switches:write', 'switch', 'kill', 'on', '--yes'],
      ['switches:write', 'switch', 'rule', 'minute', 'off'],
      ['tokens:write', 'tokens', 'list'],
      ['audit:read', 'audit'],
      ['limits:use or limits:use:sms', 'limits', 'peek', 'sms', '--by', 'account=1'],
      ['limits:reset', 'limits', 'reset', 'sms', '--by', 'account=1', '--yes'],
    ]) {
      const { code, stderr } = await byApi(args, { own })
      expect([args, code, stderr]).toEqual([
        args,
        1,
        expect.stringMatching(`^This needs a token with the scope ${scope}\\.\nRequest ID: [0-9a-f-]{36}\n$`),
      ])
    }
  })

  it('that was revoked is refused', async () => {
    const other = await createToken(gateway.admin, { name: 'x', scopes: ALL })
    await ok('tokens', 'revoke', other.id, '--yes')
    const { code, stderr } = await byApi(['keys', 'list'], { own: other.token })
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/^This token never existed.*\nCheck the service token, from --token/),
    ])
  })

  it.each([
    ['', 'The API needs a service token.'],
    [TOKEN, 'The token is not a service token'],
    ['slt_0', 'The token is not a service token'],
  ])('%j is refused before it is sent', async (own, message) => {
    const { code, stderr } = await byApi(['keys', 'list'], { own })
    expect([code, stderr, requests.length]).toEqual([2, expect.stringContaining(message), 0])
    expect(stderr).not.toContain(TOKEN)
  })

  it('is in no message', async () => {
    for (const args of [
      ['keys', 'show'],
      ['keys', 'list', '--api', 'https://gateway.invalid'],
      ['keys', 'list', '--consumer', '/'],
      ['why', token],
    ]) {
      const { stdout, stderr } = await byApi(args)
      expect(stderr).not.toBe('')
      expect(stdout + stderr).not.toMatch(SECRETS)
    }
  })
})

describe('a failure', () => {
  it('of the store is one of the API, with what is known of the change', async () => {
    gateway.store.fault = (_, response) => response.writeHead(500).end()
    const { code, stderr } = await byApi(['consumers', 'unblock', 'acme'])
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(
        /^The store could not be reached \(the answer is not one of Redis\)\. Nothing was changed\. Try again later\.\nRequest ID: [0-9a-f-]{36}\n$/,
      ),
    ])
  })

  it.each([
    [
      'a web page',
      () => new Response('<h1>Hello</h1>', { headers: { 'content-type': 'text/html' } }),
      'status 200 and text/html',
    ],
    [
      'another API',
      () => Response.json({ detail: 'no' }, { status: 404 }),
      'status 404 and application/json',
    ],
  ])('is %s instead of the API', async (_, reply, what) => {
    replace = reply
    const { code, stderr } = await byApi(['keys', 'list'])
    expect([code, stderr]).toEqual([
      1,
      `There is no API of a gateway at this URL: the reply has ${what}.\nCheck the URL of the gateway, from --api or SLUICE_API_URL. The config of the gateway needs api: {}.\n`,
    ])
  })

  it('is a conflict if another writer was faster', async () => {
    const body = {
      ...{ type: 'urn:sluice:problem:conflict', title: 'Conflict', status: 409 },
      ...{ detail: 'Try again.', requestId: 'a' },
    }
    const client = createApiClient({ url, token, fetch: async () => Response.json(body, { status: 409 }) })
    const failure = { kind: 'conflict', message: 'Try again.', createdId: undefined }
    await expect(client.call('removeKillSwitch')).rejects.toMatchObject(failure)
  })

  it('is a gateway that cannot be reached', async () => {
    const { code, stderr } = await byApi(['keys', 'list', '--api', `http://127.0.0.1:${await freePort()}`])
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/^The API at 127\.0\.0\.1:\d+ cannot be reached\.\nCheck the URL/),
    ])
  })

  it.each([
    ['keys expire acme/0123 2001-01-01', 'The API sets no end in the past.'],
    ['keys create --consumer a/b', '/consumer: '],
    ['keys create --consumer acme --expires yesterday', '/expiresAt: '],
    ['keys list --consumer a/b', '?consumer: '],
    ['consumers override acme minute --limit 9 --for x', '/until: '],
    ['consumers override acme .. --limit 9', "'..' is not a name."],
    ['keys revoke slk_acme_0', 'The API takes no secrets in its paths.'],
    ['keys list --env test', '--env cannot be used with the API'],
    ['consumers block acme --by me', '--by cannot be used with the API'],
    ['stats --by plan', "The API does not have 'stats --by'. Use --url and --token of the store"],
    ['stats --prometheus', "The API does not have 'stats --prometheus'."],
    ['keys stats', "The API does not have 'keys stats'."],
    ['audit --follow', "The API does not have 'audit --follow'."],
    ['switch --history', "The API does not have 'switch --history'."],
    ['limits reset sms --as me', '--as cannot be used with the API'],
    ['top', "The API does not have 'top'."],
    ['limits correct sms --rule week --spend 1', "The API does not have 'limits correct'."],
    ['limits peek --consumer acme', "The API does not have 'limits peek without the name of a limit'."],
    ['keys list --api http://gateway.example.com', 'Use https:.'],
    ['keys list --api gateway.example.com', 'The URL of the API is not valid.'],
    ['keys list --api https://a.example?x=1', 'The URL of the API is not valid.'],
    ['keys list --api https://a.example --url https://b.example', '--api cannot be combined with --url.'],
  ])('is wrong usage: %s', async (line, message) => {
    const { code, stderr } = await byApi(line.split(' '))
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)])
  })
})

it('the store is used if its URL is given, whatever SLUICE_API_URL says', async () => {
  const args = ['keys', 'list', '--json', '--url', gateway.store.url, '--token', TOKEN, '--config', CONFIG]
  const { stdout } = await runInProcess(args, { SLUICE_API_URL: url })
  expect([JSON.parse(stdout), requests.length]).toEqual([[], 0])
})

it('calls only routes that the table has', () => {
  const sources = ['api-commands', 'api-switches'].map(name =>
    readFileSync(new URL(`../../src/node/cli/${name}.ts`, import.meta.url), 'utf8'),
  )
  const ids = [...sources.join().matchAll(/api\.\w+(?:<[^(]*>)?\(\s*'(\w+)'/g)].map(([, id]) => id)
  expect(ids.length).toBeGreaterThan(26)
  const known = ROUTES.map(route => operationOf(route).id)
  expect(ids.filter(id => !known.includes(id!))).toEqual([])
})
