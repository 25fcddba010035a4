/** The HTTP API under /_sluice/v1/: find the route → authenticate → check the input → handle. */
import type { AlgorithmName } from '../../algorithms/all.ts'
import type { Numbers } from '../../algorithms/descriptor.ts'
import type { Background } from '../../background.ts'
import type { Clock } from '../../clock.ts'
import { servedRoutes } from '../../config/api-routes.ts'
import { auditKeepMs } from '../../config/audit-keep.ts'
import type { ApiRoutes } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'
import { KEY_SECRET } from '../../credentials/key-signature.ts'
import { GatewayError } from '../../errors.ts'
import type { AdminConnection } from '../../ops/admin-connection.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { adminStoreOn, withActor } from '../../ops/admin-store-on.ts'
import type { KeySpace, OnCluster, RuleSets } from '../../ops/admin-store-shape.ts'
import type { KeySigning } from '../../ops/key-signing.ts'
import { parseShortText } from '../../ops/names.ts'
import { createOverrideRules, type RuleTools } from '../../ops/override-rules.ts'
import { restConnection } from '../../ops/upstash-connection.ts'
import { hasAnyOf, scopesForLimit } from '../../scopes.ts'
import { createGatewayRuleSet, createLimitRuleSet } from '../../script/rule-set.ts'
import type { Store } from '../../store/store.ts'
import { createSwitchBoard, type SwitchBoard } from '../../switches/live.ts'
import type { answerPreflight, setAllowedOrigin } from '../http/cors.ts'
import { deny } from '../http/deny.ts'
import type { DecisionSource } from '../http/handle.ts'
import type { Forbidden } from '../http/ruling.ts'
import { logException } from '../http/unexpected.ts'
import type { LimiterSettings } from '../limits/limiter.ts'
import type { LimiterParts } from '../limits/parts.ts'
import { readBearer, refusalError, refuseServiceToken, scopeError } from './authenticate.ts'
import { checkInput } from './check-input.ts'
import { createClaim } from './idempotency.ts'
import type { ApiLimitParts, ApiLimits, createApiLimits } from './limits.ts'
import { createMatchRoute } from './match-route.ts'
import type { ShowOwnUsage } from './own-usage.ts'
import { ApiError, asApiError, invalidInput, replyToProblem } from './problems.ts'
import { readJson } from './read-body.ts'
import {
  type AdminRoute,
  type ChangeContext,
  type LimitRoute,
  type Reply,
  type Route,
  type Services,
  scopesOf,
} from './route.ts'
import { adminError, changeState, storeError } from './store-error.ts'
import { createTokenChecks } from './token-check.ts'
import { trackChanges } from './track-changes.ts'

/** Where the API is. */
export const API_PATH = '/_sluice/v1'

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

/** The parts that a Worker with the API carries in addition to those of the gateway. */
export interface ApiParts extends ApiLimitParts {
  createApi: typeof createApi
  /** Those that are served. */
  apiRoutes: Readonly<Partial<Record<ApiRoutes, readonly Route[]>>>
  /** With limits by name. */
  createApiLimits: typeof createApiLimits
  /** With `credentials.apiKeys.signature`. */
  keySigning: KeySigning
  /** With `store.cluster`. */
  opsOnCluster: OnCluster
  /** Of the algorithms of the rules. */
  ruleNumbers: Readonly<Partial<Record<AlgorithmName, RuleNumbers>>>
  /** With overrides, and rules that are estimated. */
  mistakesOfSettlement: RuleTools['mistakesOfSettlement']
}

interface RuleNumbers {
  numbers: Numbers
  /** The third number of the script, if it depends on the numbers of a rule. */
  third?: 'burst' | 'step'
}

/** With `api.cors`. */
interface CorsParts {
  answerPreflight: typeof answerPreflight
  setAllowedOrigin: typeof setAllowedOrigin
}

export interface ApiOptions {
  /** Of the environment: the address of the store, and secrets. */
  variables: Readonly<Record<string, unknown>> | undefined
  clock: Clock
  /** Tests pass their own. */
  board?: SwitchBoard | undefined
  connection?: AdminConnection | undefined
  /** From which receipts get their key: all isolates have the same. Default: the token of the store. */
  secret?: string | undefined
  /** Of limits by name. Default: that of Workers. */
  limiter?: Pick<LimiterSettings, 'waitUntil' | 'clock'> | undefined
  /** What decides requests to the gateway. */
  decisions: DecisionSource
}

export interface Api {
  handle(request: ApiRequest): Promise<Response>
  /** Closes the limits by name, before the isolate stops. */
  stop(): Promise<void>
}

/**
 * Creates the API, once for each isolate.
 * @param config with `api`, and with its limits by name
 * @param parts at least those that its limits use
 */
export function createApi(
  config: Config,
  store: Store,
  parts: ApiParts & CorsParts & Omit<LimiterParts, 'prepareReset' | 'preparePause'>,
  { variables = {}, clock, board = createSwitchBoard(clock), ...options }: ApiOptions,
): Api {
  const url = String(variables.UPSTASH_REDIS_REST_URL ?? '')
  const token = String(variables.UPSTASH_REDIS_REST_TOKEN ?? '')
  const connection = options.connection ?? {
    ...restConnection({ url, token }, () => new AdminError('store', 'The store does not answer.')),
    decisions: store,
    nextStepFor: () => '',
  }
  const { keyPrefix, signature } = config.credentials
  const keySpace: KeySpace = {
    ...{ environment: config.environment, keyPrefix },
    ...(signature && signingBy(parts.keySigning, variables[KEY_SECRET])),
  }
  const ruleSets: RuleSets = {
    ofGateway: () => createGatewayRuleSet(config, parts.scriptsOf),
    ofLimit: rules => createLimitRuleSet(rules, parts.scriptsOfLimits),
  }
  const tokens = createTokenChecks(store, config.environment, clock)
  let limits: ApiLimits | undefined
  let showUsage: ShowOwnUsage | undefined
  let showDocument: (() => Response) | undefined
  const served = servedRoutes(Object.keys(parts.apiRoutes) as ApiRoutes[], config.api!.routes)
  const routes = served.flatMap(name => parts.apiRoutes[name] ?? [])
  const matchRoute = createMatchRoute(routes)
  const services: Services = {
    config,
    overrides: createOverrideRules(config.api!.written, toolsOf(config, parts)),
    get limits() {
      const settings = { board, variables, ...options.limiter }
      limits ??= parts.createApiLimits(config, store, parts, settings, {
        secret: options.secret ?? token,
        tokens,
      })
      return limits
    },
    tokens,
    mustSignNewKeys: signature && (store => parts.keySigning.mustSignNewKeys(store, signature)),
    now: () => clock.now(),
  }

  async function handle(
    { request, url, address, peer, background, refusal }: ApiRequest,
    requestId: string,
  ): Promise<Response> {
    if (refusal) throw await asApiError('blocked', deny(refusal))
    const matched = matchRoute(request.method, url.pathname.slice(API_PATH.length + 1))
    if ('methods' in matched) throw noSuchRoute(matched.methods)
    const { route, params } = matched
    if (route.kind === 'open') {
      showDocument ??= route.create(routes)
      return withHeaders(showDocument(), requestId)
    }
    if (route.kind === 'own') {
      await readInput(route, request, url)
      refuseServiceToken(request)
      showUsage ??= route.create(config, options.decisions, clock)
      return withHeaders(await showUsage({ request, peer, background }, requestId), requestId)
    }
    const bearer = readBearer(request)
    const reply =
      route.kind === 'limit'
        ? await runLimitRoute(route, params, { request, url, address, bearer })
        : await runAdminRoute(route, params, { request, url, address, bearer, requestId })
    return toResponse(reply, route, requestId)
  }

  async function runLimitRoute(
    route: LimitRoute,
    params: Readonly<Record<string, string>>,
    { request, url, address, bearer }: Pick<ApiRequest, 'request' | 'url' | 'address'> & { bearer: string },
  ): Promise<Reply> {
    // Also if the input is wrong, which only callers with a token may learn.
    const { guarded, limiterFor } = services.limits
    const scopes = scopesForLimit(params.name!)
    const made = await guarded(bearer, scopes, address, limiterFor, async limiter => {
      const input = (await readInput(route, request, url)) as { body: never; query: never }
      return await route.run({ ...input, params, limiter }, services)
    })
    if (!made.ok) throw refusalError(made)
    return made.value
  }

  async function runAdminRoute(
    route: AdminRoute,
    params: Readonly<Record<string, string>>,
    {
      request,
      url,
      address,
      bearer,
      requestId,
    }: Pick<ApiRequest, 'request' | 'url' | 'address'> & { bearer: string; requestId: string },
  ): Promise<Reply> {
    const scopes = scopesOf(route, params)
    const checked = await tokens.check(bearer, scopes, address)
    if (!checked.ok) throw refusalError(checked)
    const { token } = checked
    const input = (await readInput(route, request, url)) as { body: never; query: never }
    // A caller can send its body slowly, until long after its token was revoked.
    const still = await tokens.check(bearer, scopes, address)
    if (!still.ok) throw refusalError(still)
    const tracked = trackChanges(connection)
    const change: ChangeContext = {
      actor: { kind: 'token', id: token.id, name: token.name },
      ...reasonOf(request, input.body),
      requestId,
      tokenDigest: token.digest,
    }
    const keepMs = auditKeepMs(config.api!.written.audit)
    const store = withActor(adminStoreOn(tracked, keySpace, ruleSets, parts.opsOnCluster), change, keepMs)
    const given = route.isCreation ? request.headers.get('idempotency-key') : null
    const { claim, release, isSafe } = createClaim(given, store, { tokenId: token.id, requestId })
    try {
      return await route.run(
        {
          ...{ ...input, params, store, token, change },
          mustHave(scope, what) {
            if (!hasAnyOf(token.scopes, [scope])) throw scopeError([scope], what)
          },
          claim,
        },
        services,
      )
    } catch (error) {
      // Reading can tidy an index, or run a script that only reads.
      const state = route.method === 'GET' ? 'none' : tracked.changeState()
      // Refused by the input or by what is stored, so nothing was created.
      const isRefusal = error instanceof AdminError ? error.kind !== 'store' : error instanceof ApiError
      if (isRefusal && !isRepeated(error))
        await release().catch(failure => {
          if (isRepeated(failure)) throw failure
        })
      if (!(error instanceof AdminError)) throw error
      if (error.kind === 'ended') {
        tokens.forget(token.digest)
        throw refusalError({ ok: false, reason: 'unknown' })
      }
      throw adminError(error, state, isSafe())
    }
  }

  async function handleOrDescribe(incoming: ApiRequest): Promise<Response> {
    const requestId = crypto.randomUUID()
    const { request } = incoming
    const cors = config.api?.cors
    if (cors && request.method === 'OPTIONS' && !incoming.refusal) return parts.answerPreflight(request, cors)
    const response = await handle(incoming, requestId).catch((error: unknown) =>
      replyToProblem(toApiError(error), requestId),
    )
    if (cors) {
      parts.setAllowedOrigin(request, response.headers, cors)
      response.headers.set('access-control-expose-headers', 'x-request-id, retry-after')
    }
    return response
  }

  return { handle: handleOrDescribe, stop: async () => await limits?.limiterFor().close() }
}

/** New keys are signed by the first secret. */
function signingBy({ readKeySecrets, mintSignedKey }: KeySigning, secrets: unknown) {
  const keySecret = secrets ? readKeySecrets(secrets)[0] : undefined
  return { keySecret, mintSignedKey }
}

const isRepeated = (error: unknown) => error instanceof ApiError && error.problem === 'repeated'

/** What a Worker knows of the algorithms of its own rules. */
function toolsOf({ api }: Config, { ruleNumbers, mistakesOfSettlement }: ApiParts): RuleTools {
  const { algorithms, compiledUnits } = api!
  return {
    algorithms,
    compiledUnits: () => compiledUnits,
    numbersOf: ({ algorithm }) => ruleNumbers[algorithm]!.numbers,
    thirdNumberOf: algorithm => ruleNumbers[algorithm]!.third,
    mistakesOfSettlement,
  }
}

async function readInput(
  route: Route,
  request: Request,
  url: URL,
): Promise<{ body: unknown; query: unknown }> {
  const query = queryOf(url)
  if (!route.query && Object.keys(query).length > 0)
    throw invalidInput(`?${Object.keys(query)[0]}`, 'Unknown parameter. Leave it out.')
  return {
    query: route.query && checkInput(route.query, query, '?'),
    body: route.body && checkInput(route.body, await readJson(request)),
  }
}

/** @throws ApiError for a parameter that is there twice */
function queryOf(url: URL): Record<string, string> {
  if (url.search === '') return {}
  const query = new Map<string, string>()
  for (const [name, value] of url.searchParams) {
    if (query.has(name)) throw invalidInput(`?${name}`, 'It is there twice. Send it once.')
    query.set(name, value)
  }
  return Object.fromEntries(query)
}

/** The reason of a change: a member of the body, else the header `Sluice-Reason`. @throws ApiError */
function reasonOf({ headers }: Request, body: unknown): { reason?: string } {
  const { reason } = (body ?? {}) as { reason?: string }
  const header = headers.get('sluice-reason')
  const [text, pointer] = reason === undefined ? [header, 'Sluice-Reason'] : [reason, '/reason']
  if (text === null) return {}
  try {
    return { reason: parseShortText(text === header ? utf8Of(text) : text, 'reason') }
  } catch (error) {
    throw invalidInput(pointer, (error as Error).message)
  }
}

/** On Node, a header has a character for each byte. On Workers, it is decoded. */
function utf8Of(header: string): string {
  try {
    return decodeURIComponent(escape(header))
  } catch {
    return header
  }
}

function noSuchRoute(methods: readonly string[]): ApiError {
  return methods.length === 0
    ? new ApiError(
        'not-found',
        'The API has no such path, or api.routes in the config does not name its part.',
      )
    : new ApiError('method-not-allowed', `This path has ${methods.join(', ')}.`, {
        headers: { allow: methods.join(', ') },
      })
}

/** Headers of every reply. */
const headersOf = (requestId: string) => ({ 'x-request-id': requestId, 'cache-control': 'no-store' })

/** Made with all headers: setting them later takes longer. */
const toResponse = ({ body }: Reply, { status }: Route, requestId: string): Response =>
  new Response(JSON.stringify(body), {
    status: status ?? 200,
    headers: { 'content-type': 'application/json', ...headersOf(requestId) },
  })

function withHeaders(response: Response, requestId: string): Response {
  for (const [name, value] of Object.entries(headersOf(requestId))) response.headers.set(name, value)
  return response
}

function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof GatewayError) return storeError(changeState(error.fate), error.code)
  logException(error)
  return new ApiError(
    'internal',
    'The API failed to handle this request. The log of the gateway has the cause.',
  )
}
