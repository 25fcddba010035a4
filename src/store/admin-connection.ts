/**
 * The port to the store for administration: commands of Redis in, its replies out. upstash-connection.ts speaks the REST protocol; another
 * file can speak that of Redis. Keys that change together are in one hash slot.
 */
import type { Store } from './store.ts'

/** A command of Redis, as in `['GET', 'sluice:{switches}']`. Its keys have the environment already. */
export type Command = readonly [name: string, ...args: (string | number)[]]

/** What Redis replies in its second protocol (RESP2). A hash is a list: field, value, field, value. */
export type Reply = string | number | null | readonly Reply[]

/**
 * Each method throws AdminError `store`, also if only one of the commands fails. Nothing is sent twice. A plain object, because a store
 * copies it.
 */
export interface AdminConnection {
  /** Runs a command. Over HTTP it is one request. */
  run<T extends Reply = Reply>(...command: Command): Promise<T>
  /** Runs commands, none or many, in as few requests as possible. Not a transaction. @returns their replies in order */
  runEach<T extends Reply = Reply>(commands: readonly Command[]): Promise<T[]>
  /** Runs commands as one transaction, in one request: all of them, or none. @returns their replies in order */
  transact(commands: readonly Command[]): Promise<Reply[]>
  /** The store that decides, for peeking at limits and resetting them. */
  readonly decisions: Store
  /** What to do about an error of `decisions`: by default, how to test whether the store answers. */
  nextStepFor(message: string): string
}

/** The command that runs a Lua script. On a cluster, its keys must be in one hash slot. */
export const evalCommand = (
  source: string,
  keys: readonly string[],
  args: readonly (string | number)[] = [],
): Command => ['EVAL', source, keys.length, ...keys, ...args]

/** The time by the clock of the store (ms since the epoch), cut to whole seconds. */
export async function readStoreTime(connection: Pick<AdminConnection, 'run'>): Promise<number> {
  const [seconds] = await connection.run<readonly string[]>('TIME')
  return Number(seconds) * 1000
}
