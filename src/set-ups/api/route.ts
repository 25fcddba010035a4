/** The shape of a route of the API, and what its handler gets. */
import type { Config } from '../../config/compile.ts'
import type { AdminStore, HeldClaim } from '../../ops/admin-store-shape.ts'
import type { OverrideRules } from '../../ops/override-rules.ts'
import { type Scope, scopesForLimit } from '../../scopes.ts'
import type { InputOf, InputSchema } from './json-schema.ts'
import type { ApiLimits, HoldingLimiter } from './limits.ts'
import type { createOwnUsage } from './own-usage.ts'
import type { CheckedToken, TokenChecks } from './token-check.ts'

/** The author and the reason of a change, and its request: for the audit trail. */
export interface ChangeContext {
  actor: { kind: 'token'; id: string; name: string }
  reason?: string
  requestId: string
  tokenDigest: string
}

/** What the handlers of an isolate share. */
export interface Services {
  config: Config
  /** The rules of the config, as overrides change them. */
  overrides: OverrideRules
  /** Created at its first use: a Worker need not have it. */
  readonly limits: ApiLimits
  tokens: TokenChecks
  /** With `credentials.apiKeys.signature`. @throws AdminError if the gateway would refuse a new key */
  mustSignNewKeys?: ((store: AdminStore) => void) | undefined
  /** ms since the epoch. */
  now(): number
}

export interface Call<Body = unknown, Query = unknown> {
  /** The decoded parts of the path, by name. */
  params: Readonly<Record<string, string>>
  body: Body
  query: Query
}

export interface LimitCall<Body> extends Call<Body> {
  limiter: HoldingLimiter
}

export interface AdminCall<Body, Query> extends Call<Body, Query> {
  store: AdminStore
  token: CheckedToken
  change: ChangeContext
  /**
   * @param what needs the scope, for the message
   * @throws ApiError `forbidden` unless the token has it
   */
  mustHave(scope: Scope, what: string): void
  /**
   * With an Idempotency-Key: keeps a creation from being repeated. Called with the id of what will be created, before anything is written.
   * @throws ApiError `repeated` with the id of what was created the first time
   */
  claim(id: string): Promise<HeldClaim | undefined>
}

export interface Reply {
  body?: unknown
}

interface Common {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Below /_sluice/v1, as in `keys/{consumer}/{digits}`. */
  path: string
  query?: InputSchema
  body?: InputSchema
  /** Of a success. Default: 200. */
  status?: 201
  /** Whether a header Idempotency-Key keeps it from being done twice. */
  isCreation?: true
}

/** A call of a limit by name. Its token is checked in the script of the call. */
export interface LimitRoute extends Common {
  kind: 'limit'
  run(call: LimitCall<never>, services: Services): Promise<Reply>
}

/** Its token is checked first. */
export interface AdminRoute extends Common {
  kind: 'admin'
  /** The token needs any one of them. `limits:use`: or that of the limit in the path. */
  scopes: readonly Scope[]
  run(call: AdminCall<never, never>, services: Services): Promise<Reply>
}

/** Needs no token. */
export interface OpenRoute extends Common {
  kind: 'open'
  /** @param routes that are served */
  create(routes: readonly Route[]): () => Response
}

/** Needs a credential of the gateway itself, such as an API key. */
export interface OwnRoute extends Common {
  kind: 'own'
  create: typeof createOwnUsage
}

export type Route = LimitRoute | AdminRoute | OpenRoute | OwnRoute

/** The scopes of which a token needs any one. */
export const scopesOf = ({ scopes }: AdminRoute, { name }: Call['params']): readonly Scope[] =>
  scopes.flatMap(scope => (scope === 'limits:use' ? scopesForLimit(name!) : scope))

type OutputOf<S extends InputSchema | undefined> = S extends InputSchema ? InputOf<S> : undefined

export const limitRoute = <S extends InputSchema>(
  route: Omit<LimitRoute, 'kind' | 'run' | 'body' | 'method'> & {
    body: S
    run(call: LimitCall<InputOf<S>>, services: Services): Promise<Reply>
  },
): LimitRoute => ({ kind: 'limit', method: 'POST', ...route })

export const adminRoute = <
  B extends InputSchema | undefined = undefined,
  Q extends InputSchema | undefined = undefined,
>(
  route: Omit<AdminRoute, 'kind' | 'run' | 'body' | 'query'> & {
    body?: B
    query?: Q
    run(call: AdminCall<OutputOf<B>, OutputOf<Q>>, services: Services): Promise<Reply>
  },
): AdminRoute => ({ kind: 'admin', ...route }) as AdminRoute
