/**
 * The REST bridge: Upstash's HTTP protocol in front of any Redis or Valkey, or a cluster of them, for development,
 * for tests, and in production for those who host their own. It keeps the protocol's paths, status codes and error
 * shapes, so that @upstash/redis cannot tell the difference.
 *
 *     POST /            ["GET", "key"]                   → {"result": …}  or 400 {"error": …}
 *     GET  /get/key     the same in the path; a body is the last argument
 *     POST /pipeline    [["GET", "a"], ["GET", "b"]]     → [{"result": …}, {"error": …}]
 *     POST /multi-exec  the same, as one transaction
 *
 * 401 without the token, 405 for other methods, 413 above the size limit, 503 and 504 when Redis is gone or slow.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { bodyOf, commandOf, commandOfPath, commandsOf, MalformedRequest, parseJson } from './encoding.ts'
import {
  type Command,
  connectRedis,
  ErrorReply,
  type RedisConnection,
  RedisUnavailable,
  type Reply,
} from './redis-connection.ts'
import { refusalOf } from './refused.ts'
import { ScriptAliases } from './scripts.ts'

export interface BridgeOptions {
  /** `redis://`, `rediss://` or `unix:///path/to/socket`; of a cluster, that of any node */
  redisUrl: string
  token: string
  /** 0: any free one. */
  port: number
  /** Default 127.0.0.1: this machine only. */
  host?: string
  /** For one command, until Redis' answer (default 2000). */
  deadlineMs?: number
  /** Default 10 MB, as Upstash. */
  maxRequestBytes?: number
  /** Compares the digest of a presented token with that of the right one, in constant time; tests watch it. */
  isEqualDigest?: typeof timingSafeEqual
}

export interface Bridge {
  url: string
  port: number
  /** Redis is a cluster. */
  isCluster: boolean
  close(): Promise<void>
}

interface Answer {
  status: number
  body: unknown
}

const METHODS = new Set(['GET', 'POST', 'PUT', 'HEAD'])

/** @throws when Redis does not answer, or the port is taken (code EADDRINUSE) */
export async function startBridge(options: BridgeOptions): Promise<Bridge> {
  const { redisUrl, token, port, host = '127.0.0.1', deadlineMs = 2000, maxRequestBytes = 10e6 } = options
  const { isEqualDigest = timingSafeEqual } = options
  if (!token)
    throw new TypeError('The bridge needs a token: without one anybody who reaches it owns the data.')

  const redis = await connectRedis(redisUrl, deadlineMs).catch(error => {
    if (!(error instanceof RedisUnavailable)) throw error
    const { host, pathname } = new URL(redisUrl)
    throw new Error(`Redis did not answer at ${host || pathname}. Is it running, and is its URL right?`)
  })
  const scripts = new ScriptAliases()
  const server = createServer(async (request, response) => {
    const context = { redis, scripts, tokenHash: sha256(token), isEqualDigest, maxRequestBytes }
    const answer = await answerTo(request, context)
    reply(request, response, answer)
  })
  // Longer than any client keeps an idle connection, so that it is never closed under a request in flight.
  server.keepAliveTimeout = 120_000
  await listen(server, port, host).catch(error => {
    redis.close()
    throw error
  })

  const taken = (server.address() as AddressInfo).port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`,
    port: taken,
    isCluster: redis.isCluster,
    async close() {
      const closed = new Promise(resolve => server.close(resolve))
      server.closeAllConnections()
      await closed
      redis.close()
    },
  }
}

interface Context {
  redis: RedisConnection
  scripts: ScriptAliases
  tokenHash: Buffer
  isEqualDigest: typeof timingSafeEqual
  maxRequestBytes: number
}

async function answerTo(request: IncomingMessage, context: Context): Promise<Answer> {
  const base64 = request.headers['upstash-encoding'] === 'base64'
  try {
    // Joined as text: as a relative URL, //a/b would be a host and a path.
    const url = new URL(`http://bridge${request.url}`)
    if (!isAuthorized(request, url, context)) {
      return { status: 401, body: { error: 'WRONGPASS invalid or missing auth token' } }
    }
    if (!METHODS.has(request.method ?? '')) return { status: 405, body: { error: 'ERR method not allowed' } }
    if (request.headers['upstash-response-format']) {
      return { status: 400, body: { error: 'ERR this bridge answers in JSON only' } }
    }
    const body = await readBody(request, context.maxRequestBytes)
    if (!body) return { status: 413, body: { error: 'ERR max request size exceeded' } }

    switch (url.pathname) {
      case '/pipeline':
        return await pipeline(commandsOf(parseJson(body)), base64, context)
      case '/multi-exec':
        return await transaction(commandsOf(parseJson(body)), base64, context)
      case '/':
        return await single(commandOf(parseJson(body)), base64, context)
      default:
        return await single(commandOfPath(url.pathname, url.searchParams, body), base64, context)
    }
  } catch (error) {
    return failure(error)
  }
}

async function single(command: Command, base64: boolean, context: Context): Promise<Answer> {
  return { status: 200, body: bodyOf(await send(command, context), base64) }
}

/**
 * The commands go out together and each has its own answer; it is no transaction. Only when none was answered is
 * Redis gone: a cluster may lack a node, and @upstash/redis sends what many callers asked as one pipeline.
 */
async function pipeline(commands: Command[], base64: boolean, context: Context): Promise<Answer> {
  const answers = await Promise.all(
    commands.map(command => single(command, base64, context).catch(error => failure(error))),
  )
  const failed = answers.find(({ status }) => status >= 503)
  if (failed && answers.every(({ status }) => status >= 503)) return failed
  return { status: 200, body: answers.map(({ body }) => body) }
}

async function transaction(commands: Command[], base64: boolean, context: Context): Promise<Answer> {
  for (const command of commands) refuse(command)
  const replies = await context.redis.transaction(commands.map(command => context.scripts.translate(command)))
  return { status: 200, body: replies.map((reply, i) => bodyOf(loaded(commands[i]!, reply), base64)) }
}

async function send(command: Command, { redis, scripts }: Context): Promise<Reply> {
  refuse(command)
  return loaded(command, await redis.send(scripts.translate(command)))
}

function refuse(command: Command): void {
  const refusal = refusalOf(command)
  if (refusal) throw new MalformedRequest(refusal)
}

function loaded(command: Command, reply: Reply): Reply {
  const sha = ScriptAliases.loadedAs(command)
  return sha && Buffer.isBuffer(reply) ? Buffer.from(sha) : reply
}

function failure(error: unknown): Answer {
  if (error instanceof RedisUnavailable) {
    return { status: error.reason === 'timeout' ? 504 : 503, body: { error: error.message } }
  }
  if (error instanceof MalformedRequest || error instanceof ErrorReply) {
    return { status: 400, body: { error: error.message } }
  }
  return { status: 500, body: { error: 'ERR the bridge failed' } }
}

function isAuthorized(
  request: IncomingMessage,
  url: URL,
  { tokenHash, isEqualDigest }: Pick<Context, 'tokenHash' | 'isEqualDigest'>,
): boolean {
  const bearer = /^Bearer +(.+)$/i.exec(request.headers.authorization ?? '')?.[1]
  const presented = bearer?.trim() ?? url.searchParams.get('_token')
  // Digests are of one length, so the comparison takes the same time whatever was sent.
  return presented !== null && isEqualDigest(sha256(presented), tokenHash)
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

/** The whole body, or undefined when it is larger than allowed. */
async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > maxBytes) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function reply(request: IncomingMessage, response: ServerResponse, { status, body }: Answer): void {
  const text = JSON.stringify(body)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    // What was not read of a refused body must not be taken for the next request.
    ...(request.complete ? {} : { connection: 'close' }),
  })
  response.end(request.method === 'HEAD' ? undefined : text)
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      resolve()
    })
  })
}
