/**
 * The connection of one request. It knows whether a change was sent, for the reply if the store fails, and it takes no reply that Redis cannot
 * have sent.
 */
import type { AdminConnection, Command, Reply } from '../../ops/admin-connection.ts'
import { notRedis } from '../../ops/admin-error.ts'
import { READ_INDEX } from '../../ops/lua.generated.ts'
import type { ChangeState } from './problems.ts'

type IsReply = (reply: unknown) => boolean

const isText: IsReply = reply => reply === null || typeof reply === 'string'
const isNumber: IsReply = reply => typeof reply === 'number'
const areTexts: IsReply = reply => Array.isArray(reply) && reply.every(each => typeof each === 'string')

/** The commands that only read, and what they reply with. */
const READS: Readonly<Record<string, IsReply>> = {
  GET: isText,
  EXISTS: isNumber,
  SMEMBERS: areTexts,
  HGETALL: reply => areTexts(reply) && (reply as unknown[]).length % 2 === 0,
  TIME: areTexts,
  ZRANGE: areTexts,
  ZRANGEBYSCORE: areTexts,
  XREVRANGE: Array.isArray,
}

/** A reply to any other command: not an object. */
const isReply: IsReply = reply => reply === null || typeof reply !== 'object' || Array.isArray(reply)

export interface TrackedConnection extends AdminConnection {
  /** Whether a change may have been made. */
  changeState(): ChangeState
}

export function trackChanges(connection: AdminConnection): TrackedConnection {
  let state: ChangeState = 'none'
  const note = (commands: readonly Command[]) => {
    if (commands.some(([name, script]) => !(name in READS) && script !== READ_INDEX)) state = 'unknown'
  }
  return {
    ...connection,
    async run<T extends Reply>(...command: Command) {
      note([command])
      return checked([command], [await connection.run<T>(...command)])[0]!
    },
    async runEach<T extends Reply>(commands: readonly Command[]) {
      note(commands)
      return checked(commands, await connection.runEach<T>(commands))
    },
    async transact(commands) {
      note(commands)
      return checked(commands, await connection.transact(commands))
    },
    changeState: () => state,
  }
}

/** @throws AdminError `store` */
function checked<T extends Reply>(commands: readonly Command[], replies: T[]): T[] {
  const areRight = commands.every(([name], i) => (READS[name] ?? isReply)(replies[i]))
  if (areRight && replies.length === commands.length) return replies
  throw notRedis()
}
