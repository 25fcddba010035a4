/** A Redis with a second user, for tests in which it may not run a command. */
import { afterAll, beforeAll } from 'vitest'
import type { RedisConnection } from '../../src/node/rest-bridge/redis-connection.ts'
import { connectRedis } from '../../src/node/rest-bridge/redis-connection.ts'
import { PATIENT_MS } from './patience.ts'
import type { TestRedis } from './redis.ts'

export interface LimitedUser {
  redis: TestRedis
  /** The connection of the user, who may run every command that is not forbidden. */
  limited: RedisConnection
  /** Runs a command as the default user. */
  send(...command: (string | Buffer)[]): Promise<unknown>
  forbid(command: string): Promise<unknown>
  allow(command: string): Promise<unknown>
}

/** Provides a limited user to the tests of a `describe`. */
export function useLimitedUser(start: () => Promise<TestRedis>): LimitedUser {
  const send = (...command: (string | Buffer)[]) => user.redis.connection.send(command as string[])
  // The first hook fills in the connections, before tests use them.
  const user = {
    send,
    async forbid(command: string) {
      // Each time, because a busy machine can make the connection again.
      await user.limited.send(['AUTH', 'limited', 'secret'])
      await send('ACL', 'SETUSER', 'limited', `-${command}`)
    },
    allow: (command: string) => send('ACL', 'SETUSER', 'limited', `+${command}`),
  } as LimitedUser
  beforeAll(async () => {
    user.redis = await start()
    await send('ACL', 'SETUSER', 'limited', 'on', '>secret', '~*', '+@all')
    user.limited = await connectRedis(user.redis.url, PATIENT_MS)
  })
  afterAll(async () => {
    user.limited?.close()
    await user.redis?.connection.send(['ACL', 'DELUSER', 'limited'])
    await user.redis?.close()
  })
  return user
}
