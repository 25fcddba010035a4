/**
 * Random requests from the schemas of the OpenAPI document, right and broken: every reply has a documented status and body, and none is a 500.
 * With SOAK=1 100,000 of them.
 */
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { wholeDocument } from '../../docs/programs/api/make-openapi.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { mintServiceToken } from '../../src/credentials/service-token.ts'
import { SCOPES } from '../../src/scope-table.ts'
import { type ApiCall, apiOf, tokenWith } from '../support/api.ts'
import { useGatewayOn } from '../support/gateway.ts'
import { startRedis } from '../support/redis.ts'

const RUNS = process.env.SOAK ? 100_000 : 2000

/** Requests that are under way at the same time. */
const AT_ONCE = 10

const CONFIG: Partial<ConfigInput> = {
  plans: ['free', 'pro'],
  units: { tokens: { estimate: 10 } },
  credentials: { opaqueKeys: {} },
  rules: [
    { name: 'minute', by: 'consumer', algorithm: 'gcra', limit: 60, period: '1m' },
    { name: 'day', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: 'day' },
    { name: 'queue', by: 'consumer', algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 5 },
    { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 10, period: '1s' },
    { name: 'address', by: 'address', algorithm: 'gcra', limit: 10, period: '1s' },
  ],
  limits: {
    sms: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 1000, period: '1d' }],
    llm: [{ name: 'minute', by: ['team'], algorithm: 'gcra', limit: 1e6, period: '1m', unit: 'tokens' }],
    jobs: [{ name: 'at-once', algorithm: 'concurrency', limit: 10 }],
  },
}

type Schema = Record<string, unknown>

const document = wholeDocument()

/** Names and values that mean something to the API, so that not every request fails early. */
const KNOWN = fc.constantFrom(
  ...[
    'acme',
    'beta',
    'sms',
    'llm',
    'jobs',
    'minute',
    'day',
    'queue',
    'log',
    'free',
    'pro',
    'account',
    'team',
  ],
  ...['tokens', 'sms/day', 'auth0~user|1', '1h', '30d', 'never', '2030-01-01', 'abcd', '0f3a9c1d2b4e'],
)
/** Names and values that have meant something else somewhere. */
const ODD = fc.constantFrom(
  ...[
    '',
    ' ',
    '__proto__',
    'constructor',
    'toString',
    '{}',
    '}:state',
    '../x',
    '%00',
    '%2e%2e',
    '\u0000',
    '\u202e',
  ],
  ...[
    '\ud800',
    'a\nb',
    '*',
    'sluice:{consumers}:names',
    'a'.repeat(300),
    'é',
    '𝕏',
    '-1',
    '1e400',
    'null',
    '[]',
    "'; --",
  ],
)
/** What the members and the parameters of these names may be. The digits are those of the last key or token that was created, the cursor is the last one. */
const NAMED: Readonly<Record<string, readonly unknown[]>> = {
  consumer: ['acme', 'beta', 'auth0~user|1'],
  digits: ['LAST'],
  id: ['LAST'],
  caller: ['acme', '192.0.2.7', 'account=42', 'acme/LAST'],
  rule: ['minute', 'day', 'queue', 'log', 'sms/day', 'address'],
  plan: ['free', 'pro'],
  expiresAt: ['1h', '30d', '2090-01-01'],
  until: ['1h', '30d', 'never', null],
  overlap: ['0s', '1h'],
  since: ['1m', '2h', '7d'],
  cursor: ['CURSOR', '0-0'],
  target: ['acme', 'acme/LAST', 'minute', 'sms', 'LAST'],
  identity: [{ account: '42' }, { team: 'a' }, {}],
  amounts: [{ tokens: 5 }, {}],
  scopes: [['limits:use:sms'], ['stats:read', 'keys:write']],
}
const TEXT = fc.oneof({ weight: 6, arbitrary: KNOWN }, { weight: 1, arbitrary: ODD }, fc.string())

const ANYTHING = fc.anything({
  key: fc.oneof(KNOWN, ODD),
  values: [TEXT, fc.integer(), fc.double(), fc.boolean(), fc.constant(null)],
  maxDepth: 2,
})

/** Values that a schema admits, as far as KNOWN allows. @param name of the member or the parameter */
function valid(schema: Schema, name = ''): fc.Arbitrary<unknown> {
  const known = NAMED[name]
  if (known) return fc.oneof({ weight: 9, arbitrary: fc.constantFrom(...known) }, valid(schema))
  const {
    type,
    enum: words,
    anyOf,
    properties,
    required = [],
    items,
    additionalProperties,
  } = schema as {
    type?: string | string[]
    enum?: unknown[]
    anyOf?: Schema[]
    properties?: Record<string, Schema>
    required?: string[]
    items?: Schema
    additionalProperties?: Schema | boolean
  }
  if (words) return fc.constantFrom(...words)
  if (anyOf) return fc.oneof(...anyOf.map(each => valid(each)))
  if (Array.isArray(type)) return fc.oneof(...type.map(each => valid({ ...schema, type: each })))
  switch (type) {
    case 'string':
      return typeof schema.pattern === 'string' && /0-9a-f/.test(schema.pattern)
        ? fc.oneof(TEXT, fc.stringMatching(/^[0-9a-f]{64}$/))
        : TEXT
    case 'integer':
      return fc.integer({
        min: Number(schema.minimum ?? 0),
        max: Math.min(Number(schema.maximum ?? 100), 50),
      })
    case 'number':
      return fc.double({ min: 0, max: 1, noNaN: true })
    case 'boolean':
      return fc.boolean()
    case 'null':
      return fc.constant(null)
    case 'array':
      return fc.array(items ? valid(items) : ANYTHING, { maxLength: 3 })
    default: {
      const members = fc.record(
        Object.fromEntries(Object.entries(properties ?? {}).map(([name, each]) => [name, valid(each, name)])),
        { requiredKeys: required as never[] },
      )
      if (typeof additionalProperties !== 'object') return members
      return fc.dictionary(TEXT, valid(additionalProperties), { maxKeys: 2 })
    }
  }
}

/** The same with a member that is wrong, missing or too much. */
const broken = (schema: Schema): fc.Arbitrary<unknown> =>
  fc.oneof(
    ANYTHING,
    fc
      .tuple(
        valid(schema),
        fc.oneof(KNOWN, ODD, fc.constantFrom(...Object.keys((schema.properties as object) ?? { a: 1 }))),
        ANYTHING,
      )
      .map(([value, name, other]) =>
        typeof value === 'object' && value !== null ? { ...value, [name]: other } : other,
      ),
  )

interface Request {
  what: string
  /** What it has as its token. GET usage needs an API key. */
  as: 'token' | 'weak token' | 'key' | 'unknown token' | 'unknown key' | 'no one'
  body?: string
  headers: Record<string, string>
}

const requests: fc.Arbitrary<Request> = fc.oneof(
  ...Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => requestOf(path, method, operation as Schema)),
  ),
)

function requestOf(path: string, method: string, operation: Schema): fc.Arbitrary<Request> {
  const { parameters = [], requestBody } = operation as {
    parameters?: { name?: string; in?: string; schema?: Schema }[]
    requestBody?: { content: Record<string, { schema: Schema }> }
  }
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!)
  const limit = fc.oneof(
    { weight: 19, arbitrary: fc.constantFrom('sms', 'llm', 'jobs', 'none') },
    { weight: 1, arbitrary: TEXT },
  )
  const parts = fc.tuple(...names.map(name => (name === 'name' ? limit : valid({ type: 'string' }, name))))
  const query = fc.record(
    Object.fromEntries(
      parameters.filter(each => each.in === 'query').map(({ name, schema }) => [name!, valid(schema!, name)]),
    ),
    { requiredKeys: [] },
  )
  const schema = requestBody?.content['application/json']?.schema
  const body = schema
    ? fc.oneof(
        { weight: 5, arbitrary: valid(schema).map(value => JSON.stringify(value)) },
        { weight: 4, arbitrary: broken(schema).map(value => JSON.stringify(value) ?? 'undefined') },
        { weight: 1, arbitrary: fc.string() },
      )
    : fc.constant(undefined)
  const headers = fc.record(
    {
      'idempotency-key': fc.oneof(
        { weight: 6, arbitrary: fc.uuid() },
        fc.constantFrom('a', 'b', ''),
        fc.stringMatching(/^[ -~]{1,300}$/),
      ),
      'sluice-reason': fc.stringMatching(/^[ -~]{0,120}$/),
      'content-encoding': fc.constantFrom(...Array<string>(15).fill('identity'), 'gzip'),
      'content-type': fc.oneof(
        { weight: 9, arbitrary: fc.constantFrom('application/json', 'application/json; charset=utf-8') },
        fc.constantFrom('text/plain', ''),
      ),
    },
    { requiredKeys: [] },
  )
  const usual = operation.operationId === 'usage' ? ('key' as const) : ('token' as const)
  const as = fc.oneof(
    { weight: 19, arbitrary: fc.constant(usual) },
    fc.constantFrom(
      'weak token' as const,
      'key' as const,
      'unknown token' as const,
      'unknown key' as const,
      'no one' as const,
    ),
  )
  return fc
    .tuple(parts, query, body, headers, fc.boolean(), as)
    .map(([values, query, body, headers, sendsQuery, as]) => {
      const filled = names.reduce(
        (at, name, i) => at.replace(`{${name}}`, encoded(String(values[i]))),
        path.slice(1),
      )
      const search = new URLSearchParams(
        Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
      )
      return {
        what: `${method.toUpperCase()} ${filled}${sendsQuery && search.size > 0 ? `?${search}` : ''}`,
        ...(body !== undefined && { body }),
        as,
        headers: headers as Record<string, string>,
      }
    })
}

/** Half of a pair of surrogates cannot be encoded, and a URL has no segment of dots. */
const encoded = (text: string) => encodeURIComponent(text.toWellFormed().replace(/^\.{1,2}$/, 'dots'))

describe('random requests', () => {
  const gateway = useGatewayOn(() => startRedis())
  let api: ApiCall
  let token: string
  let weakToken: string
  let key: string
  beforeAll(async () => {
    api = apiOf(gateway, CONFIG)
    await startAfresh()
  })

  async function startAfresh(): Promise<void> {
    await gateway.redis.connection.send(['FLUSHALL'])
    token = await tokenWith(gateway, Object.keys(SCOPES))
    weakToken = await tokenWith(gateway, ['limits:use:sms'])
    key = await gateway.key('acme')
  }

  it(`get documented replies, none of them a 500 (${RUNS})`, async () => {
    const statuses = new Map<number, number>()
    let last = 'abcd'
    let cursor = 'x'
    const byOperation = new Map<string, number>()
    const credentials = {
      token: () => token,
      'weak token': () => weakToken,
      key: () => key,
      'unknown token': () => mintServiceToken(undefined),
      'unknown key': () => mintApiKey('acme'),
      'no one': () => undefined,
    }
    let batches = 0
    async function send({ what, body, headers, as }: Request): Promise<void> {
      // A wait takes as long as it says.
      const text = body?.replace(/"waitMs":\d+/, '"waitMs":1')
      const credential = credentials[as]()
      // After 20 unknown tokens, their address can use no token that is new to the isolate.
      const address = as === 'unknown token' ? '198.51.100.7' : '192.0.2.1'
      const { status, body: reply } = await api(what.replaceAll('LAST', last).replace('CURSOR', cursor), {
        ...{ headers, address, ...(credential !== undefined && { token: credential }) },
        ...(text !== undefined && { text }),
      })
      if (status === 201) last = String(reply.id).split('/').at(-1)!
      cursor = reply?.cursor ?? cursor
      const operation = `${what.split(/[/?]/)[0]} ${status}`
      byOperation.set(operation, (byOperation.get(operation) ?? 0) + 1)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
      expect([what, status]).not.toEqual([what, 500])
    }
    await fc.assert(
      fc.asyncProperty(fc.array(requests, { minLength: AT_ONCE, maxLength: AT_ONCE }), async batch => {
        // The store stays small, so that a long run stays fast.
        if (++batches % (1000 / AT_ONCE) === 0) await startAfresh()
        await Promise.all(batch.map(send))
      }),
      {
        numRuns: RUNS / AT_ONCE,
        endOnFailure: true,
        ...(process.env.SEED && { seed: Number(process.env.SEED) }),
      },
    )
    console.log(
      [...statuses]
        .sort(([a], [b]) => a - b)
        .map(each => each.join(': '))
        .join(', '),
    )
    // On a busy machine, the store may be too slow now and then.
    expect(statuses.get(503) ?? 0).toBeLessThan(RUNS / 1000)
    // In a long run, usage and the audit trail succeed often enough, too. A short one may have none.
    for (const operation of RUNS < 10_000 ? [] : ['GET usage 200', 'GET audit 200'])
      expect(byOperation.get(operation) ?? 0, operation).toBeGreaterThan(RUNS / 4000)
    // Both kinds, or the requests are of no use. One request in 500 is refused by what is stored, so a short run may have none.
    for (const status of [200, 201, 400, 404, ...(RUNS < 10_000 ? [] : [422])])
      expect(statuses.get(status) ?? 0).toBeGreaterThan(0)
  }, 3_600_000)
})
