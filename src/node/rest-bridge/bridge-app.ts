/**
 * The HTTP side of the bridge: Upstash's paths, status codes and error shapes, as a Hono app on Node's server.
 * It checks and reads the request; redis-commands.ts runs the commands.
 */
import type { timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { HttpBindings } from '@hono/node-server'
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response'
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { commandOf, commandOfPath, commandsOf, parseJson } from './encoding.ts'
import { type Answer, answerToFailure, type RedisCommands } from './redis-commands.ts'

export interface BridgeAppOptions {
  commands: RedisCommands
  /** Does Redis answer? */
  isHealthy: () => Promise<boolean>
  token: string
  /** Compares bytes in constant time. */
  isEqual: typeof timingSafeEqual
  maxRequestBytes: number
}

type BridgeEnv = { Bindings: HttpBindings }
type BridgeContext = Context<BridgeEnv>

/** Hono sends a HEAD request to the handlers of GET. */
const METHODS = ['GET', 'POST', 'PUT']

export function createBridgeApp({
  commands,
  isHealthy,
  token,
  isEqual,
  maxRequestBytes,
}: BridgeAppOptions): Hono<BridgeEnv> {
  const app = new Hono<BridgeEnv>()
  const bodyOf = (c: BridgeContext) => readBody(c.env.incoming, maxRequestBytes)

  // Before the check of the token, because load balancers have no token. No command of Redis is called `health`.
  app.get('/health', async c => {
    const isUp = await isHealthy()
    return respond(c, { status: isUp ? 200 : 503, body: { status: isUp ? 'ok' : 'unavailable' } })
  })
  app.use(requireToken(token, isEqual))
  app.on(METHODS, '*', refuseOtherFormats)
  app.on(METHODS, '/pipeline', async c => {
    return respond(c, await commands.pipeline(commandsOf(parseJson(await bodyOf(c))), wantsBase64(c)))
  })
  app.on(METHODS, '/multi-exec', async c => {
    return respond(c, await commands.transaction(commandsOf(parseJson(await bodyOf(c))), wantsBase64(c)))
  })
  app.on(METHODS, '/', async c => {
    return respond(c, await commands.single(commandOf(parseJson(await bodyOf(c))), wantsBase64(c)))
  })
  app.on(METHODS, '*', async c => {
    // Not Hono's path, which is decoded: each word of the command is decoded by itself.
    const { pathname, searchParams } = new URL(c.req.url)
    const command = commandOfPath(pathname, searchParams, await bodyOf(c))
    return respond(c, await commands.single(command, wantsBase64(c)))
  })
  app.notFound(c => respond(c, { status: 405, body: { error: 'ERR method not allowed' } }))
  app.onError((error, c) => respond(c, error instanceof RequestTooLarge ? TOO_LARGE : answerToFailure(error)))
  return app
}

const wantsBase64 = (c: BridgeContext) => c.req.header('upstash-encoding') === 'base64'

function requireToken(token: string, isEqual: BridgeAppOptions['isEqual']): MiddlewareHandler<BridgeEnv> {
  const isValidToken = tokenCheck(token, isEqual)
  return async function requireToken(c, next) {
    const bearer = /^Bearer +(.+)$/i.exec(c.req.header('authorization') ?? '')?.[1]
    const presented = bearer?.trim() ?? new URL(c.req.url).searchParams.get('_token')
    if (presented !== null && isValidToken(presented)) return await next()
    return respond(c, { status: 401, body: { error: 'WRONGPASS invalid or missing auth token' } })
  }
}

/**
 * Compares as many bytes as the valid token has, so the comparison takes the same time for every token. At most the length of the valid
 * token can be found out. Digests would hide the length, but take a twentieth of the time of a request.
 */
function tokenCheck(token: string, isEqual: typeof timingSafeEqual): (presented: string) => boolean {
  const expected = Buffer.from(token)
  const compared = Buffer.alloc(expected.length)
  return presented => {
    compared.fill(0).write(presented)
    return isEqual(compared, expected) && Buffer.byteLength(presented) === expected.length
  }
}

const refuseOtherFormats: MiddlewareHandler<BridgeEnv> = async (c, next) => {
  if (!c.req.header('upstash-response-format')) return await next()
  return respond(c, { status: 400, body: { error: 'ERR this bridge answers in JSON only' } })
}

class RequestTooLarge extends Error {}

const TOO_LARGE: Answer = { status: 413, body: { error: 'ERR max request size exceeded' } }

/**
 * Reads the body from Node's request. A request of the Fetch API has no body if the method is GET, and copies the body otherwise. By
 * events, because an async iterator takes longer.
 * @throws RequestTooLarge
 */
function readBody(incoming: IncomingMessage, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let size = 0
    incoming.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size <= maxBytes) chunks.push(chunk)
      else reject(new RequestTooLarge())
    })
    incoming.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)))
    incoming.on('error', reject)
  })
}

/** Writes to Node's response, because the stream of a Fetch response would take a fifth of the time of a request. */
async function respond(
  c: BridgeContext,
  { status, body }: Answer | { status: 200 | 503; body: { status: string } },
): Promise<Response> {
  const { incoming, outgoing } = c.env
  const text = JSON.stringify(body)
  // Node emits its `request` event before it has parsed the end of the request. `complete` is right only after that event.
  await undefined
  outgoing.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    // The rest of a refused body must not be read as the next request.
    ...(incoming.complete ? {} : { connection: 'close' }),
  })
  outgoing.end(incoming.method === 'HEAD' ? undefined : text)
  return RESPONSE_ALREADY_SENT
}
