/**
 * The HTTP side of the bridge: Upstash's paths, status codes and error shapes, on Node's server. It checks and reads the request;
 * redis-commands.ts runs the commands. It needs no router: with Hono and its adapter, a request took a tenth more CPU.
 */
import type { timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { commandOf, commandOfPath, commandsOf, MalformedRequest, parseJson } from './encoding.ts'
import { type Answer, answerToFailure, type RedisCommands } from './redis-commands.ts'

export interface BridgeListenerOptions {
  commands: RedisCommands
  /** Does Redis answer? */
  isHealthy: () => Promise<boolean>
  token: string
  /** Compares bytes in constant time. */
  isEqual: typeof timingSafeEqual
  maxRequestBytes: number
}

type Reply = Answer | { status: 200 | 503; body: { status: string } }

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT'])

export function createBridgeListener({
  commands,
  isHealthy,
  token,
  isEqual,
  maxRequestBytes,
}: BridgeListenerOptions): RequestListener {
  const isValidToken = tokenCheck(token, isEqual)

  return async (incoming, outgoing) => {
    try {
      respond(incoming, outgoing, await replyTo(incoming))
    } catch (error) {
      respond(incoming, outgoing, error instanceof RequestTooLarge ? TOO_LARGE : answerToFailure(error))
    }
  }

  async function replyTo(incoming: IncomingMessage): Promise<Reply> {
    const { method = '', headers } = incoming
    const url = urlOf(incoming.url ?? '')
    // Before the check of the token, because load balancers have no token. No command of Redis is called `health`.
    if (url.pathname === '/health' && (method === 'GET' || method === 'HEAD')) {
      const isUp = await isHealthy()
      return { status: isUp ? 200 : 503, body: { status: isUp ? 'ok' : 'unavailable' } }
    }
    const bearer = /^Bearer +(\S.*)$/i.exec(headers.authorization ?? '')?.[1]
    const presented = bearer?.trim() ?? url.searchParams.get('_token')
    if (presented === null || !isValidToken(presented)) return UNAUTHORIZED
    if (!METHODS.has(method)) return METHOD_NOT_ALLOWED
    if (headers['upstash-response-format']) return OTHER_FORMAT
    const body = await readBody(incoming, maxRequestBytes)
    return await run(url, body, headers['upstash-encoding'] === 'base64')
  }

  function run({ pathname, searchParams }: URL, body: Buffer, base64: boolean): Promise<Answer> {
    switch (pathname) {
      case '/':
        return commands.single(commandOf(parseJson(body)), base64)
      case '/pipeline':
        return commands.pipeline(commandsOf(parseJson(body)), base64)
      case '/multi-exec':
        return commands.transaction(commandsOf(parseJson(body)), base64)
      default:
        return commands.single(commandOfPath(pathname, searchParams, body), base64)
    }
  }
}

const UNAUTHORIZED: Answer = { status: 401, body: { error: 'WRONGPASS invalid or missing auth token' } }
const METHOD_NOT_ALLOWED: Answer = { status: 405, body: { error: 'ERR method not allowed' } }
const OTHER_FORMAT: Answer = { status: 400, body: { error: 'ERR this bridge answers in JSON only' } }
const TOO_LARGE: Answer = { status: 413, body: { error: 'ERR max request size exceeded' } }

class RequestTooLarge extends Error {}

const ORIGIN = 'http://bridge'

/** The URLs of most requests, because parsing them again and again takes 1 µs. */
const FREQUENT_URLS = new Map(['/', '/pipeline'].map(path => [path, new URL(path, ORIGIN)]))

/**
 * @param target of the request line: a path, or a whole URL
 * @throws MalformedRequest
 */
function urlOf(target: string): URL {
  const frequent = FREQUENT_URLS.get(target)
  if (frequent) return frequent
  // Not as a URL relative to the origin: `//set/a` would be a host and a path. In a URL, a backslash would become a slash.
  const url = target.startsWith('/') ? ORIGIN + target : target
  const isReadable = /^https?:\/\/[^?\\]*(\?|$)/.test(url) && URL.canParse(url)
  if (!isReadable) throw new MalformedRequest('ERR failed to parse the URL of the request')
  return new URL(url)
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

/** By events, because an async iterator takes longer. @throws RequestTooLarge */
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

/**
 * Call it asynchronously: Node emits its `request` event before it has parsed the end of the request, and `complete` is right only
 * after that event.
 */
function respond(incoming: IncomingMessage, outgoing: ServerResponse, { status, body }: Reply): void {
  const text = JSON.stringify(body)
  outgoing.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    // The rest of a refused body must not be read as the next request.
    ...(incoming.complete ? {} : { connection: 'close' }),
  })
  outgoing.end(incoming.method === 'HEAD' ? undefined : text)
}
