/**
 * Reads what a platform passes beside the request: variables, work after the reply, and the client's address. Each
 * platform does it in its own way. This file imports nothing of a platform.
 */
import { type Background, detached } from '../background.ts'
import type { Environment } from '../config/environment.ts'

/**
 * The arguments beside the request: `env` and `ctx` on Workers, `info` on Deno, the server on Bun, a context on
 * Netlify.
 */
export type PlatformArguments = readonly unknown[]

declare const process: { env?: Record<string, string | undefined> } | undefined
declare const navigator: { userAgent?: string } | undefined

const STORE_VARIABLES = ['UPSTASH_REDIS_REST_URL', 'REDIS_URL'] as const

/** Reads the variables: the bindings of a Worker if the arguments contain them, else the variables of the process. */
export function environmentOf(args: PlatformArguments = []): Environment {
  const bindings = args.find(isObject)
  const ofProcess = typeof process === 'undefined' ? undefined : process?.env
  const hasBindings = STORE_VARIABLES.some(name => read(bindings, name) !== undefined)
  return ((hasBindings ? bindings : ofProcess) ?? {}) as Environment
}

/**
 * Keeps work after the reply alive with `waitUntil`: of an argument (Workers, Netlify), or of Vercel's request
 * context, which `@vercel/functions` uses too. Elsewhere the process runs on.
 */
export function backgroundFrom(args: PlatformArguments): Background {
  const owner = (args.flatMap(unnest) as unknown[]).find(hasWaitUntil) ?? vercelContext()
  if (!owner) return detached
  return task => {
    const quiet = task.catch(() => {})
    try {
      owner.waitUntil(quiet)
    } catch {
      // The platform does not extend the life of this request, for example because it has ended. The task runs on as long as it can.
    }
  }
}

/**
 * Fires when the client has left, or the connection of the reply has closed. @hono/node-server passes the response of `node:http` beside
 * the request. If writing it throws, nothing reads or cancels the body of the reply any more, and `request.signal` may not fire.
 */
export function goneFrom({ signal }: Request, args: PlatformArguments): AbortSignal {
  const outgoing = args.map(arg => read(arg, 'outgoing')).find(isObject)
  if (!outgoing) return signal
  try {
    const { once, closed } = outgoing as { once(event: string, listener: () => void): void; closed?: boolean }
    const gone = new AbortController()
    if (closed) gone.abort()
    else once.call(outgoing, 'close', () => gone.abort())
    return AbortSignal.any([signal, gone.signal])
  } catch {
    return signal
  }
}

interface WithWaitUntil {
  waitUntil(task: Promise<unknown>): void
}

function vercelContext(): WithWaitUntil | undefined {
  const holder = (globalThis as Record<symbol, unknown>)[Symbol.for('@vercel/request-context')]
  try {
    const context = (holder as { get?(): unknown } | undefined)?.get?.()
    return hasWaitUntil(context) ? context : undefined
  } catch {
    return undefined
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null

/** A property of what a platform has passed. Reading it can throw, as `request` of the event in middleware of Next.js does. */
function read(value: unknown, name: string): unknown {
  try {
    return isObject(value) ? value[name] : undefined
  } catch {
    return undefined
  }
}

const hasWaitUntil = (value: unknown): value is WithWaitUntil =>
  typeof read(value, 'waitUntil') === 'function'

/**
 * Whether the code runs on Cloudflare, where `address.from` defaults to CF-Connecting-IP, which Cloudflare's edge
 * sets.
 */
export function isCloudflare(): boolean {
  return typeof navigator !== 'undefined' && navigator?.userAgent === 'Cloudflare-Workers'
}

/**
 * Reads the address of the client from the platform, never from a header that a client could have written.
 *
 * - Netlify: `context.ip`
 * - Deno: `info.remoteAddr.hostname`; Bun: `server.requestIP(request)`
 * - Node through @hono/node-server: `env.incoming.socket`
 * - Lambda through hono/aws-lambda: `env.requestContext` (function URL, API gateway)
 * - Lambda@Edge through hono/lambda-edge: `env.request.clientIp`
 * - Vercel: X-Real-IP, which its edge overwrites (https://vercel.com/docs/headers/request-headers)
 *
 * @returns undefined if the platform reports none of these; empty if it reports one, but the client has gone
 */
export function addressFrom(request: Request, args: PlatformArguments): string | undefined {
  for (const arg of args.flatMap(unnest)) {
    const address = addressIn(arg, request)
    if (address !== undefined) return address
  }
  const variables = typeof process === 'undefined' ? undefined : process?.env
  return variables?.VERCEL ? (request.headers.get('x-real-ip') ?? undefined) : undefined
}

/**
 * Frameworks nest the arguments: Hono has the context of Netlify, the server of Bun and the request of Lambda@Edge in
 * its `env`.
 */
function unnest(arg: unknown): Record<string, unknown>[] {
  return [arg, ...['context', 'server', 'request'].map(name => read(arg, name))].filter(isObject)
}

/** The value at the end of a path of properties. */
const readPath = (value: unknown, ...path: string[]) => path.reduce(read, value)

function addressIn(arg: Record<string, unknown>, request: Request): string | undefined {
  const ip = read(arg, 'ip')
  if (typeof ip === 'string' && isObject(read(arg, 'geo'))) return ip
  const clientIp = read(arg, 'clientIp')
  if (typeof clientIp === 'string' && read(arg, 'uri') !== undefined) return clientIp
  const remoteAddr = read(arg, 'remoteAddr')
  if (isObject(remoteAddr) && 'hostname' in remoteAddr) return textOf(remoteAddr.hostname)
  const requestIP = read(arg, 'requestIP')
  if (typeof requestIP === 'function') return textOf(read(requestIP.call(arg, request), 'address'))
  const socket = readPath(arg, 'incoming', 'socket')
  if (socket) return textOf(read(socket, 'remoteAddress'))
  const context = read(arg, 'requestContext')
  const sourceIp = readPath(context, 'http', 'sourceIp') ?? readPath(context, 'identity', 'sourceIp')
  return typeof sourceIp === 'string' ? sourceIp : undefined
}

const textOf = (address: unknown) => (address === undefined || address === null ? '' : String(address))
