/** Injects random faults of the store, of Redis and of the origin, one after the other, with pauses without a fault. */
import { armHttp } from '../support/fault-proxy.ts'
import type { Random } from '../support/random.ts'
import type { RedisProcess } from '../support/redis-process.ts'
import { ORIGIN_FAULTS } from './faults-of-origin.ts'
import { REDIS_FAULTS } from './faults-of-redis.ts'
import { STORE_FAULTS } from './faults-of-store.ts'
import type { Lane } from './lane.ts'

interface Bed {
  /** The Workers, which share the Redis. */
  lanes: readonly Lane[]
  /** Workers whose streams must last, so that their connections to the origin do not fail. */
  lanesOfStreams: readonly Lane[]
  redis: RedisProcess
  random: Random
}

/** Begins a fault. @returns a function that ends it */
type Begin<From> = (from: From) => Promise<() => Promise<unknown>>

/** Faults on the connections of a Worker. */
const OF_LANES: Record<string, Begin<{ lane: Lane; random: Random }>> = {
  async store({ lane, random }) {
    const { fault } = random.pick(STORE_FAULTS.filter(({ isQuotaFault }) => !isQuotaFault))
    const share = random.pick([0.05, 0.5, 1])
    if (fault) return armHttp(lane.store, fault, () => random.chance(share)).disarm
    await lane.store.shut()
    return () => lane.store.open()
  },
  async redis({ lane, random }) {
    const share = random.pick([0.02, 0.2])
    const armed = random.pick(REDIS_FAULTS).arm(lane, () => random.chance(share))
    return () => armed.disarm()
  },
  async origin({ lane, random }) {
    const { fault } = random.pick(ORIGIN_FAULTS)
    if (fault) return lane.originProxy.arm(fault, () => random.chance(0.2)).disarm
    await lane.originProxy.shut()
    return () => lane.originProxy.open()
  },
  async 'frozen connection'({ lane }) {
    lane.redis.freeze()
    return async () => lane.redis.thaw()
  },
}

const OF_REDIS: Record<string, Begin<Bed>> = {
  async 'frozen Redis'({ redis }) {
    redis.freeze()
    return async () => redis.thaw()
  },
  async 'killed Redis'({ redis }) {
    await redis.kill()
    return () => redis.start()
  },
  async 'lost scripts'({ redis }) {
    await redis.send('SCRIPT', 'FLUSH')
    return async () => {}
  },
}

/** Begins the same kind of fault for all Workers. */
async function begin(kind: string, bed: Bed): Promise<() => Promise<unknown>> {
  if (OF_REDIS[kind]) return await OF_REDIS[kind](bed)
  const ends: (() => Promise<unknown>)[] = []
  const lanes = kind === 'origin' ? bed.lanes : [...bed.lanes, ...bed.lanesOfStreams]
  for (const lane of lanes) ends.push(await OF_LANES[kind]!({ lane, random: bed.random }))
  return () => Promise.all(ends.map(end => end()))
}

export interface Ended {
  /** How many times each kind of fault occurred. */
  faults: Record<string, number>
  /** The times at which Redis lost all data (ms since the epoch). */
  losses: number[]
  /** From each kill of Redis to its restart without data. */
  down: Span[]
}

/** Two times (ms since the epoch). */
export interface Span {
  from: number
  to: number
}

/** @param restore stores the records again after Redis has lost all data */
export async function failAtRandom(bed: Bed, until: number, restore: () => Promise<unknown>): Promise<Ended> {
  const { random } = bed
  const ended: Ended = { faults: {}, losses: [], down: [] }
  const kinds = [...Object.keys(OF_LANES), ...Object.keys(OF_REDIS)]
  while (Date.now() < until) {
    await new Promise(resolve => setTimeout(resolve, random.int(200, 2000)))
    const kind = random.pick(kinds)
    ended.faults[kind] = (ended.faults[kind] ?? 0) + 1
    const from = Date.now()
    const end = await begin(kind, bed)
    await new Promise(resolve => setTimeout(resolve, random.int(100, 1500)))
    await end()
    if (kind !== 'killed Redis') continue
    const to = Date.now()
    ended.losses.push(to)
    ended.down.push({ from, to })
    await restore()
  }
  return ended
}
