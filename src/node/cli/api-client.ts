/** The HTTP API of a gateway, which commands use in place of the store (`--api`). */
import { isStoreUrl } from '../../config/forms.ts'
import { readServiceToken } from '../../credentials/service-token.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { parseShortText, printable } from '../../ops/names.ts'
import { describeFailure, isOnThisMachine } from '../../ops/store-failure.ts'
import { API_PATH } from '../../set-ups/api/create-api.ts'
import { MAX_ITEMS } from '../../set-ups/api/cursor.ts'
import { operationOf } from '../../set-ups/api/openapi-operations.ts'
import type { Route } from '../../set-ups/api/route.ts'
import { ROUTES } from '../../set-ups/api/routes.ts'
import { ApiFailure, CHECK_URL, documentOf, LostReply, readReply } from './api-reply.ts'

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

/** A million items. */
const MAX_PAGES = 10_000

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
  /** Of a list. A server that is not a gateway could send pages without end. */
  maxPages?: number
  fetch?: typeof fetch
}

/** @throws AdminError `usage` for a URL or a token that is not valid. No message repeats them: they may be secrets */
export function createApiClient({
  url,
  token,
  deadlineMs = DEADLINE_MS,
  maxPages = MAX_PAGES,
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
    const target = `${root}/${pathOf(route, call)}`
    const reply = await fetch(target, {
      method: route.method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
      // Another server must not get the token.
      redirect: 'manual',
      signal: AbortSignal.timeout(deadlineMs),
    })
      .then(readReply)
      .catch((error: unknown) => {
        throw new LostReply(error)
      })
    return documentOf(route, target, reply)
  }

  function lost({ cause }: LostReply): AdminError {
    if (cause instanceof AdminError) return cause
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
      const cursors = new Set<string>()
      let cursor: string | undefined
      for (;;) {
        const page = await call<{ items: T[]; cursor?: string }>(id, {
          ...others,
          query: { ...query, limit: String(MAX_ITEMS), cursor },
        })
        const end = page.items.findIndex(item => !isWanted(item))
        if (end >= 0) return [...items, ...page.items.slice(0, end)]
        items.push(...page.items)
        cursor = page.cursor
        if (cursor === undefined) return items
        if (cursors.has(cursor) || cursors.size >= maxPages)
          throw new AdminError(
            'store',
            `The list has no end: the API repeats a page of it, or it has more than ${maxPages} pages.`,
            CHECK_URL,
          )
        cursors.add(cursor)
      }
    },
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

/** The reason goes into the body where that has one, else into a header, as UTF-8. */
function withReason({ body: schema }: Route, { body, reason }: ApiCall): Pick<ApiCall, 'body' | 'reason'> {
  if (reason === undefined) return { ...(body && { body }) }
  const text = parseShortText(reason, 'reason')
  if (schema?.properties?.reason) return { body: { ...body, reason: text } }
  // Fetch sends a character of a header as a byte.
  return { ...(body && { body }), reason: Buffer.from(text).toString('latin1') }
}
