/** The HTTP API of a gateway, which commands use in place of the store (`--api`). */
import { isStoreUrl } from '../../config/forms.ts'
import { readServiceToken } from '../../credentials/service-token.ts'
import { AdminError, type AdminFailure } from '../../ops/admin-error.ts'
import { parseShortText, printable } from '../../ops/names.ts'
import { describeFailure, isOnThisMachine } from '../../ops/store-failure.ts'
import { API_PATH } from '../../set-ups/api/create-api.ts'
import { MAX_ITEMS } from '../../set-ups/api/cursor.ts'
import { operationOf } from '../../set-ups/api/openapi-operations.ts'
import { type ChangeState, type InputMistake, problemType } from '../../set-ups/api/problems.ts'
import type { Route } from '../../set-ups/api/route.ts'
import { ROUTES } from '../../set-ups/api/routes.ts'

/** Longer than that of the store, because the gateway can make several trips to it. */
const DEADLINE_MS = 15_000

export interface ApiCall {
  /** The parts of the path, by name. */
  params?: Readonly<Record<string, string>>
  /** Without those that are undefined. */
  query?: Readonly<Record<string, string | undefined>>
  body?: Readonly<Record<string, unknown>>
  /** Of a change. */
  reason?: string | undefined
}

export interface ApiClient {
  /** Calls a route by the id of its operation, and returns its document. @throws AdminError */
  call<T>(id: string, call?: ApiCall): Promise<T>
  /** As `call`, for all pages of a list. @param isWanted ends the list before the first item for which it is false */
  list<T>(id: string, call?: ApiCall, isWanted?: (item: T) => boolean): Promise<T[]>
}

export interface ApiClientOptions {
  /** Of the gateway. */
  url: string
  /** A service token. */
  token: string | undefined
  deadlineMs?: number
  fetch?: typeof fetch
}

/** @throws AdminError `usage` for a URL or a token that is not valid. No message repeats them: they may be secrets */
export function createApiClient({
  url,
  token,
  deadlineMs = DEADLINE_MS,
  fetch = globalThis.fetch,
}: ApiClientOptions): ApiClient {
  const root = rootOf(url)
  const authorization = `Bearer ${serviceToken(token)}`

  async function send(route: Route, call: ApiCall, idempotencyKey?: string): Promise<unknown> {
    const { body, reason } = withReason(route, call)
    const headers = {
      authorization,
      ...(body && { 'content-type': 'application/json' }),
      ...(reason !== undefined && { 'sluice-reason': reason }),
      ...(idempotencyKey && { 'idempotency-key': idempotencyKey }),
    }
    const reply = await fetch(`${root}/${pathOf(route, call)}`, {
      method: route.method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
      // Another server must not get the token.
      redirect: 'manual',
      signal: AbortSignal.timeout(deadlineMs),
    })
      .then(async response => ({ response, document: documentIn(await response.text()) }))
      .catch((error: unknown) => {
        throw new LostReply(error)
      })
    const { response, document } = reply
    if (response.ok && document) return document
    throw failureOf(response, document)
  }

  function lost({ cause }: LostReply): AdminError {
    const [what, nextStep] = describeFailure(cause, { deadlineMs, test: CHECK_URL })
    return new AdminError('store', `The API at ${new URL(root).host} ${what}`, nextStep)
  }

  async function call<T>(id: string, call: ApiCall = {}): Promise<T> {
    const route = routeOf(id)
    const key = route.isCreation && crypto.randomUUID()
    try {
      const first = send(route, call, key)
      // With the same key, a second request creates nothing if the first has.
      return (await (key ? first.catch(error => repeat(error, route, call, key)) : first)) as T
    } catch (error) {
      throw error instanceof LostReply ? lost(error) : error
    }
  }

  async function repeat(error: unknown, route: Route, call: ApiCall, key: string): Promise<unknown> {
    const isUnknown = error instanceof ApiFailure && error.change === 'unknown'
    if (!(error instanceof LostReply || isUnknown)) throw error
    return await send(route, call, key).catch((second: unknown) => {
      const { createdId } = second as ApiFailure
      if (createdId === undefined) throw second
      throw new AdminError(
        'store',
        `The reply was lost when the API created '${createdId}'. Its secret cannot be shown again: revoke it, and create another.`,
      )
    })
  }

  return {
    call,
    async list<T>(
      id: string,
      { query, ...others }: ApiCall = {},
      isWanted: (item: T) => boolean = () => true,
    ) {
      const items: T[] = []
      let cursor: string | undefined
      do {
        const page = await call<{ items: T[]; cursor?: string }>(id, {
          ...others,
          query: { ...query, limit: String(MAX_ITEMS), cursor },
        })
        const end = page.items.findIndex(item => !isWanted(item))
        if (end >= 0) return [...items, ...page.items.slice(0, end)]
        items.push(...page.items)
        cursor = page.cursor
      } while (cursor !== undefined)
      return items
    },
  }
}

class LostReply extends Error {
  constructor(cause: unknown) {
    super('The reply was lost.', { cause })
  }
}

class ApiFailure extends AdminError {
  /** Of what an earlier request with the same Idempotency-Key has created. */
  readonly createdId: string | undefined
  readonly change: ChangeState | undefined

  constructor(
    kind: AdminFailure,
    message: string,
    { nextStep, id, change }: { nextStep: string } & Pick<ApiProblem, 'id' | 'change'>,
  ) {
    super(kind, message, nextStep)
    this.createdId = id
    this.change = change
  }
}

function rootOf(url: string): string {
  if (!isStoreUrl(url) || /[?#]/.test(url))
    throw new AdminError(
      'usage',
      'The URL of the API is not valid. Use that of the gateway, such as https://gateway.example.com, in --api or SLUICE_API_URL.',
    )
  if (new URL(url).protocol === 'http:' && !isOnThisMachine(url))
    throw new AdminError(
      'usage',
      'The URL of the API begins with http:, which encrypts no token. Use https:.',
    )
  const base = url.replace(/\/+$/, '')
  return base.endsWith(API_PATH) ? base : base + API_PATH
}

function serviceToken(token: string | undefined): string {
  if (!token)
    throw new AdminError('usage', 'The API needs a service token. Set SLUICE_API_TOKEN, or use --token.')
  if (readServiceToken(token)) return token
  throw new AdminError(
    'usage',
    'The token is not a service token, or was not copied whole: these begin with slt_. With --api, --token is a service token (npx sluicegate tokens create).',
  )
}

function routeOf(id: string): Route {
  const route = ROUTES.find(each => operationOf(each).id === id)
  if (!route) throw new Error(`The table of routes has no '${id}'.`)
  return route
}

function pathOf({ path }: Route, { params = {}, query = {} }: ApiCall): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodePart(params[name]!))
  const given = Object.entries(query).filter((each): each is [string, string] => each[1] !== undefined)
  return given.length > 0 ? `${filled}?${new URLSearchParams(given)}` : filled
}

/** @throws AdminError for a text that would lead to another path */
function encodePart(text: string): string {
  if (/^\.{0,2}$/.test(text) || !text.isWellFormed())
    throw new AdminError('usage', `'${printable(text)}' is not a name. Use the name that a list shows.`)
  return encodeURIComponent(text)
}

/** The reason goes into the body where that has one, because a header cannot have every character. */
function withReason({ body: schema }: Route, { body, reason }: ApiCall): Pick<ApiCall, 'body' | 'reason'> {
  if (reason === undefined) return { ...(body && { body }) }
  const text = parseShortText(reason, 'reason')
  if (schema?.properties?.reason) return { body: { ...body, reason: text } }
  if (/^[\x20-\x7e]*$/.test(text)) return { ...(body && { body }), reason: text }
  throw new AdminError(
    'usage',
    '--reason: use letters of ASCII, because the API gets the reason in a header.',
  )
}

function documentIn(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

const CHECK_URL = 'Check the URL of the gateway, from --api or SLUICE_API_URL.'

const CHECK_TOKEN = 'Check the service token, from --token or SLUICE_API_TOKEN.'

interface ApiProblem {
  type: string
  detail: string
  requestId: string
  errors?: readonly InputMistake[]
  id?: string
  change?: ChangeState
}

function failureOf({ status, headers }: Response, document: object | undefined): AdminError {
  const { type, detail, requestId, errors, id, change } = (document ?? {}) as Partial<ApiProblem>
  if (!type?.startsWith('urn:sluice:problem:'))
    return new AdminError(
      'store',
      `There is no API of a gateway at this URL: the reply has status ${status} and ${kindOfContent(headers)}.`,
      `${CHECK_URL} The config of the gateway needs api: {}.`,
    )
  const mistakes = errors?.map(({ pointer, detail }) => (pointer ? `${pointer}: ${detail}` : detail))
  const fix = status === 401 ? [CHECK_TOKEN] : []
  return new ApiFailure(failureKind(status, type), shown(mistakes?.join('\n') ?? String(detail)), {
    nextStep: [...fix, `Request ID: ${printable(String(requestId))}`].join('\n'),
    ...(id !== undefined && { id: String(id) }),
    ...(change && { change }),
  })
}

const kindOfContent = (headers: Headers) =>
  printable(headers.get('content-type')?.split(';')[0]?.slice(0, 60) ?? '') || 'no type'

const shown = (text: string) => text.split('\n').map(printable).join('\n')

function failureKind(status: number, type: string): AdminFailure {
  if (type === problemType('conflict')) return 'conflict'
  if (status === 400) return 'usage'
  if (status === 401 || status === 403) return 'forbidden'
  if (status === 404) return 'not-found'
  return status === 429 || status >= 500 ? 'store' : 'refused'
}
