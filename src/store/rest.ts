/**
 * The REST protocol of Upstash (https://upstash.com/docs/redis/features/restapi), as far as the store needs it: commands in, answers
 * out. The client @upstash/redis cannot be divided: its 200 commands would be a quarter of the Worker (17.6 kB of gzip). Besides, it
 * keeps the HTTP status to itself, and it quotes keys in its errors. A test compares this connection with it.
 */
import { GatewayError } from '../errors.ts'

export type RestCommand = readonly [name: string, ...args: (string | number)[]]

/** The answer to one command. */
export interface RestAnswer {
  result?: unknown
  /** The message of Redis, of Upstash or of the bridge. It can quote keys. Some servers write null beside a result. */
  error?: string | null
}

/** An answer to the whole request that is an error. */
export class RestError extends Error {
  /** Of HTTP. */
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/**
 * Sends the commands in one HTTP request, once.
 * @param commands at least one
 * @param isTransaction sends them as one transaction: all of them run, or none
 * @returns the answers in order
 * @throws RestError if the request was answered with an error; GatewayError ERR_STORE_REPLY_INVALID; whatever `fetch` throws
 */
export type SendCommands = (
  commands: readonly RestCommand[],
  signal: AbortSignal,
  isTransaction?: boolean,
) => Promise<RestAnswer[]>

/** Sends an HTTP request, as `fetch` does. */
type Send = (url: string, init: RequestInit & { headers: Record<string, string> }) => Promise<Response>

/**
 * @param send default: `fetch`
 * @throws GatewayError ERR_CONFIG_INVALID without the URL, which may contain a password, and without the token
 */
export function createRestConnection(
  url: string,
  token: string,
  send: Send = (url, init) => fetch(url, init),
): SendCommands {
  const endpoint = endpointOf(url)
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  checkHeaders(headers)

  return async (commands, signal, isTransaction) => {
    const [only] = commands
    const isList = isTransaction || commands.length > 1
    const path = isTransaction ? '/multi-exec' : isList ? '/pipeline' : ''
    const response = await send(endpoint + path, {
      // A redirection would send the keys to another server, and before 2025-09-01 (compatibility date) Workers sent the token, too.
      ...{ method: 'POST', headers, signal, redirect: 'manual' as const },
      body: JSON.stringify(isList ? commands : only),
    })
    const reply = parse(await response.text())
    // A server in front of the store can answer with a web page, so only the status is certain.
    if (!response.ok) throw new RestError(response.status, errorIn(reply) ?? '')
    if (reply === undefined) throw invalid("The store's reply is not valid JSON.")
    const answers = isList && Array.isArray(reply) ? reply : [reply]
    if (answers.length !== commands.length || !answers.every(isAnswer))
      throw invalid("The store's reply is not a list of results.")
    return answers
  }
}

function endpointOf(url: string): string {
  const { protocol, username, password, search, hash, origin, pathname } = parseUrl(url)
  // `fetch` rejects a URL with a user.
  if (!/^https?:$/.test(protocol) || username || password || search || hash) throw invalidUrl()
  // Not `href`, which keeps a `?` or `#` at the end.
  return origin + pathname.replace(/(?<!\/)\/+$/, '')
}

function parseUrl(url: string): URL {
  try {
    return new URL(url)
  } catch {
    throw invalidUrl()
  }
}

const invalidUrl = () =>
  new GatewayError(
    'ERR_CONFIG_INVALID',
    'The URL of the store is not valid. Use the http or https URL of its REST API.',
  )

function checkHeaders(headers: Record<string, string>): void {
  try {
    new Headers(headers)
  } catch {
    throw new GatewayError(
      'ERR_CONFIG_INVALID',
      'The token of the store has a character that is not allowed in a header, such as a line break. Copy it again.',
    )
  }
}

/** @returns undefined for a text that is not JSON */
function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function isAnswer(answer: unknown): answer is RestAnswer {
  if (typeof answer !== 'object' || answer === null) return false
  const { error = null } = answer as { error?: unknown }
  return typeof error === 'string' || (error === null && 'result' in answer)
}

function errorIn(answer: unknown): string | undefined {
  const error = (answer as { error?: unknown } | null)?.error
  return typeof error === 'string' ? error : undefined
}

const invalid = (message: string) => new GatewayError('ERR_STORE_REPLY_INVALID', message)
