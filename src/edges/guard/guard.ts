/**
 * A guard around any fetch-style handler: Workers, Vercel, Netlify, Deno, Bun, Lambda, Node. The same steps as in the gateway, but
 * an admitted request goes to the user's code and not to an origin.
 */
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Environment } from '../../config/environment.ts'
import { configOfEdge, storeOfEdge } from '../configured.ts'
import { ALL_PARTS } from '../http/all-parts.ts'
import { deny } from '../http/deny.ts'
import type { OnBehalfOf } from '../http/forward.ts'
import { createHandler, type Handler, type Platform } from '../http/handle.ts'
import { misconfigured, safely } from '../http/unexpected.ts'
import { isPreflight } from '../http/web-page.ts'
import { addressFrom, backgroundFrom, environmentOf, type PlatformArguments } from '../platform.ts'
import { type CallerInfo, callerInfo } from './caller-info.ts'

// biome-ignore lint/suspicious/noExplicitAny: what a platform passes beside the request is typed by the handler itself.
export type FetchHandler = (request: Request, ...platform: any[]) => Response | Promise<Response>

export interface GuardOptions {
  /** Variables, where they are neither those of the process nor passed beside the request as on Workers. */
  env?: Environment
  /**
   * The client's address, on a platform that docs/guard.md does not list. Take it from the platform: a client that can write this
   * value can choose the budget that it spends.
   */
  address?: (request: Request, ...platform: PlatformArguments) => string | undefined
  /**
   * Hand CORS preflights to the handler, which must do nothing else for them: they carry no credential, and no rule counts them
   * (default `false`: they are answered here, by `cors` of the config; without it by a 204 that allows nothing).
   */
  passPreflights?: boolean
}

/** What a guard is made of beside the options; tests pass their own. */
export type GuardPlatform = Omit<Platform, 'variables' | 'peerOf'>

/** What a host calls when it is asked to stop. */
export interface Closable {
  /**
   * Gives back what was leased (`lease`), before a process ends. Requests that still come are decided by the store, each with a
   * trip. Resolves when the store has the units again, or could not be reached; it never rejects.
   */
  close(): Promise<void>
}

/** Runs a request through every limit, and then through `run`. */
export interface Guarded extends Closable {
  (
    request: Request,
    platform: PlatformArguments,
    run: (info: CallerInfo | undefined) => Response | Promise<Response>,
    /** The request as the framework around the guard has it (in Hono `c`), for hooks. */
    host?: unknown,
  ): Promise<Response>
}

/**
 * Limits a handler:
 *
 *     export default { fetch: guard(config)(request => new Response('Hello')) }   // Workers
 *     Deno.serve(guard(config)(handler))                                         // Deno; Bun and others likewise
 *
 * The handler gets what the platform passes. A refused request never reaches it. `callerOf(request)` says who was let in. A process
 * that leases (`lease`) calls `close()` of the guarded handler before it ends; handlers of one guard share their leases.
 * @throws ConfigError naming every mistake of the config; a variable that is missing makes each request a 503, and is logged
 */
export function guard(
  config: ConfigInput,
  options: GuardOptions = {},
): <H extends FetchHandler>(handler: H) => H & Closable {
  const guarded = createGuard(config, options)
  return <H extends FetchHandler>(handler: H) => {
    const around: FetchHandler = (request, ...platform) =>
      guarded(request, platform, () => handler(request, ...platform))
    return Object.assign(around as H, { close: guarded.close })
  }
}

/** For adapters: what `guard` and the middleware are made of. @throws ConfigError as `guard` */
export function createGuard(
  input: ConfigInput,
  {
    env,
    passPreflights = false,
    address = (request, ...args) => addressFrom(request, args),
  }: GuardOptions = {},
  platform: GuardPlatform = {},
): Guarded {
  const config = configOfEdge(input)
  let handler: Handler | undefined

  /** With the first request: on Workers, variables come with it. */
  function build(args: PlatformArguments): Handler {
    const variables = env ?? environmentOf(args)
    const deployed = storeOfEdge(config, variables)
    return createHandler(deployed.config, deployed.store, ALL_PARTS, {
      ...platform,
      variables: { ...variables },
    })
  }

  return Object.assign(guarded, { close: async () => await handler?.stop() })

  async function guarded(...[request, args, run, host]: Parameters<Guarded>): Promise<Response> {
    try {
      handler ??= build(args)
    } catch (error) {
      console.error((error as Error).message)
      return misconfigured()
    }
    const { peerOf } = handler
    // Only Workers are trusted with it, and those pass their bindings first and their context second.
    const peer = () =>
      peerOf ? peerOf(request, args[0], { executionCtx: args[1] as object }) : address(request, ...args)
    if (isPreflight(request, hasBody(request)))
      return await answerPreflight(handler, request, peer, () => run(undefined))
    let other: { returned: unknown } | undefined
    const background = backgroundFrom(args)
    const handled = handler.handle(
      { request, url: new URL(request.url), peer, background, host },
      async (_, behalf) => {
        const returned = await run(remember(request, behalf))
        if (isResponse(returned))
          return { response: changeable(returned, request), isOwn: false, isDecoded: true }
        // Bun takes a WebSocket over, and its handler returns nothing.
        other = { returned }
        return { response: new Response(null), isOwn: true }
      },
    )
    // Otherwise the platform ends this code when a client leaves before the reply has begun.
    if (handler.awaitsEndings) background(handled)
    const reply = await handled
    return other ? (other.returned as Response) : reply
  }

  async function answerPreflight(
    { identifier }: Handler,
    request: Request,
    peer: () => string | undefined,
    run: () => Response | Promise<Response>,
  ): Promise<Response> {
    let address: string | undefined
    safely(() => {
      address = identifier.addressOf(request, peer())
    })
    const refusal = identifier.refuse(request, address)
    if (refusal) return deny(refusal)
    if (config.cors) return ALL_PARTS.answerPreflight(request, config.cors)
    return passPreflights ? await run() : new Response(null, { status: 204 })
  }
}

/** By its headers (RFC 9112, section 6.3): servers on Node give every request a stream. */
function hasBody({ headers }: Request): boolean {
  return headers.has('transfer-encoding') || (headers.get('content-length') ?? '0') !== '0'
}

const callers = new WeakMap<Request, CallerInfo>()

function remember(request: Request, behalf: OnBehalfOf): CallerInfo {
  const info = callerInfo(behalf)
  callers.set(request, info)
  return info
}

/** Who makes a request, and how its limits stand. @returns undefined for a request that no guard has let in */
export function callerOf(request: Request): CallerInfo | undefined {
  return callers.get(request)
}

/** Not by its class: adapters bring classes of their own. */
const isResponse = (value: unknown): value is Response =>
  typeof value === 'object' && value !== null && 'headers' in value && 'status' in value

/** A reply whose headers can be changed, and that no other request has. */
function changeable(response: Response, { method }: Request): Response {
  // Hono answers HEAD with the reply to a GET, and drops its body unread.
  if (method === 'HEAD') {
    response.body?.cancel().catch(() => {})
    return new Response(null, response)
  }
  // A WebSocket handshake is passed on as it is. A reply without a body may be a constant of the user's code.
  if (response.status === 101 || response.body === null) return new Response(null, response)
  try {
    // In place, because Bun knows the type of a text by its body. The headers of a reply from `fetch` cannot be changed.
    response.headers.delete('x-request-id')
    return response
  } catch {
    return new Response(response.body, response)
  }
}
