/**
 * Measures limiters that have a connection to Redis of their own, as servers have and Workers have not, beside a decision of Sluice over
 * HTTP. They are used as their documentation shows, with six fixed windows.
 */
import { RedisStore } from 'rate-limit-redis'
import { RateLimiterRedis, RateLimiterUnion } from 'rate-limiter-flexible'
import { createClient } from 'redis'
import { type Contender, eachOnce, sluice } from '../contenders.ts'
import { inRounds, measureTimes, roomInSecond } from '../measure.ts'
import { type Findings, latencyRow, type Row } from '../report.ts'
import { type Scale, scaled, WINDOWS } from '../rules.ts'
import { newCallers, type TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'

const ROUNDS = 2
const DECISIONS = 200
/** Few, because a refusal ends with the second. */
const REFUSALS = 60

export async function directConnections(bed: TestBed): Promise<Findings> {
  const client: Client = createClient({ url: bed.redisUrl })
  await client.connect()
  const rows: Row[] = []
  try {
    for (const [outcome, scale] of [
      ['allowed', 'admits all'] as const,
      ['refused', 'refuses all'] as const,
    ]) {
      const contenders: Record<string, Contender> = {
        Sluice: sluice(throughBridge(bed.near), scale, 'fixed-window'),
        'rate-limiter-flexible, two unions of three': unions(client, scale),
        'express-rate-limit with rate-limit-redis, six in turn': stores(client, scale),
      }
      const task = (decide: Contender) => async () => {
        const callers = await newCallers(20, bed)
        if (outcome === 'refused') await roomInSecond(700)
        await eachOnce(decide, callers, 'allowed')
        return await measureTimes(outcome === 'refused' ? REFUSALS : DECISIONS, i =>
          decide(callers[i % callers.length]!),
        )
      }
      const tasks = Object.entries(contenders).map(([name, decide]) => [name, task(decide)] as const)
      const samples = await inRounds(ROUNDS, Object.fromEntries(tasks))
      const what = `decision p50 / p99, six fixed-window, ${outcome}, Sluice through the bridge, the other directly to Redis`
      for (const [name] of tasks.slice(1))
        rows.push(latencyRow(what, [name, samples.Sluice!, samples[name]!]))
    }
  } finally {
    client.destroy()
  }
  return {
    rows,
    notes: [
      'Direct connections: the others use node-redis over TCP, without a bridge. Neither checks a key. rate-limiter-flexible sends all six ' +
        'commands together, and charges the limits that admit a request which another limit refuses. express-rate-limit is one middleware ' +
        'for each limit: a request that the third refuses is charged to the first two, so an early refusal is fast. Its stores are called ' +
        'here without the middleware around them. A Worker cannot keep such a connection between requests.',
    ],
  }
}

type Client = ReturnType<typeof createClient>

function unions(client: Client, scale: Scale): Contender {
  const union = (by: string) =>
    new RateLimiterUnion(
      ...WINDOWS.map(
        ({ name, milliseconds, limit }) =>
          new RateLimiterRedis({
            storeClient: client,
            useRedisPackage: true,
            keyPrefix: `flexible:${by}:${name}`,
            points: scaled(limit, scale),
            duration: milliseconds / 1000,
          }),
      ),
    )
  const [consumers, addresses] = [union('consumer'), union('address')]
  return async ({ consumer, address }) => {
    const outcomes = await Promise.allSettled([consumers.consume(consumer), addresses.consume(address)])
    for (const outcome of outcomes) {
      // The reasons by limiter: an answer for a refusal, or an error of the client.
      const reasons = outcome.status === 'rejected' ? Object.values(outcome.reason) : []
      const error = reasons.find(reason => reason instanceof Error)
      if (error) throw error
    }
    return outcomes.every(({ status }) => status === 'fulfilled') ? 'allowed' : 'refused'
  }
}

function stores(client: Client, scale: Scale): Contender {
  const limitsOf = (by: 'consumer' | 'address') =>
    WINDOWS.map(({ name, milliseconds, limit }) => {
      const store = new RedisStore({
        prefix: `express:${by}:${name}:`,
        sendCommand: (...words: string[]) => client.sendCommand(words) as Promise<never>,
      })
      store.init({ windowMs: milliseconds } as Parameters<RedisStore['init']>[0])
      return { by, store, most: scaled(limit, scale) }
    })
  const limits = [...limitsOf('consumer'), ...limitsOf('address')]
  return async caller => {
    for (const { by, store, most } of limits) {
      const { totalHits } = await store.increment(caller[by])
      if (totalHits > most) return 'refused'
    }
    return 'allowed'
  }
}
