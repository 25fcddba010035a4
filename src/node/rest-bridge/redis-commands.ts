/** Runs the commands of one request on Redis and puts the replies into the form of Upstash's protocol. */
import { type Body, bodyOf, MalformedRequest } from './encoding.ts'
import {
  type Command,
  ErrorReply,
  type RedisConnection,
  RedisUnavailable,
  type Reply,
} from './redis-connection.ts'
import { refusalOf } from './refused.ts'
import { ScriptAliases } from './scripts.ts'

export interface Answer {
  status: 200 | 400 | 401 | 405 | 413 | 500 | 503 | 504
  body: Body | Body[]
}

export class RedisCommands {
  readonly #redis: RedisConnection
  readonly #scripts = new ScriptAliases()

  constructor(redis: RedisConnection) {
    this.#redis = redis
  }

  /** @throws MalformedRequest, ErrorReply, RedisUnavailable */
  async single(command: Command, base64: boolean): Promise<{ status: 200; body: Body }> {
    refuse(command)
    const reply = await this.#redis.send(this.#scripts.translate(command))
    return { status: 200, body: bodyOf(withCallersSha(command, reply), base64) }
  }

  /**
   * Sends all commands at once, not as a transaction. Each command gets its own answer. The request fails only if Redis was unavailable for
   * every command: in a cluster one node can be down, and @upstash/redis joins the calls of many callers in a pipeline.
   */
  async pipeline(commands: Command[], base64: boolean): Promise<Answer> {
    const answers = await Promise.all(
      commands.map(command => this.single(command, base64).catch(answerToFailure)),
    )
    const failed = answers.find(({ status }) => status >= 503)
    if (failed && answers.every(({ status }) => status >= 503)) return failed
    return { status: 200, body: answers.map(({ body }) => body) }
  }

  /** @throws MalformedRequest, ErrorReply, RedisUnavailable */
  async transaction(commands: Command[], base64: boolean): Promise<Answer> {
    for (const command of commands) refuse(command)
    const replies = await this.#redis.transaction(commands.map(command => this.#scripts.translate(command)))
    return {
      status: 200,
      body: replies.map((reply, i) => bodyOf(withCallersSha(commands[i]!, reply), base64)),
    }
  }
}

export function answerToFailure(error: unknown): { status: Answer['status']; body: { error: string } } {
  if (error instanceof RedisUnavailable) {
    return { status: error.reason === 'timeout' ? 504 : 503, body: { error: error.message } }
  }
  if (error instanceof MalformedRequest || error instanceof ErrorReply) {
    return { status: 400, body: { error: error.message } }
  }
  return { status: 500, body: { error: 'ERR the bridge failed' } }
}

function refuse(command: Command): void {
  const refusal = refusalOf(command)
  if (refusal) throw new MalformedRequest(refusal)
}

/** SCRIPT LOAD answers with the SHA-1 of the script that the caller sent, which Redis may have got in another form. */
function withCallersSha(command: Command, reply: Reply): Reply {
  const sha = Buffer.isBuffer(reply) && ScriptAliases.loadedAs(command)
  return sha ? Buffer.from(sha) : reply
}
