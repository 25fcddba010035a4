/** Sluice as middleware of a Hono app. */
import type { Context, MiddlewareHandler } from 'hono'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { WithMetrics } from '../../metrics/metrics-reader.ts'
import type { CallerInfo } from '../guard/caller-info.ts'
import { type Closable, createGuard, type GuardOptions, type GuardPlatform } from '../guard/guard.ts'
import { checkOptions } from '../limits/arguments.ts'

/** The limit with the smallest fraction of its units left, in the form of hono-rate-limiter. */
export interface RateLimitInfo {
  /** Units per period, or units in flight. */
  limit: number
  /** Units: `limit - remaining`. */
  used: number
  /** Units. */
  remaining: number
  /** When the whole budget is back, if nothing else is spent. */
  resetTime: Date
}

/** The context variables that the middleware sets. */
export interface SluiceVariables {
  /** The caller and the state of its limits. Absent for CORS preflights. */
  sluice: CallerInfo
  /** The limit with the smallest fraction of its units left. Absent if no rule counts the caller. */
  rateLimit: RateLimitInfo
}

/** Options of `sluice`. All are optional. */
export interface MiddlewareOptions extends Pick<GuardOptions, 'env' | 'redis' | 'passPreflights'> {
  /**
   * Returns the client's address, for platforms that docs/guard.md does not list. Take it from the platform: a client
   * that can write this value can choose its budget.
   */
  address?: (c: Context) => string | undefined
}

/**
 * Creates middleware that checks every limit of a request, and answers refused requests itself:
 *
 *     const app = new Hono()
 *     app.use(sluice(config))
 *     app.get('/', c => c.json(c.get('sluice')))
 *
 * With leases (`lease`), call `close()` of the middleware before the process ends.
 *
 * @throws ConfigError naming every mistake of the config. If a variable is missing, each request gets a 503, and the
 * log names it. TypeError for an unknown option
 */
export function sluice(
  config: ConfigInput,
  middlewareOptions: MiddlewareOptions = {},
  platform: GuardPlatform = {},
): MiddlewareHandler<{ Variables: SluiceVariables }> & Closable & WithMetrics {
  checkOptions('sluice', middlewareOptions, ['redis', 'env', 'address', 'passPreflights'])
  const { address, ...others } = middlewareOptions
  const contexts = new WeakMap<Request, Context>()
  const options = {
    ...others,
    ...(address && { address: (request: Request) => address(contexts.get(request)!) }),
  }
  const guarded = createGuard(config, options, platform)
  const middleware: MiddlewareHandler<{ Variables: SluiceVariables }> = async (c, next) => {
    const request = c.req.raw
    contexts.set(request, c)
    let isAdmitted = false
    const response = await guarded(
      request,
      argumentsOf(c),
      async (info, copy) => {
        isAdmitted = true
        if (copy !== request) c.req.raw = copy
        if (info) {
          c.set('sluice', info)
          const [least] = info.limits
          if (least) c.set('rateLimit', rateLimitInfo(least))
        }
        await next()
        return c.res
      },
      c,
    )
    if (isAdmitted) {
      replaceResponse(c, response)
      return undefined
    }
    // Headers of earlier middleware stay. CORS middleware has decided which web pages may read the reply.
    if (c.res.headers.has(ALLOWED_ORIGIN) && response.headers.get(ALLOWED_ORIGIN) === '*') {
      response.headers.delete(ALLOWED_ORIGIN)
    }
    const reply = c.newResponse(response.body, response)
    // `some` of hono/combine passes on what is in the context, and in many versions not what the middleware returns.
    replaceResponse(c, reply)
    return reply
  }
  return Object.assign(middleware, { close: guarded.close, metrics: guarded.metrics })
}

/** Clears the old response first: otherwise Hono adds its headers to those of the new one. */
function replaceResponse(c: Context, response: Response): void {
  c.res = undefined
  c.res = response
}

const ALLOWED_ORIGIN = 'access-control-allow-origin'

/** The arguments as other platforms pass them: bindings and context. Hono throws if the platform has no context. */
function argumentsOf(c: Context): unknown[] {
  try {
    return [c.env, c.executionCtx]
  } catch {
    return [c.env]
  }
}

function rateLimitInfo({ limit, remaining, resetAfterMs }: CallerInfo['limits'][number]): RateLimitInfo {
  return { limit, used: limit - remaining, remaining, resetTime: new Date(Date.now() + resetAfterMs) }
}

declare module 'hono' {
  interface ContextVariableMap extends Partial<SluiceVariables> {}
}
