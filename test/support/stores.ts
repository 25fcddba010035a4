/** Makes a store from an engine, to test the path of a decision from the limiter to the script without HTTP. */
import type { PlainCall, Store } from '../../src/store/store.ts'
import type { RedisEngine } from './engines.ts'

export interface CountedStore extends Store {
  /** The number of script calls in each simulated HTTP request. */
  readonly requests: number[]
}

/** @param isCluster as in Store: calls must be split by slot, and a call with keys of several slots fails */
export function storeOf(redis: RedisEngine, { isCluster = false } = {}): CountedStore {
  const requests: number[] = []
  return {
    isCluster,
    requests,
    async run(calls) {
      requests.push(calls.length)
      for (const call of isCluster ? calls : []) {
        const keys = 'keys' in call ? call.keys : [call.key]
        const slots = new Set(keys.map(key => /\{(.*?)\}/.exec(key)?.[1]))
        if (slots.size > 1) throw new Error(`CROSSSLOT ${keys.join(' ')}`)
      }
      return await Promise.all(
        calls.map(async call => ('keys' in call ? await redis.run(call) : plain(redis, call))),
      )
    },
    ping: async () => {},
  }
}

async function plain(redis: RedisEngine, call: PlainCall): Promise<unknown> {
  return (await redis.send(['GET', call.key]))?.toString() ?? null
}
