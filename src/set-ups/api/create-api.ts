/** The HTTP API under /_sluice/v1/: find the route → authenticate → check the input → handle. */
import type { Config } from '../../config/compile.ts'
import { isStoreUrl } from '../../config/forms.ts'
import { GatewayError } from '../../errors.ts'
import type { Log } from '../../log.ts'
import type { sumFields } from '../../metrics/sums.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { adminStoreOn } from '../../ops/admin-store-on.ts'
import type { OverrideRules } from '../../ops/override-rules.ts'
import { commandsThrough } from '../../ops/upstash-connection.ts'
import { createLimitRuleSet } from '../../script/rule-set.ts'
import type { AdminConnection } from '../../store/admin-connection.ts'
import type { Store } from '../../store/store.ts'
import { failureOf } from '../../store/upstash.ts'
import { describeRefusal } from '../http/deny.ts'
import { replyToGoneClient } from '../http/forward.ts'
import type { DecisionSource } from '../http/handle.ts'
import { logException } from '../http/unexpected.ts'
import type { NumbersParts } from '../limits/numbers.ts'
import type { LimiterParts } from '../limits/parts.ts'
import { createAdminCalls } from './admin-calls.ts'
import type { withApiCors } from './cors.ts'
import type { createKeySigning } from './key-signing.ts'
import type { ApiLimitOptions, ApiLimitParts, createApiLimits } from './limits.ts'
import { createMatchRoute } from './match-route.ts'
import type { ApiOnCluster } from './on-cluster.ts'
import type { createOverrides } from './overrides.ts'
import { ApiError, asApiError, replyToProblem } from './problems.ts'
import type { ApiLimits, ApiRequest, HandleApiRequest, Route, Services } from './route.ts'
import { changeState, storeError } from './store-error.ts'
import { createTokenChecks } from './token-check.ts'

/** Where the API is. */
export const API_PATH = '/_sluice/v1'

/** The parts that a Worker with the API carries in addition to those of the gateway. */
export interface ApiParts extends ApiLimitParts, NumbersParts {
  createApi: typeof createApi
  /** Those that are served. */
  apiRoutes: readonly Route[]
  /** With limits by name. */
  createApiLimits: typeof createApiLimits
  /** With routes that set or show overrides. */
  createOverrides: typeof createOverrides
  /** With `credentials.apiKeys.signature`. */
  createKeySigning: typeof createKeySigning
  /** With statistics: `sumFields`, or `sumCounts` if no rule reserves units. */
  sumStats: typeof sumFields
  /** With `store.cluster`. */
  opsOnCluster: ApiOnCluster
  /** With `api.cors`. */
  withApiCors: typeof withApiCors
}

export interface ApiOptions extends ApiLimitOptions {
  /** Default: to the store of the environment. */
  connection?: AdminConnection | undefined
  /** What decides requests to the gateway. */
  decisions: DecisionSource
}

export interface Api {
  handle: HandleApiRequest
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
  parts: ApiParts & Omit<LimiterParts, 'prepareReset' | 'preparePause'>,
  options: ApiOptions,
): Api {
  const { variables = {}, clock, decisions } = options
  const { log } = decisions
  const { connection = connectionTo(store, variables) } = options
  const { environment, credentials } = config
  const { keyPrefix, signature } = credentials
  const { cors } = config.api!
  const signing = signature && parts.createKeySigning(config, variables)
  const tokens = createTokenChecks(store, environment, clock)
  const routes = parts.apiRoutes
  const admin = adminStoreOn(
    connection,
    { environment, keyPrefix, keySigner: signing?.signer },
    {
      ofGateway: () => decisions.ruleSet,
      ofLimit: rules => createLimitRuleSet(rules, parts.scriptsOfLimits),
    },
    parts.opsOnCluster,
  )
  let limits: ApiLimits | undefined
  let overrides: OverrideRules | undefined
  const services: Services = {
    ...{ config, routes, decisions, tokens, signing },
    now: clock.now,
    sumStats: parts.sumStats,
    get limits() {
      limits ??= parts.createApiLimits(config, store, parts, { ...options, tokens })
      return limits
    },
    get overrides() {
      overrides ??= parts.createOverrides(config, parts)
      return overrides
    },
    overridesOf: limit => parts.createOverrides(config, parts, limit),
    serveAdmin: createAdminCalls({ ...admin, auditKeepMs: config.auditKeepMs }, parts.opsOnCluster),
  }
  const matchRoute = createMatchRoute(routes.map(route => ({ ...route, serve: route.create(services) })))

  async function reply(incoming: ApiRequest, id: string): Promise<Response> {
    const { request, url, refusal } = incoming
    if (refusal) throw asApiError('blocked', describeRefusal(refusal))
    const matched = matchRoute(request.method, url.pathname.slice(API_PATH.length + 1))
    if ('methods' in matched) throw noSuchRoute(matched.methods)
    const { route, params } = matched
    const body = await route.serve({ ...incoming, params, id })
    // Made with all headers: setting them later takes longer.
    return new Response(typeof body === 'string' ? body : JSON.stringify(body), {
      status: route.isCreation ? 201 : 200,
      headers: { 'content-type': 'application/json', 'x-request-id': id, 'cache-control': 'no-store' },
    })
  }

  async function handle(incoming: ApiRequest): Promise<Response> {
    const id = crypto.randomUUID()
    return await reply(incoming, id).catch((error: unknown) => {
      const { signal } = incoming.request
      if (signal.aborted && error === signal.reason) return replyToGoneClient().response
      return replyToProblem(toApiError(error, log), id)
    })
  }

  return {
    handle: cors ? parts.withApiCors(handle, cors) : handle,
    stop: async () => await limits?.limiterFor().close(),
  }
}

/** The connection for administration, to the store that decides. */
function connectionTo(decisions: Store, variables: Readonly<Record<string, unknown>>): AdminConnection {
  const written = String(variables.UPSTASH_REDIS_REST_URL ?? '')
  // With `failOpen: 'unconfigured'`, the URL can be missing. Then no token passes, and nothing is sent there.
  const url = isStoreUrl(written) ? written : 'https://store.invalid'
  const token = String(variables.UPSTASH_REDIS_REST_TOKEN ?? '')
  return {
    ...commandsThrough({ url, token }, failed),
    ...{ decisions, nextStepFor: () => '' },
  }
}

function failed(error: unknown): AdminError {
  return new AdminError('store', 'The store did not answer.', undefined, failureOf(error))
}

function noSuchRoute(methods: readonly string[]): ApiError {
  const allowed = methods.join(', ')
  return allowed
    ? new ApiError('method-not-allowed', `This path has ${allowed}.`, { headers: { allow: allowed } })
    : new ApiError(
        'not-found',
        'The API has no such path, or the config leaves it out. Check api.routes; keys/import needs credentials.opaqueKeys, reserve and settle need a limit with a unit, renew and release one with concurrency, overrides of limits one with overridable: true.',
      )
}

function toApiError(error: unknown, log: Log): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof GatewayError) return storeError(changeState(error.fate), error.message)
  logException(log, error)
  return new ApiError(
    'internal',
    'The API failed to handle this request. The log of the gateway has the cause.',
  )
}
