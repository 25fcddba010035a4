/** The API of a gateway on Node. Every reply is validated against the OpenAPI document. */
import { readFileSync } from 'node:fs'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import { expect } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { API_PATH } from '../../src/set-ups/api/create-api.ts'
import { api } from '../../src/set-ups/api/index.ts'
import { createMatchRoute } from '../../src/set-ups/api/match-route.ts'
import { ROUTES } from '../../src/set-ups/api/routes.ts'
import { type App, type TestGateway, type TestPlatform, TOKEN } from './gateway.ts'

const DOCUMENT = JSON.parse(
  readFileSync(new URL('../../docs/openapi.json', import.meta.url), 'utf8'),
) as Record<string, unknown>

/** With `routes: 'all'`, this config serves every route: some routes need a setting. */
export const EVERY_ROUTE = {
  credentials: { opaqueKeys: {} },
  units: { tokens: { estimate: 100 } },
  limits: {
    sms: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: '1d', overridable: true }],
    llm: [{ name: 'minute', algorithm: 'gcra', limit: 1000, period: '1m', unit: 'tokens' }],
    jobs: [{ name: 'at-once', algorithm: 'concurrency', limit: 2 }],
  },
} satisfies Partial<ConfigInput>

export interface ApiReply {
  status: number
  headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: tests read many shapes
  body: any
}

export interface ApiInit {
  token?: string
  /** Sent as JSON. */
  body?: unknown
  /** Sent as it is. */
  text?: string
  headers?: Record<string, string>
  address?: string
}

/** `api('POST keys', { token, body })` */
export type ApiCall = (what: string, init?: ApiInit) => Promise<ApiReply>

/** @param fetch gets a path below the root */
export function apiClient(fetch: (path: string, init: RequestInit) => Promise<Response>): ApiCall {
  return async (what, { token, body, text, headers = {}, address } = {}) => {
    const [method = '', path = ''] = what.split(' ')
    const json = text ?? (body === undefined ? undefined : JSON.stringify(body))
    const response = await fetch(`${API_PATH}/${path}`, {
      method,
      headers: {
        ...(token && { authorization: `Bearer ${token}` }),
        ...(json !== undefined && { 'content-type': 'application/json' }),
        ...(address && { 'cf-connecting-ip': address }),
        ...headers,
      },
      ...(json !== undefined && { body: json }),
    })
    const reply = { status: response.status, headers: response.headers, body: await bodyOf(response) }
    mustBeDocumented(method, path, reply)
    return reply
  }
}

const bodyOf = async (response: Response): Promise<unknown> => {
  const text = await response.text()
  return text === '' ? undefined : JSON.parse(text)
}

/** An object has only the members that its schema names, so that none is left out of the document. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed)
  if (typeof schema !== 'object' || schema === null) return schema
  const members = Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, closed(value)]))
  const isOpen = 'properties' in schema && !('additionalProperties' in schema)
  return isOpen ? { ...members, additionalProperties: false } : members
}

type Node = Readonly<Record<string, unknown>>

const CLOSED = closed(DOCUMENT) as { paths: Node; components: { responses: Node } } & Node
const ajv = new Ajv2020({ strict: false, allErrors: true })
formats.default(ajv)
ajv.addSchema({ ...CLOSED, $id: 'openapi' })

const compiled = new Map<Node, ValidateFunction>()

function validatorOf(schema: Node): ValidateFunction {
  const known = compiled.get(schema)
  if (known) return known
  const text = JSON.stringify(schema).replaceAll('"$ref":"#/', '"$ref":"openapi#/')
  const made = ajv.compile(JSON.parse(text) as object)
  compiled.set(schema, made)
  return made
}

/** Fails unless the document has this status for the operation, and its schema has this body. */
export function mustBeDocumented(method: string, path: string, { status, headers, body }: ApiReply): void {
  expect(headers.get('x-request-id'), `${method} ${path}`).toMatch(/^[0-9a-f-]{36}$/)
  const type = headers.get('content-type') ?? ''
  const matched = createMatchRoute(ROUTES)(method, path.split('?')[0]!)
  const isProblem = type.startsWith('application/problem+json')
  if (isProblem) expect(body).toMatchObject({ status, requestId: headers.get('x-request-id') })
  const operation =
    'route' in matched && valueAt(CLOSED.paths, `/${matched.route.path}`, method.toLowerCase())
  const found = operation
    ? valueAt(operation, 'responses', String(status))
    : status === 405
      ? { content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } } }
      : { $ref: `#/components/responses/${status}` }
  const response =
    found && '$ref' in found ? valueAt(CLOSED, ...String(found.$ref).slice(2).split('/')) : found
  const schema =
    response &&
    valueAt(response, 'content', isProblem ? 'application/problem+json' : 'application/json', 'schema')
  const what = `${method} ${path} replied ${status} ${type} ${JSON.stringify(body)}`
  expect(schema, `${what}, which is not documented`).toBeDefined()
  const validate = validatorOf(schema!)
  expect([validate(body), validate.errors], what).toEqual([true, null])
}

const valueAt = (node: Node, ...path: string[]): Node | undefined =>
  path.reduce<Node | undefined>((at, name) => at?.[name] as Node | undefined, node)

export async function tokenWith(
  gateway: Pick<TestGateway, 'admin' | 'store' | 'app'>,
  scopes: readonly string[],
  { name = 'test', environment, expiresAt }: { name?: string; environment?: string; expiresAt?: Date } = {},
): Promise<string> {
  const store =
    environment === undefined
      ? gateway.admin
      : createAdminStore({ url: gateway.store.url, token: TOKEN, environment })
  return (await createToken(store, { name, scopes, ...(expiresAt && { expiresAt }) })).token
}

/** An isolate of a gateway with the API. */
export function apiOf(
  gateway: Pick<TestGateway, 'admin' | 'store' | 'app'>,
  config: Partial<ConfigInput> = {},
  platform: TestPlatform = {},
): ApiCall {
  const app = appWithApi(gateway, config, platform)
  return apiClient((path, init) => app(path, init))
}

export function appWithApi(
  gateway: Pick<TestGateway, 'admin' | 'store' | 'app'>,
  config: Partial<ConfigInput>,
  platform: TestPlatform = {},
): App {
  const variables = { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN }
  return gateway.app(
    { rules: [], api: { routes: 'all' }, ...config },
    { ...platform, variables: { ...variables, ...platform.variables }, parts: { ...api, ...platform.parts } },
  )
}
