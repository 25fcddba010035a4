/**
 * The connection of one request. It knows whether a change was sent, for the reply if the store fails, and it takes no reply that Redis cannot
 * have sent.
 */
import type { AdminConnection, Command, Reply } from '../../ops/admin-connection.ts'
import { notRedis } from '../../ops/admin-error.ts'
import { READ_INDEX } from '../../ops/lua.generated.ts'
import type { ChangeState } from './problems.ts'

type Kind = 'text' | 'list' | 'texts' | 'number'

/** What each command that only reads replies with. */
const READS: Readonly<Record<string, Kind>> = {
  GET: 'text',
  EXISTS: 'number',
  SMEMBERS: 'texts',
  HGETALL: 'texts',
  TIME: 'texts',
  ZRANGEBYSCORE: 'texts',
  XREVRANGE: 'list',
}

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
  const areRight = commands.every(([name], i) => isReplyTo(name, replies[i]))
  if (areRight && replies.length === commands.length) return replies
  throw notRedis()
}

function isReplyTo(name: string, reply: unknown): boolean {
  switch (READS[name]) {
    case 'text':
      return reply === null || typeof reply === 'string'
    case 'number':
      return typeof reply === 'number'
    case 'list':
      return Array.isArray(reply)
    case 'texts':
      return Array.isArray(reply) && reply.every(each => typeof each === 'string')
    default:
      return reply === null || typeof reply !== 'object' || Array.isArray(reply)
  }
}
