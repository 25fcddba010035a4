/** An engine as a store: the way of a decision from the limiter down to the script, without HTTP. */
import type { PlainCall, Store } from '../../src/store/store.ts'
import type { RedisEngine } from './engines.ts'

export interface CountedStore extends Store {
  /** For each HTTP request there would have been, the number of script calls in it. */
  readonly requests: number[]
}

/** @param isCluster as in Store: calls are split by slot, and one with keys of several slots is refused as there */
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
  switch (call.command) {
    case 'GET':
      return (await redis.send(['GET', call.key]))?.toString() ?? null
    case 'HINCRBY':
      return await redis.send(['HINCRBY', call.key, call.field, String(call.by)])
    case 'EXPIRE':
      return await redis.send(['EXPIRE', call.key, String(call.seconds)])
  }
}
