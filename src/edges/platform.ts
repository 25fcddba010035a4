/**
 * What an edge outside of the gateway takes from its platform: variables, work after the reply, and the client's address. Platforms
 * pass them beside the request, each in its own way; nothing here imports anything of a platform.
 */
import { type Background, detached } from '../background.ts'
import type { Environment } from '../config/environment.ts'

/** What a platform passes beside the request: `env` and `ctx` on Workers, `info` on Deno, the server on Bun, a context on Netlify. */
export type PlatformArguments = readonly unknown[]

declare const process: { env?: Record<string, string | undefined> } | undefined
declare const navigator: { userAgent?: string } | undefined

/** Variables by name: of the platform's arguments (bindings of a Worker), else of the process. */
export function environmentOf(args: PlatformArguments = []): Environment {
  const bindings = args.find(isObject)
  const ofProcess = typeof process === 'undefined' ? undefined : process?.env
  return bindings && 'UPSTASH_REDIS_REST_URL' in bindings
    ? (bindings as Environment)
    : ((ofProcess ?? {}) as Environment)
}

/**
 * Keeps work after the reply alive: `waitUntil` of an argument (Workers, Netlify), or that of Vercel's functions, which is where
 * `@vercel/functions` finds it. Elsewhere the process lives on.
 */
export function backgroundFrom(args: PlatformArguments): Background {
  const owner = (args.flatMap(within) as unknown[]).find(hasWaitUntil) ?? vercelContext()
  if (!owner) return detached
  return task => owner.waitUntil(task.catch(() => {}))
}

interface WithWaitUntil {
  waitUntil(task: Promise<unknown>): void
}

function vercelContext(): WithWaitUntil | undefined {
  const holder = (globalThis as Record<symbol, unknown>)[Symbol.for('@vercel/request-context')]
  const context = (holder as { get?(): unknown } | undefined)?.get?.()
  return hasWaitUntil(context) ? context : undefined
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null

const hasWaitUntil = (value: unknown): value is WithWaitUntil =>
  isObject(value) && typeof value.waitUntil === 'function'

/** Where `address.from` has its default meaning: CF-Connecting-IP, which Cloudflare's edge sets. */
export function isCloudflare(): boolean {
  return typeof navigator !== 'undefined' && navigator?.userAgent === 'Cloudflare-Workers'
}

/**
 * The address of the client, as the platform vouches for it: never a header that a client could have written.
 *
 * - Netlify: `context.ip`
 * - Deno: `info.remoteAddr.hostname`; Bun: `server.requestIP(request)`
 * - Node through @hono/node-server: `env.incoming.socket`
 * - Lambda through hono/aws-lambda: `env.requestContext` (function URL, API gateway)
 * - Vercel: X-Real-IP, which its edge overwrites (https://vercel.com/docs/headers/request-headers)
 *
 * - Lambda@Edge through hono/lambda-edge: `env.request.clientIp`
 *
 * @returns undefined where none of these is there; empty where one is, and the client has gone
 */
export function addressFrom(request: Request, args: PlatformArguments): string | undefined {
  for (const arg of args.flatMap(within)) {
    const address = addressIn(arg, request)
    if (address !== undefined) return address
  }
  const variables = typeof process === 'undefined' ? undefined : process?.env
  return variables?.VERCEL ? (request.headers.get('x-real-ip') ?? undefined) : undefined
}

/** What frameworks wrap: Hono has the context of Netlify, the server of Bun and the request of Lambda@Edge in its `env`. */
function within(arg: unknown): Record<string, unknown>[] {
  return isObject(arg) ? [arg, arg.context, arg.server, arg.request].filter(isObject) : []
}

function addressIn(arg: Record<string, unknown>, request: Request): string | undefined {
  const { ip, clientIp, remoteAddr, requestIP, incoming, requestContext } = arg as PlatformArgument
  if (typeof ip === 'string' && isObject(arg.geo)) return ip
  if (typeof clientIp === 'string' && 'uri' in arg) return clientIp
  if (remoteAddr && 'hostname' in remoteAddr) return String(remoteAddr.hostname ?? '')
  if (typeof requestIP === 'function') {
    return (requestIP.call(arg, request) as { address?: string } | null)?.address ?? ''
  }
  if (incoming?.socket) return incoming.socket.remoteAddress ?? ''
  return requestContext?.http?.sourceIp ?? requestContext?.identity?.sourceIp
}

interface PlatformArgument {
  ip?: unknown
  clientIp?: unknown
  remoteAddr?: { hostname?: unknown }
  requestIP?: (request: Request) => unknown
  incoming?: { socket?: { remoteAddress?: string } }
  requestContext?: { http?: { sourceIp?: string }; identity?: { sourceIp?: string } }
}
