/** The shape of a route of the API, and what its handler gets. */
import type { Background } from '../../background.ts'
import type { Config } from '../../config/compile.ts'
import type { sumFields } from '../../metrics/sums.ts'
import type { AdminStore, HeldClaim } from '../../ops/admin-store-shape.ts'
import type { OverrideRules } from '../../ops/override-rules.ts'
import type { Scope } from '../../scopes.ts'
import type { DecisionSource } from '../http/handle.ts'
import type { Forbidden } from '../http/ruling.ts'
import type { Holder } from '../limits/held.ts'
import type { GuardableLimiter, Limiter } from '../limits/limiter.ts'
import type { GiveNumbers } from '../limits/numbers.ts'
import type { InputOf, InputSchema } from './json-schema.ts'
import type { KeySigning } from './key-signing.ts'
import type { SignedReceipts } from './receipts.ts'
import type { CheckedToken, TokenChecks } from './token-check.ts'

/** A request to the API with the data of its platform. */
export interface ApiRequest {
  request: Request
  url: URL
  /** The client, as rules count it. */
  address: string | undefined
  /** The other end of the connection, if the platform reports it. */
  peer(): string | undefined
  background: Background
  /** Of a blocked address or country. */
  refusal?: Forbidden | undefined
}

export type HandleApiRequest = (request: ApiRequest) => Promise<Response>

/** A request to a route. */
export interface RouteRequest extends ApiRequest {
  id: string
  /** The decoded parts of the path, by name. */
  params: Readonly<Record<string, string>>
}

/** @returns the body of the reply: an object, or a text that is JSON already @throws whatever create-api.ts replies to with a problem */
export type Serve = (request: RouteRequest) => unknown

/** The author and the reason of a change, and its request: for the audit trail. */
export interface ChangeContext {
  actor: { kind: 'token'; id: string; name: string }
  reason?: string
  requestId: string
  tokenDigest: string
}

/** What the routes of an isolate share. */
export interface Services {
  config: Config
  /** Those that are served. */
  routes: readonly Route[]
  /** What decides requests to the gateway. */
  decisions: DecisionSource
  tokens: TokenChecks
  /** The rules of the config, as overrides change them. Created at its first use, as `limits`: a Worker need not have them. */
  readonly overrides: OverrideRules
  /** The same for a limit by name. */
  overridesOf(limit: string): OverrideRules
  readonly limits: ApiLimits
  /** With `credentials.apiKeys.signature`. */
  signing: KeySigning | undefined
  /** Sums the counters of statistics. */
  sumStats: typeof sumFields
  serveAdmin: ServeAdmin
  /** ms since the epoch. */
  now(): number
}

/** A limiter. If a rule of the config counts units in flight, a receipt can hold them. */
export type HoldingLimiter = Limiter & Partial<Holder>

/** What the routes of limits by name share (limits.ts). */
export interface ApiLimits {
  limiterFor: GuardableLimiter<HoldingLimiter>
  receipts: SignedReceipts
  /** Checks the numbers that a call gives. */
  giveNumbers: GiveNumbers
  /** @returns the body of the reply */
  serve(route: LimitHandler, request: RouteRequest, services: Services): Promise<unknown>
}

/** Serves a route of administration (admin-calls.ts). @returns the body of the reply */
export type ServeAdmin = (route: AdminHandler, request: RouteRequest, services: Services) => Promise<unknown>

export interface Call<Body = unknown, Query = unknown> extends Pick<RouteRequest, 'params'> {
  body: Body
  query: Query
}

export interface LimitCall<Body> extends Call<Body> {
  limiter: HoldingLimiter
  /** Aborted when the client has left (in workerd with the flag enable_request_signal). Reading it takes time on Workers. */
  gone(): AbortSignal
}

export interface AdminCall<Body, Query> extends Call<Body, Query> {
  store: AdminStore
  token: CheckedToken
  change: ChangeContext
  /**
   * With an Idempotency-Key: keeps a creation from being repeated. Called with the id of what will be created, before anything is written.
   * @throws ApiError `repeated` with the id of what was created the first time
   */
  claim(id: string): Promise<HeldClaim | undefined>
}

interface Common {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Below /_sluice/v1, as in `keys/{consumer}/{digits}`. */
  path: string
  query?: InputSchema
  body?: InputSchema
  /** Whether it replies 201, and a header Idempotency-Key keeps it from being done twice. */
  isCreation?: true
  /** Called once for each isolate. */
  create(services: Services): Serve
}

/** A call of a limit by name. Its token is checked in the script of the call. */
export interface LimitRoute extends Common {
  kind: 'limit'
  /** @returns the body of the reply */
  run(call: LimitCall<never>, services: Services): Promise<unknown>
}

/** Its token is checked first. */
export interface AdminRoute extends Common {
  kind: 'admin'
  /** The token needs any one of them. A function: they depend on the path. */
  scopes: readonly Scope[] | ((params: Call['params']) => readonly Scope[])
  /** @returns the body of the reply */
  run(call: AdminCall<never, never>, services: Services): Promise<unknown>
}

/** `open` needs no token, and `own` a credential of the gateway itself, such as an API key. */
export interface OtherRoute extends Common {
  kind: 'open' | 'own'
}

export type LimitHandler = Pick<LimitRoute, 'body' | 'run'>
export type AdminHandler = Omit<AdminRoute, 'kind' | 'create'>

export type Route = LimitRoute | AdminRoute | OtherRoute

/** The scopes of which a token needs any one. */
export const scopesOf = ({ scopes }: AdminHandler, params: Call['params']): readonly Scope[] =>
  typeof scopes === 'function' ? scopes(params) : scopes

type OutputOf<S extends InputSchema | undefined> = S extends InputSchema ? InputOf<S> : undefined

export const limitRoute = <S extends InputSchema>(
  route: Pick<LimitRoute, 'path'> & {
    body: S
    run(call: LimitCall<InputOf<S>>, services: Services): Promise<unknown>
  },
): LimitRoute => ({
  ...{ kind: 'limit', method: 'POST', ...route },
  create: services => request => services.limits.serve(route, request, services),
})

export const adminRoute = <
  B extends InputSchema | undefined = undefined,
  Q extends InputSchema | undefined = undefined,
>(
  route: Omit<AdminHandler, 'run' | 'body' | 'query'> & {
    body?: B
    query?: Q
    run(call: AdminCall<OutputOf<B>, OutputOf<Q>>, services: Services): Promise<unknown>
  },
): AdminRoute => {
  const handler = route as AdminHandler
  return {
    ...{ kind: 'admin', ...handler },
    create: services => request => services.serveAdmin(handler, request, services),
  }
}
