/**
 * The connection of one request. It knows whether a change was sent, for the reply if the store fails, and it takes no reply that Redis cannot
 * have sent.
 */

import { type AdminError, notRedis } from '../../ops/admin-error.ts'
import { MAX_AT_ONCE } from '../../ops/upstash-connection.ts'
import type { AdminConnection, Command, Reply } from '../../store/admin-connection.ts'
import { hasWrittenNothing } from '../../store/refusal.ts'
import type { ChangeState } from './problems.ts'

type IsReply = (reply: unknown) => boolean

const isText: IsReply = reply => reply === null || typeof reply === 'string'
const isNumber: IsReply = reply => typeof reply === 'number'
const areTexts: IsReply = reply => Array.isArray(reply) && reply.every(each => typeof each === 'string')

/** The commands that only read, and what they reply with. */
const READS: Readonly<Record<string, IsReply>> = {
  GET: isText,
  EXISTS: isNumber,
  HGETALL: reply => areTexts(reply) && (reply as unknown[]).length % 2 === 0,
  TIME: areTexts,
  ZRANGE: areTexts,
  ZRANGEBYSCORE: areTexts,
  XREVRANGE: Array.isArray,
}

/** A reply to any other command: not an object. */
const isReply: IsReply = reply => reply === null || typeof reply !== 'object' || Array.isArray(reply)

export interface TrackedChanges {
  /** Whether a change may have been made. */
  changeState(): ChangeState
}

export function trackChanges<C extends AdminConnection>(connection: C): C & TrackedChanges {
  let state: ChangeState = 'none'

  async function tracked<T extends Reply>(commands: readonly Command[], replies: Promise<T[]>): Promise<T[]> {
    const before = state
    if (commands.some(([name]) => !(name in READS))) state = 'unknown'
    try {
      return checked(commands, await replies)
    } catch (error) {
      const { failure } = error as AdminError
      // More commands are sent in several requests, the first of which may have had an effect.
      if (failure && hasWrittenNothing(failure) && commands.length <= MAX_AT_ONCE) state = before
      throw error
    }
  }

  return {
    ...connection,
    async run<T extends Reply>(...command: Command) {
      const [reply] = await tracked([command], connection.runEach<T>([command]))
      return reply!
    },
    runEach: <T extends Reply>(commands: readonly Command[]) =>
      tracked(commands, connection.runEach<T>(commands)),
    transact: commands => tracked(commands, connection.transact(commands)),
    changeState: () => state,
  }
}

/** @throws AdminError `store` */
function checked<T extends Reply>(commands: readonly Command[], replies: T[]): T[] {
  const areRight = commands.every(([name], i) => (READS[name] ?? isReply)(replies[i]))
  if (areRight && replies.length === commands.length) return replies
  throw notRedis()
}
