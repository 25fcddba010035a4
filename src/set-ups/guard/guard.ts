/**
 * A guard around any fetch-style handler: Workers, Vercel, Netlify, Deno, Bun, Lambda, Node. It takes the same steps
 * as the gateway, but admitted requests go to the user's code instead of an origin.
 */
import { SYSTEM_CLOCK } from '../../clock.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import type { Environment } from '../../config/environment.ts'
import type { Ending } from '../../limiter/engine-shape.ts'
import { createLog } from '../../log.ts'
import {
  createMetricsReader,
  METRICS_READER_PARTS,
  type WithMetrics,
  withMetrics,
} from '../../metrics/metrics-reader.ts'
import { onlyEnforced } from '../../script/evaluation.ts'
import { ALL_PARTS } from '../http/all-parts.ts'
import { addressOfNode } from '../http/behind-proxies.ts'
import { deny } from '../http/deny.ts'
import type { ForwardContext, Forwarded } from '../http/forward.ts'
import { createHandler, type Handler, type Platform } from '../http/handle.ts'
import { createIdentifier } from '../http/identify.ts'
import { type Problem, problem } from '../http/problem.ts'
import { replyToMisconfiguration, runOrLog } from '../http/unexpected.ts'
import { isPreflight } from '../http/web-page.ts'
import { checkOptions } from '../limits/arguments.ts'
import {
  addressFrom,
  backgroundFrom,
  environmentOf,
  goneFrom,
  isCloudflare,
  type PlatformArguments,
} from '../platform.ts'
import type { RedisOption } from '../redis-option.ts'
import { reportAtStart } from '../report-at-start.ts'
import { type ConnectedStore, checkSetUpConfig, connectStore } from '../set-up-config.ts'
import { type CallerInfo, callerInfo } from './caller-info.ts'

// biome-ignore lint/suspicious/noExplicitAny: what a platform passes beside the request is typed by the handler itself.
export type FetchHandler = (request: Request, ...platform: any[]) => Response | Promise<Response>

/** Options of `guard`. All are optional. */
export interface GuardOptions {
  /** The store, if it is not that of the variables: a URL, or the client that the app has already. */
  redis?: RedisOption
  /** The variables, if they are neither those of the process nor passed beside the request as on Workers. */
  env?: Environment
  /**
   * Returns the client's address, for platforms that docs/guard.md does not list. Take it from the platform: a client
   * that can write this value can choose its budget.
   */
  address?: (request: Request, ...platform: PlatformArguments) => string | undefined
  /**
   * Without `cors` in the config, hand CORS preflights to the handler, which must only answer them (default `false`:
   * a 204 that allows nothing). With `cors`, the guard answers them.
   */
  passPreflights?: boolean
}

/** Dependencies of a guard beside the options; tests pass their own. */
export type GuardPlatform = Omit<Platform, 'variables' | 'peerOf'>

/** Lets a process end cleanly. */
export interface Closable {
  /**
   * Gives back leased units (`lease`) and closes the connection to Redis before a process ends. Later requests are still decided, each
   * with a trip to the store. Resolves when the store has the units again, or could not be reached. Never rejects.
   */
  close(): Promise<void>
}

/** The reply of a framework that sends it itself. Only the headers that the guard adds to `response` are used. */
export interface FrameworkReply extends Pick<Forwarded, 'observe' | 'sent'> {
  response: Response
  /** Resolves when the framework has sent its reply, or cannot send it any more. */
  ended: Promise<Ending>
}

/** Checks every limit of a request, and calls `run` if it is admitted. */
export interface Guarded extends Closable, WithMetrics {
  (
    request: Request,
    platform: PlatformArguments,
    /** Gets the request, or a copy if its body was read for an estimate. */
    run: (
      info: CallerInfo | undefined,
      request: Request,
    ) => Response | FrameworkReply | Promise<Response | FrameworkReply>,
    /** The request object of the framework around the guard (in Hono `c`), for hooks. */
    host?: unknown,
  ): Promise<Response>
}

/**
 * Creates a guard, a function that adds the limits of a config to a handler:
 *
 *     export default { fetch: guard(config)(request => new Response('Hello')) }   // Workers
 *     Deno.serve(guard(config)(handler))                                         // Deno; Bun and others likewise
 *
 * The handler gets the original request (or a copy, if its body was read for an estimate) and the platform's other arguments.
 * A refused request gets a 401, 403, 429 or 503 and never reaches the handler. `callerOf(request)` returns the caller of an admitted request. With leases
 * (`lease`), call `close()` of the guarded handler before the process ends. Handlers of one guard share their leases.
 *
 * @throws ConfigError naming every mistake of the config, and of `redis`. If a variable is missing, the log names it when the guard is
 * created (on Workers: at the first request), and each request gets a 503. TypeError for an unknown option
 */
export function guard(
  config: ConfigInput,
  options: GuardOptions = {},
): <H extends FetchHandler>(handler: H) => H & Closable & WithMetrics {
  checkOptions('guard', options, ['redis', 'env', 'address', 'passPreflights'])
  const guarded = createGuard(config, options)
  return <H extends FetchHandler>(handler: H) => {
    const guardedHandler: FetchHandler = (request, ...platform) =>
      guarded(request, platform, (_, copy) => handler(copy, ...platform))
    return Object.assign(guardedHandler as H, { close: guarded.close, metrics: guarded.metrics })
  }
}

/**
 * Creates a guard for adapters; `guard` and the middleware use it.
 *
 * @throws ConfigError as `guard`
 */
export function createGuard(
  input: ConfigInput,
  {
    env,
    redis,
    passPreflights = false,
    address = (request, ...args) => addressFrom(request, args),
  }: GuardOptions = {},
  platform: GuardPlatform = {},
): Guarded {
  const config = checkSetUpConfig(input)
  const { log = createLog(config.log.perSecond, (platform.clock ?? SYSTEM_CLOCK).now) } = platform
  let handler: Handler | undefined
  let connected: ConnectedStore | undefined
  // On Workers, the variables come with the first request.
  if (env || !isCloudflare()) {
    const variables = env ?? environmentOf()
    if (redis !== undefined) connected = connectStore(config, variables, redis)
    reportAtStart(() => {
      connected ??= connectStore(config, variables, redis)
      createIdentifier(connected.config, ALL_PARTS, { ...variables })
    })
  } else if (redis !== undefined) connectStore(config, {}, redis) // a mistake ends the upload

  /** Called with the first request, because on Workers the variables come with it. */
  function build(args: PlatformArguments): Handler {
    const variables = env ?? environmentOf(args)
    connected ??= connectStore(config, variables, redis)
    return createHandler(connected.config, connected.store, ALL_PARTS, {
      ...platform,
      log,
      variables: { ...variables },
    })
  }

  async function close(): Promise<void> {
    await handler?.stop()
    await connected?.close()
  }

  const measured = withMetrics(() => {
    // Without its variables, such a handler would let all requests pass as long as the isolate lives.
    const mayLackStore = config.failOpen === 'unconfigured' && !env && isCloudflare()
    if (!handler && mayLackStore) throw new TypeError(NO_VARIABLES_YET)
    handler ??= build([])
    const { metrics, clock } = handler
    return metrics && createMetricsReader(config, metrics, { ...ALL_PARTS, ...METRICS_READER_PARTS }, clock)
  })
  return Object.assign(guarded, { close, ...measured })

  async function guarded(...[request, args, run, host]: Parameters<Guarded>): Promise<Response> {
    try {
      handler ??= build(args)
    } catch (error) {
      return replyToMisconfiguration(log, error)
    }
    const { peerOf } = handler
    // `peerOf` is set only for trusted Workers, and Workers pass their bindings first and their context second.
    const peer = () =>
      peerOf
        ? peerOf(request, args[0], { executionCtx: args[1] as object })
        : withoutPort(address(request, ...args))
    if (isPreflight(request, hasBody(request)))
      return await answerPreflight(handler, request, peer, () => run(undefined, request))
    let nonResponse: { returned: unknown } | undefined
    const background = backgroundFrom(args)
    const handled = handler.handle(
      {
        ...{ request, url: new URL(request.url), peer, background, host },
        gone: () => goneFrom(request, args),
      },
      async (_, context) => {
        if (opensWebSocket(request) && holdsUnits(context) && !isCloudflare())
          return { response: problem(WEB_SOCKET_NOT_HELD, context.errorShape), isFromSluice: true }
        const copy = withReadableEncoding(context.copy ?? request, context)
        const info = callerInfo(context)
        // The user's code may have either of them.
        for (const each of [request, copy]) callers.set(each, info)
        const returned = await run(info, copy)
        if (isFrameworkReply(returned)) return { ...returned, isFromSluice: false }
        if (isResponse(returned))
          return { response: withChangeableHeaders(returned, request), isFromSluice: false, isDecoded: true }
        // On Bun, the server takes a WebSocket over, and the handler returns nothing.
        nonResponse = { returned }
        return { response: new Response(null), isFromSluice: true }
      },
    )
    // Without this, the platform ends this code if the client leaves before the reply has started.
    if (handler.awaitsEndings) background(handled)
    const reply = await handled
    return nonResponse ? (nonResponse.returned as Response) : reply
  }

  async function answerPreflight(
    { identifier }: Handler,
    request: Request,
    peer: () => string | undefined,
    run: () => ReturnType<Parameters<Guarded>[2]>,
  ): Promise<Response> {
    let address: string | undefined
    runOrLog(log, () => {
      address = identifier.addressOf(request, peer())
    })
    const refusal = identifier.refuse(request, address)
    if (refusal) return deny(refusal)
    if (config.cors) return ALL_PARTS.answerPreflight(request, config.cors)
    if (!passPreflights) return new Response(null, { status: 204 })
    const returned = await run()
    return isFrameworkReply(returned) ? returned.response : returned
  }
}

const NO_VARIABLES_YET =
  'On Workers, the variables come with the first request. Call metrics() after one, or pass env to the guard.'

const opensWebSocket = ({ headers }: Request) => /\bwebsocket\b/i.test(headers.get('upgrade') ?? '')

/** Whether a rule counts the request until it ends. */
const holdsUnits = ({ decision }: ForwardContext) =>
  onlyEnforced(decision?.verdicts ?? []).some(({ rule }) => countsInFlight(rule))

/** Except in Workers, the platform takes the WebSocket over and does not report its end here. */
const WEB_SOCKET_NOT_HELD: Problem = {
  status: 501,
  title: 'Not Implemented',
  detail:
    'A concurrency rule counts this request, but this server does not report when a WebSocket ends. Let the rule match other paths only, or use the Sluice gateway.',
}

/** The request without the encodings in which its reply could not be read, if the client accepts some. */
function withReadableEncoding(request: Request, { adapt }: { adapt?: ForwardContext['adapt'] }): Request {
  const accepted = request.headers.get('accept-encoding')
  if (!adapt || accepted === null) return request
  const headers = new Headers(request.headers)
  adapt({ headers, signal: request.signal })
  return headers.get('accept-encoding') === accepted ? request : new Request(request, { headers })
}

/** Some proxies report the address with its port, which changes with each connection. Express passes it on in `req.ip`. */
const withoutPort = (address: string | undefined) => address && (addressOfNode(address) ?? '')

/** Whether the headers announce a body (RFC 9112, section 6.3). Servers on Node give every request a stream, even without a body. */
function hasBody({ headers }: Request): boolean {
  return headers.has('transfer-encoding') || (headers.get('content-length') ?? '0') !== '0'
}

const callers = new WeakMap<Request, CallerInfo>()

/**
 * Returns the caller of a request, and the state of its limits.
 *
 * @returns undefined if no guard has admitted the request
 */
export function callerOf(request: Request): CallerInfo | undefined {
  return callers.get(request)
}

/** Does not check the class: adapters have classes of their own. */
const isResponse = (value: unknown): value is Response =>
  typeof value === 'object' && value !== null && 'headers' in value && 'status' in value

const isFrameworkReply = (value: unknown): value is FrameworkReply =>
  typeof value === 'object' && value !== null && 'ended' in value && 'response' in value

/** Returns a reply whose headers can be changed, and that no other request shares. */
function withChangeableHeaders(response: Response, { method }: Request): Response {
  // Hono answers HEAD with the reply to a GET, and drops its body unread.
  if (method === 'HEAD') {
    response.body?.cancel().catch(() => {})
    return new Response(null, response)
  }
  // A WebSocket handshake is passed on as it is. A reply without a body may be a constant in the user's code.
  if (response.status === 101 || response.body === null) return new Response(null, response)
  try {
    // Changes the reply itself, because Bun derives the type of a text from its body. This throws for a reply of
    // `fetch`, whose headers cannot be changed.
    response.headers.delete('x-request-id')
    return response
  } catch {
    return new Response(response.body, response)
  }
}
