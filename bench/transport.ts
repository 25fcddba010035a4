/** The transports to Redis that contenders are measured over. Each transport has its own clients. */
import { Redis } from '@upstash/redis'
import type { Command, RedisConnection, Reply } from '../src/node/rest-bridge/redis-connection.ts'
import { ScriptAliases } from '../src/node/rest-bridge/scripts.ts'
import type { Store } from '../src/store/store.ts'
import { upstashStore } from '../src/store/upstash.ts'
import type { Rest } from './test-bed.ts'

export interface Transport {
  /** For Sluice. */
  store: Store
  /** For @upstash/ratelimit. */
  redis: Redis
}

/** As in production: both use @upstash/redis, Sluice as in src/store/upstash-client.ts, and @upstash/ratelimit with the default settings. */
export function throughBridge(rest: Rest): Transport {
  return { store: upstashStore({ ...rest, deadlineMs: 2000, keyLocking: true }), redis: new Redis(rest) }
}

/**
 * The same scripts, keys and arguments without HTTP. Keeps Redis busier than a client and a bridge can.
 * @param sent every command that is sent to Redis is appended to this list
 */
export function straightTo(connection: RedisConnection, sent: Command[]): Transport {
  const aliases = new ScriptAliases()
  const send = async (...words: unknown[]) => {
    const command = aliases.translate(words.map(String))
    sent.push(command)
    return textOf(await connection.send(command))
  }
  const evalsha = (sha: string, keys: readonly string[], args: readonly unknown[]) =>
    send('EVALSHA', sha, keys.length, ...keys, ...args)
  const evaluate = (source: string, keys: readonly string[], args: readonly unknown[]) =>
    send('EVAL', source, keys.length, ...keys, ...args)

  const store: Store = {
    async run(calls) {
      const [call] = calls
      if (!call || !('keys' in call)) throw new TypeError('Only decisions are measured here.')
      const { keys, args } = call
      const { plain } = call.script
      try {
        return [await evalsha(plain.sha1, keys, args)]
      } catch (error) {
        if (!String(error).includes('NOSCRIPT')) throw error
        return [await evaluate(plain.source, keys, args)]
      }
    },
    ping: async () => void (await send('PING')),
  }
  // A limiter without analytics and deny list uses only these methods of its client.
  return { store, redis: { evalsha, eval: evaluate } as unknown as Redis }
}

function textOf(reply: Reply): unknown {
  if (Array.isArray(reply)) return reply.map(textOf)
  return Buffer.isBuffer(reply) ? reply.toString() : reply
}
