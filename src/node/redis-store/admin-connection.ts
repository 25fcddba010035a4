/** Administration over a direct connection. */

import { AdminError } from '../../ops/admin-error.ts'
import {
  describeErrorOfRedis,
  failureIfNotSent,
  fixFor,
  LOST,
  lateText,
  UNREACHABLE,
} from '../../ops/store-failure.ts'
import type { AdminConnection, Command, Reply } from '../../store/admin-connection.ts'
import { codeText, refusal } from '../../store/refusal.ts'
import type { Store } from '../../store/store.ts'
import type { FoundRedis } from '../rest-bridge/found-redis.ts'
import {
  ErrorReply,
  type Reply as RawReply,
  RedisUnavailable,
  wasOffline,
} from '../rest-bridge/redis-server.ts'
import { describeTlsFailure } from '../tls-failure.ts'
import { REMEDIES } from './send-commands.ts'

/**
 * @param decisions the store that decides
 * @param deadlineMs of `redis.send`, for messages
 */
export function adminConnectionTo(redis: FoundRedis, decisions: Store, deadlineMs: number): AdminConnection {
  async function replyTo<T>(work: Promise<RawReply>): Promise<T> {
    try {
      return textsIn(await work) as T
    } catch (error) {
      throw failureOf(error, deadlineMs)
    }
  }
  const send = <T>(command: Command) => replyTo<T>(redis.send(command.map(String)))

  return {
    run: <T extends Reply>(...command: Command) => send<T>(command),
    runEach: <T extends Reply>(commands: readonly Command[]) => repliesTo(commands.map(send<T>)),
    transact: commands => replyTo(redis.transaction(commands.map(command => command.map(String)))),
    decisions,
    nextStepFor: message => fixFor(message) ?? TEST,
  }
}

/** @throws AdminError of the first command that has failed; without its `failure` if others have not failed in the same way */
async function repliesTo<T>(sent: readonly Promise<T>[]): Promise<T[]> {
  const settled = await Promise.allSettled(sent)
  const errors = settled.flatMap(each => (each.status === 'rejected' ? (each.reason as AdminError) : []))
  const [first] = errors
  if (!first) return await Promise.all(sent)
  const areAlike =
    errors.length === sent.length && errors.every(error => error.failure?.message === first.failure?.message)
  throw areAlike ? first : new AdminError(first.kind, first.message, first.nextStep)
}

/** Texts in place of bytes. @throws ErrorReply if a command of a transaction has failed */
export function textsIn(reply: RawReply): Reply {
  if (reply instanceof Error) throw reply
  if (Array.isArray(reply)) return reply.map(textsIn)
  return Buffer.isBuffer(reply) ? reply.toString() : reply
}

function failureOf(error: unknown, deadlineMs: number): AdminError {
  if (error instanceof ErrorReply) {
    const [what, nextStep] = describeErrorOfRedis(error.message, TEST_OF_CREDENTIALS)
    return new AdminError('store', `The store ${what}`, nextStep, refusal(error.message, REMEDIES))
  }
  const ofTls = describeTlsFailure(codeText((error as Error).cause ?? error), false)
  if (ofTls) return new AdminError('store', `The store cannot be reached. ${ofTls[0]}`, ofTls[1])
  const isLate = error instanceof RedisUnavailable && error.reason === 'timeout'
  const what = isLate ? lateText(deadlineMs) : wasOffline(error) ? UNREACHABLE : LOST
  return new AdminError('store', `The store ${what}`, TEST, failureIfNotSent(what))
}

const CLI = 'redis-cli -u redis://… PING'

const TEST = `Check the URL of Redis. To test it:\n    ${CLI}`

const TEST_OF_CREDENTIALS = `Check the user and the password in the URL of Redis. To test them:\n    ${CLI}`
