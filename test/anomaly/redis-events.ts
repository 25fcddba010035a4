/** Events of a Redis process under load. */
import { rmSync } from 'node:fs'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { DEADLINE_MS } from './modes.ts'

export interface RedisEvent {
  name: string
  /** A call that fails may have been executed. */
  arrives?: true
  /** How many times all data is lost, including API keys. */
  losses?: number
  /** The last units are lost, because they were not replicated yet. */
  isCopiedLate?: true
  /** Not a failure: replies may be degraded only because the store was slow. */
  isHarmless?: true
  isTypical?: true
  /** Resolves when the event is over. @returns the Redis to use from then on, if it is another one */
  happen(redis: RedisProcess): Promise<RedisProcess | undefined>
  /** Runs before the load. */
  prepare?(redis: RedisProcess): Promise<void>
}

const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

/** Long enough to affect callers in every state. */
const A_WHILE_MS = 2 * DEADLINE_MS

const TIMES = 10

/** An event that lasts for a while and is then reverted. */
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
    name: 'is killed, and restarted without data',
    arrives: true,
    losses: 1,
    isTypical: true,
    happen: meanwhile(
      redis => redis.kill(),
      redis => redis.start(),
    ),
  },
  {
    name: 'is frozen (SIGSTOP), and resumed',
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
      // There is no primary on this port, so the data stays.
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
      // The script never ends, so its reply is not awaited.
      async redis => void redis.send('EVAL', 'while true do end', '0').catch(() => {}),
      redis => redis.send('SCRIPT', 'KILL'),
    ),
  },
]
