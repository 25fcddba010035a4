/** JSON that is valid and means harm: as deep as a body can be, with numbers beyond every range, with names that every object has. */
import { beforeAll, expect, it } from 'vitest'
import { wholeDocument } from '../../docs/programs/api/make-openapi.ts'
import { SCOPES } from '../../src/scope-table.ts'
import { MAX_BODY } from '../../src/set-ups/api/read-body.ts'
import { type ApiCall, apiOf, EVERY_ROUTE, tokenWith } from '../support/api.ts'
import { useGatewayOn } from '../support/gateway.ts'
import { startRedis } from '../support/redis.ts'

const gateway = useGatewayOn(() => startRedis())
let api: ApiCall
let token: string
beforeAll(async () => {
  api = apiOf(gateway, EVERY_ROUTE)
  token = await tokenWith(gateway, Object.keys(SCOPES))
})

const nested = (open: string, close: string, bytes: number) => {
  const depth = Math.floor(bytes / (open.length + close.length))
  return open.repeat(depth).slice(0, -open.length) + (open[0] === '[' ? '[]' : '{}') + close.repeat(depth - 1)
}

/** Each takes a moment. */
const LARGE: readonly [name: string, json: string][] = [
  ['lists as deep as a body can be', nested('[', ']', MAX_BODY - 1000)],
  ['objects as deep as a body can be', nested('{"a":', '}', MAX_BODY - 1000)],
  ['5,000 members', `{${Array.from({ length: 5000 }, (_, i) => `"m${i}":1`).join()}}`],
  ['a number with 60,000 digits', '9'.repeat(60_000)],
]

const SMALL: readonly string[] = [
  ...['1e400', '-1e400', '9007199254740993', '5e-324', '-0'],
  ...['"\\ud800"', '"\\u0000"', '"__proto__"'],
  ...['{"__proto__":{"limit":1}}', '{"constructor":{"prototype":{"limit":1}}}'],
]

type Schema = { properties?: Record<string, Schema>; anyOf?: Schema[]; type?: string }
interface Operation {
  what: string
  /** The members of its body. */
  members: string[]
}

const OPERATIONS: readonly Operation[] = Object.entries(wholeDocument().paths).flatMap(([path, methods]) =>
  Object.entries(methods as Record<string, { requestBody?: { content: Record<string, { schema: Schema }> } }>)
    .filter(([, { requestBody }]) => requestBody)
    .map(([method, { requestBody }]) => ({
      what: `${method.toUpperCase()} ${path
        .slice(1)
        .replace('{name}', 'llm')
        .replace(/\{\w+\}/g, 'acme')}`,
      members: Object.keys(requestBody!.content['application/json']!.schema.properties ?? {}),
    })),
)

it.each(OPERATIONS)('$what never gets a 500', async ({ what, members }) => {
  const [first = 'a'] = members
  const bodies: [name: string, text: string][] = [
    ...LARGE,
    ...LARGE.map(([name, json]): [string, string] => [`${first}: ${name}`, `{"${first}":${json}}`]),
    ...SMALL.flatMap(json => [json, ...members.map(each => `{"${each}":${json}}`)]).map(
      (text): [string, string] => [text, text],
    ),
    ['a member twice', `{"${first}":1,"${first}":{}}`],
  ]
  for (const [name, text] of bodies) {
    const { status } = await api(what, { token, text })
    expect(status, name).toBeLessThan(500)
  }
})
