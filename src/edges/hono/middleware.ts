/** Sluice as middleware of a Hono app. */
import type { Context, MiddlewareHandler } from 'hono'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { CallerInfo } from '../guard/caller-info.ts'
import { type Closable, createGuard, type GuardOptions, type GuardPlatform } from '../guard/guard.ts'

/** As hono-rate-limiter has it, for the limit with the least left. */
export interface RateLimitInfo {
  limit: number
  used: number
  remaining: number
  /** When all units are back, if nothing else is spent. */
  resetTime: Date
}

/** The context variables that the middleware sets. */
export interface SluiceVariables {
  /** Who makes the request, and how its limits stand. Absent for CORS preflights. */
  sluice: CallerInfo
  /** The limit with the least left; absent where none counts the caller. */
  rateLimit: RateLimitInfo
}

export interface MiddlewareOptions extends Pick<GuardOptions, 'env' | 'passPreflights'> {
  /** The client's address, on a platform that docs/guard.md does not list. Take it from the platform, never from a header. */
  address?: (c: Context) => string | undefined
}

/**
 * Decides each request by the rules of the config, and answers those that are refused:
 *
 *     const app = new Hono()
 *     app.use(sluice(config))
 *     app.get('/', c => c.json(c.get('sluice')))
 *
 * A process that leases (`lease`) calls `close()` of the middleware before it ends.
 * @throws ConfigError naming every mistake of the config
 */
export function sluice(
  config: ConfigInput,
  { address, ...others }: MiddlewareOptions = {},
  platform: GuardPlatform = {},
): MiddlewareHandler<{ Variables: SluiceVariables }> & Closable {
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
      async info => {
        isAdmitted = true
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
      // Assigned to nothing first: otherwise Hono adds the old headers to the new ones.
      c.res = undefined
      c.res = response
      return undefined
    }
    // What middleware before this one has set stays, and it knows which web pages may read its replies.
    if (c.res.headers.has(ALLOWED_ORIGIN) && response.headers.get(ALLOWED_ORIGIN) === '*') {
      response.headers.delete(ALLOWED_ORIGIN)
    }
    return c.newResponse(response.body, response)
  }
  return Object.assign(middleware, { close: guarded.close })
}

const ALLOWED_ORIGIN = 'access-control-allow-origin'

/** As other platforms pass them: bindings, and what keeps work alive. Hono throws where the platform has no context. */
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
