/**
 * Commands through the client @upstash/redis, over the REST protocol of Upstash (https://upstash.com/docs/redis/features/restapi). The
 * client sends each request once and within a deadline. By default it would repeat a request whose reply was lost, so that a call could
 * count twice; join the calls of many requests in one; and read every text that looks like JSON.
 *
 * The client keeps the HTTP status to itself, so what is known about a request that failed is in the words of the answer.
 */
import { errors, Redis } from '#upstash'
import { GatewayError } from '../errors.ts'

export type RestCommand = readonly [name: string, ...args: (string | number)[]]

/** The answer to one command. */
export interface RestAnswer {
  result?: unknown
  /** The message of Redis, of Upstash or of the bridge. It can quote keys. Some servers write null beside a result. */
  error?: string | null
}

/** An error that the store has answered. The message is that of the answer, and empty if it has none. It can quote keys. */
export class RestError extends Error {
  /** Whether other commands of the request were answered without an error. */
  readonly isOfSome: boolean

  constructor(message: string, isOfSome = false) {
    super(message)
    this.isOfSome = isOfSome
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

/** The client, which sends any commands: its own methods have no pipeline of commands that it does not know. */
class Client extends Redis {
  send = (path: string[], body: unknown): Promise<unknown> => this.client.request({ path, body })
}

/**
 * @param more `readYourWrites`: whether a request sees the writes of the request before it, also if Upstash reads from a replica
 * @throws GatewayError ERR_CONFIG_INVALID without the URL, which may contain a password, and without the token
 */
export function upstashClient(
  { url, token }: { url: string; token: string },
  { readYourWrites = false }: { readYourWrites?: boolean } = {},
): SendCommands {
  checkToken(token)
  // The client asks for the signal before `send` returns.
  let current: AbortSignal
  const client = new Client({
    ...{ url: endpointOf(url), token, readYourWrites, signal: () => current },
    ...{ retry: { retries: 0 }, enableAutoPipelining: false, enableTelemetry: false },
    ...{ automaticDeserialization: false, responseEncoding: false },
  })

  return async (commands, signal, isTransaction) => {
    const [only] = commands
    const isList = isTransaction || commands.length > 1
    current = signal
    const path = isTransaction ? ['multi-exec'] : isList ? ['pipeline'] : []
    const reply = await client.send(path, isList ? commands : only).catch(error => {
      throw errorOf(error)
    })
    const answers = isList && Array.isArray(reply) ? reply : [reply]
    if (answers.length !== commands.length || !answers.every(isAnswer))
      throw invalid("The store's reply is not a list of results.")
    return answers
  }
}

/** The client adds the command to the message of an error, and with it the keys. */
function errorOf(error: unknown): unknown {
  // Such as the web page of a proxy in front of the store.
  if (error instanceof errors.UpstashJSONParseError) return new RestError('')
  if (!(error instanceof errors.UpstashError)) return error
  const [message = ''] = error.message.split(', command was: ', 1)
  return new RestError(message === 'undefined' ? '' : message)
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

function checkToken(token: string): void {
  try {
    new Headers({ authorization: `Bearer ${token}` })
  } catch {
    throw new GatewayError(
      'ERR_CONFIG_INVALID',
      'The token of the store has a character that is not allowed in a header, such as a line break. Copy it again.',
    )
  }
}

function isAnswer(answer: unknown): answer is RestAnswer {
  if (typeof answer !== 'object' || answer === null) return false
  const { error = null } = answer as { error?: unknown }
  return typeof error === 'string' || (error === null && 'result' in answer)
}

const invalid = (message: string) => new GatewayError('ERR_STORE_REPLY_INVALID', message)
