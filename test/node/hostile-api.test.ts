/** The command line with `--api`, at a server that is not a gateway, or means harm. */
import { once } from 'node:events'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { mintServiceToken } from '../../src/credentials/service-token.ts'
import { createApiClient } from '../../src/node/cli/api-client.ts'
import { API_COMMANDS } from '../../src/node/cli/api-commands.ts'
import { COMPONENTS, operationOf } from '../../src/set-ups/api/openapi-operations.ts'
import type { Route } from '../../src/set-ups/api/route.ts'
import { ROUTES } from '../../src/set-ups/api/routes.ts'
import { runInProcess } from '../support/command-line.ts'
import { exampleOf } from '../support/example-of.ts'

/** Colors, a title, a C1 sequence, a carriage return, and text from right to left. */
const HOSTILE = 'a\x1b[31mred\x1b]0;title\x07\x9b32m\rb\u202ec\u2028d'

const TOKEN = mintServiceToken(undefined)

let server: Server
let url: string
let reply: (response: ServerResponse, route: Route) => void
let requests: { url: string; body: string }[] = []

beforeAll(async () => {
  server = createServer((request, response) => {
    let body = ''
    request.on('data', chunk => {
      body += chunk
    })
    request.on('end', () => {
      requests.push({ url: request.url!, body })
      reply(response, routeOf(request.method!, request.url!))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})

afterAll(() => new Promise(resolve => void server.close(resolve)))

/** The route of a request. */
function routeOf(method: string, path: string): Route {
  const parts = path.split('?')[0]!.split('/').slice(3)
  const fits = (pattern: string) => {
    const [own, ...rest] = pattern.split(' ')
    const names = rest.join(' ').split('/')
    return (
      own === method &&
      names.length === parts.length &&
      names.every((name, i) => name[0] === '{' || name === parts[i])
    )
  }
  return ROUTES.find(route => fits(`${route.method} ${route.path}`))!
}

const json =
  (status: number, document: (route: Route) => unknown): typeof reply =>
  (response, route) => {
    response.writeHead(status, { 'content-type': 'application/json' })
    response.end(JSON.stringify(document(route)))
  }

function byApi(command: string, ...more: string[]) {
  requests = []
  const args = [...command.split(' '), ...more]
  return runInProcess(args, { SLUICE_API_URL: url, SLUICE_API_TOKEN: TOKEN }, HOSTILE)
}

const COMMANDS = [
  ...['keys create --consumer acme', 'keys import - --consumer acme', 'keys list', 'keys label acme/0123 ci'],
  ...['keys plan acme/0123 pro', 'keys expire acme/0123 90d', 'keys revoke acme/0123 --yes'],
  ...['keys rotate acme/0123', 'consumers list', 'consumers show acme', 'consumers set acme --plan pro'],
  ...['consumers block acme --yes', 'consumers unblock acme', 'consumers override acme minute --limit 9'],
  ...['consumers override acme minute --remove', 'consumers remove acme --yes', 'switch show'],
  ...['switch kill on --yes', 'switch rule minute off', 'stats', 'stats --fail-above limited>1%'],
  ...['stats --top consumers', 'why acme', 'audit', 'limits peek sms', 'limits reset sms --yes'],
  ...['limits override sms day --by user=42 --limit 9', 'limits override sms day --by user=42 --remove'],
  ...[
    'limits overrides sms',
    'limits pause sms --for 1h',
    'limits resume sms',
    'limits acquire sms --timeout 1s -- true',
  ],
  ...['limits take sms', 'limits refund sms --receipt {}', 'tokens create --name ci --scopes keys:write'],
  ...['tokens list', 'tokens show 0123', 'tokens revoke 0123 --yes', 'tokens rotate 0123'],
]

describe('no text of a reply changes how a terminal shows the output', () => {
  it('and all commands are tried', () => {
    const tried = API_COMMANDS.filter(words => COMMANDS.some(command => command.startsWith(words)))
    expect(tried).toEqual(API_COMMANDS)
  })

  const results = json(200, route => exampleOf(operationOf(route).result, { text: HOSTILE }))
  const known = json(200, route => exampleOf(operationOf(route).result, { text: HOSTILE, isKnown: true }))
  /** Of a limit that does not count units in flight, which `take` refuses. */
  const decided = (allowed: boolean) =>
    json(200, () => ({
      ...(exampleOf(COMPONENTS.Decision!, { text: HOSTILE, isKnown: true }) as object),
      ...{ allowed, rules: [], pausedUntil: undefined },
    }))
  const decisions = [decided(true), decided(false)]
  const problem = json(422, () => ({
    ...(exampleOf(COMPONENTS.Problem!, { text: HOSTILE }) as object),
    type: `urn:sluice:problem:${HOSTILE}`,
  }))
  const header: typeof reply = response =>
    void response.writeHead(404, { 'content-type': 'text/\x9b1m\xad' }).end()
  const location: typeof reply = response =>
    void response.writeHead(302, { location: 'https://\xad\x9b1m.invalid/\x9b1m' }).end()
  const created = json(503, () => ({
    ...(exampleOf(COMPONENTS.Problem!, { text: HOSTILE }) as object),
    ...{ type: 'urn:sluice:problem:store-unavailable', change: 'unknown' },
  }))

  it.each(COMMANDS)('%s', async command => {
    for (const each of [results, known, ...decisions, problem, header, location, created])
      for (const more of [[], ['--json']]) {
        reply = each
        // The options of `acquire` stand before its command.
        const { stdout, stderr } =
          more.length > 0 && command.includes(' -- ') ? await byApi(command) : await byApi(command, ...more)
        expect(stdout + stderr).toMatch(/^[\P{C}\n]+$/u)
        expect(stdout + stderr).not.toMatch(/[\p{Zl}\p{Zp}]/u)
      }
  })

  it('a receipt is sent back as it came', async () => {
    reply = json(200, route => ({
      ...(exampleOf(operationOf(route).result, { text: HOSTILE }) as object),
      allowed: true,
    }))
    await byApi('limits acquire sms -- true')
    const receipt = exampleOf(COMPONENTS.Receipt!, { text: HOSTILE })
    expect(requests.map(({ body }) => JSON.parse(body).receipt)).toEqual([undefined, receipt])
  })
})

describe('a reply of another form is an error', () => {
  const WRONG: [string, typeof reply, RegExp][] = [
    [
      'an empty object',
      json(200, () => ({})),
      /^The reply does not have the form of the API's: '\/\w+' is missing/,
    ],
    ['a list', json(200, () => []), /^The reply does not have the form of the API's\. If this was a change/],
    ['null', json(200, () => null), /^The reply of the API ended early, or is not JSON\./],
    ['half of a document', raw(200, 'application/json', '{"items":['), /^The reply of the API ended early/],
    [
      'a web page',
      raw(200, 'text/html', '<p>Hi'),
      /^There is no API of a gateway at this URL: the reply has status 200 and text\/html\./,
    ],
    [
      'a page of a proxy',
      raw(502, 'text/html', '<p>Hi'),
      /^The gateway did not answer: another server has replied with status 502 and text\/html\. If this was a change, it may have been made/,
    ],
    [
      'another 503',
      json(503, () => ({ error: 'no' })),
      /^The gateway did not answer: another server has replied with status 503/,
    ],
    [
      'a problem of another form',
      json(400, () => ({ type: 'urn:sluice:problem:x', errors: 'x' })),
      /^There is no API of a gateway at this URL: the reply has status 400/,
    ],
    ['a type that is a number', json(400, () => ({ type: 7 })), /^There is no API of a gateway at this URL/],
    [
      'no reply',
      response => void response.destroy(),
      /^The API at 127\.0\.0\.1:\d+ broke the connection before it answered/,
    ],
    [
      'half a body',
      response => {
        response.writeHead(200, { 'content-length': '1000' })
        response.write('{', () => response.destroy())
      },
      /^The API at 127\.0\.0\.1:\d+ broke the connection/,
    ],
    [
      'a body without an end',
      response => {
        response.on('error', () => {})
        const more = () => void response.write(' '.repeat(1_000_000), error => error ?? more())
        more()
      },
      /^The reply of [\w.:]+ has more than 16 MB, and no reply of the API of a gateway has\./,
    ],
  ]

  it.each(WRONG)('%s', async (_, wrong, message) => {
    for (const command of ['keys list', 'consumers block acme --yes', 'keys create --consumer acme']) {
      reply = wrong
      const { code, stdout, stderr } = await byApi(command)
      expect([command, code, stdout, stderr]).toEqual([command, 1, '', expect.stringMatching(message)])
      expect(stderr).toContain('\nCheck the URL of the gateway')
    }
  })

  it.each([
    ['a time', { blockedAt: 'yesterday' }, '/blockedAt'],
    ['a name', { consumer: 5 }, '/consumer'],
    ['a name in a list', { overrides: ['minute', null] }, '/overrides/1'],
  ])('with %s of another type', async (_, members, place) => {
    const blocked = { consumer: 'acme', plan: null, blockedAt: '2026-11-26T10:00:00.000Z', overrides: [] }
    reply = json(200, () => blocked)
    expect((await byApi('consumers block acme --yes')).code).toBe(0)
    reply = json(200, () => ({ ...blocked, ...members }))
    const { code, stderr } = await byApi('consumers block acme --yes')
    expect([code, stderr]).toEqual([1, expect.stringContaining(`'${place}' is missing, or has another type`)])
  })

  it('unless it only has more members and words, as those of a newer gateway', async () => {
    const key = { ...{ id: 'acme/0123', consumer: 'acme' }, kind: 'passkey', mode: 'live', color: ['red'] }
    reply = json(200, () => ({ items: [{ ...key, createdAt: '2026-11-26T10:00:00.000Z' }], total: 1 }))
    const { code, stdout } = await byApi('keys list')
    expect([code, stdout]).toEqual([0, expect.stringContaining('passkey')])
  })

  it('a list that repeats a cursor', async () => {
    reply = json(200, () => ({ items: [], cursor: 'again' }))
    const { code, stderr } = await byApi('keys list')
    expect([code, stderr]).toEqual([1, expect.stringContaining('The list has no end')])
    expect(requests).toHaveLength(2)
  })

  it('a list whose cursors go round in a circle', async () => {
    let next = 0
    reply = json(200, () => ({ items: [], cursor: ['a', 'b', 'c'][next++ % 3] }))
    const { code, stderr } = await byApi('keys list')
    expect([code, stderr]).toEqual([1, expect.stringContaining('The list has no end')])
    expect(requests).toHaveLength(4)
  })

  it('a list with ever new cursors', async () => {
    let next = 0
    reply = json(200, () => ({ items: [], cursor: String(next++) }))
    requests = []
    const { list } = createApiClient({ url, token: TOKEN, maxPages: 10 })
    await expect(list('listKeys')).rejects.toThrow('it has more than 10 pages')
    expect(requests).toHaveLength(11)
  })

  it('a redirect, which is not followed', async () => {
    reply = response => void response.writeHead(308, { location: '//www.example.com/x' }).end()
    const { code, stderr } = await byApi('keys list')
    expect([code, stderr]).toEqual([
      1,
      'The URL of the API redirects to http://www.example.com, where the token is not sent.\nUse the URL of the gateway itself, in --api or SLUICE_API_URL.\n',
    ])
  })

  it('a creation is repeated after a page of a proxy, with the same key', async () => {
    reply = raw(504, 'text/html', '')
    await byApi('keys create --consumer acme')
    expect(requests).toHaveLength(2)
  })
})

function raw(status: number, type: string, body: string): typeof reply {
  return response => void response.writeHead(status, { 'content-type': type }).end(body)
}
