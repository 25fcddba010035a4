/** What happens to a Redis as a process, while it is asked. */
import { rmSync } from 'node:fs'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { DEADLINE_MS } from './policy.ts'

export interface RedisEvent {
  name: string
  /** A call that fails may have been done. */
  arrives?: true
  /** So many times everything that was stored is lost, keys of callers too. */
  losses?: number
  /** What was admitted last was not copied yet, and is forgotten. */
  isCopiedLate?: true
  /** It is no failure: no reply may be degraded. */
  isHarmless?: true
  isTypical?: true
  /** @returns when it is over; the Redis that is to be asked from now on, where that is another */
  happen(redis: RedisProcess): Promise<RedisProcess | undefined>
  /** Before there is any load. */
  prepare?(redis: RedisProcess): Promise<void>
}

const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

/** Long enough to be noticed by callers in every state. */
const A_WHILE_MS = 2 * DEADLINE_MS

const TIMES = 10

/** For a while, and then not any more. */
const meanwhile =
  (begin: (redis: RedisProcess) => unknown, end: (redis: RedisProcess) => unknown) =>
  async (redis: RedisProcess) => {
    await begin(redis)
    await sleep(A_WHILE_MS)
    await end(redis)
    return undefined
  }

export const REDIS_EVENTS: readonly RedisEvent[] = [
  {
    name: 'is killed, and started again with nothing in it',
    arrives: true,
    losses: 1,
    isTypical: true,
    happen: meanwhile(
      redis => redis.kill(),
      redis => redis.start(),
    ),
  },
  {
    name: 'is frozen (SIGSTOP), and goes on',
    arrives: true,
    happen: meanwhile(
      redis => redis.freeze(),
      redis => redis.thaw(),
    ),
  },
  {
    name: 'fails over to its replica',
    arrives: true,
    isCopiedLate: true,
    async happen(redis) {
      const replica = await startRedisProcess()
      await replica.send('REPLICAOF', redis.host, String(redis.port))
      while (!String(await replica.send('INFO', 'replication')).includes('master_link_status:up'))
        await sleep(20)
      await redis.kill()
      await sleep(A_WHILE_MS)
      await replica.send('REPLICAOF', 'NO', 'ONE')
      return replica
    },
  },
  {
    name: 'is made a replica, and a primary again (READONLY)',
    happen: meanwhile(
      // Of nobody: what it has stays.
      redis => redis.send('REPLICAOF', redis.host, '1'),
      redis => redis.send('REPLICAOF', 'NO', 'ONE'),
    ),
  },
  {
    name: `loses its scripts ${TIMES} times (SCRIPT FLUSH)`,
    isHarmless: true,
    isTypical: true,
    async happen(redis) {
      for (let i = 0; i < TIMES; i++) {
        await redis.send('SCRIPT', 'FLUSH')
        await sleep(A_WHILE_MS / TIMES)
      }
      return undefined
    },
  },
  {
    name: 'loses everything (FLUSHALL)',
    isHarmless: true,
    losses: 1,
    async happen(redis) {
      await redis.send('FLUSHALL')
      await sleep(A_WHILE_MS)
      return undefined
    },
  },
  {
    name: 'is out of memory (OOM)',
    happen: meanwhile(
      redis => redis.send('CONFIG', 'SET', 'maxmemory', '1'),
      redis => redis.send('CONFIG', 'SET', 'maxmemory', '0'),
    ),
  },
  {
    name: 'cannot write its snapshot (MISCONF)',
    happen: meanwhile(
      async redis => {
        rmSync(redis.directory, { recursive: true })
        await redis.send('CONFIG', 'SET', 'save', '3600 1000000')
        await redis.send('BGSAVE')
      },
      redis => redis.send('CONFIG', 'SET', 'save', ''),
    ),
  },
  {
    name: 'is busy with a script (BUSY), which is killed',
    arrives: true,
    prepare: async redis => void (await redis.send('CONFIG', 'SET', 'lua-time-limit', '20')),
    happen: meanwhile(
      // It never answers.
      async redis => void redis.send('EVAL', 'while true do end', '0').catch(() => {}),
      redis => redis.send('SCRIPT', 'KILL'),
    ),
  },
]
