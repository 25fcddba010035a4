/** Events of the Redis process under load: replies follow the fallback, and the counters are right afterwards. */
import { describe } from 'vitest'
import type { Target } from '../support/fault-proxy.ts'
import { startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'
import { anonymous, askAs, type Caller, consumerOf } from './callers.ts'
import { judge, unitsStillHeld } from './judge.ts'
import type { Lane } from './lane.ts'
import { beginLeases, judgeLeases, type LeaseFinding, leasedCallers } from './leases.ts'
import { type AllLanes, describeByMode } from './matrix.ts'
import { LIMIT, MAX_GRANTED, type Mode, RECOVERY_MS } from './modes.ts'
import { REDIS_EVENTS, type RedisEvent } from './redis-events.ts'
import { backSince, type Finding, isTreatedAsFailure, untilDecided } from './scenario.ts'

const AT_ONCE = 4

/** A pause between requests, because the suite does not measure throughput and a busy machine is slow. */
const PAUSE_MS = 5

/** The units that a failover may lose: those of the last two requests of each concurrent caller. */
const UNREPLICATED = 2 * AT_ONCE

/** Consumers with keys that are created in advance, because no key can be created while Redis is down. */
const CONSUMERS = 40

export function describeProcesses(lanes: () => AllLanes): void {
  if (!hasRedisServer) {
    describe.skip('a Redis that is killed, frozen or flushed (no redis-server is installed)', () => {})
    return
  }
  describeByMode('a Redis that', 'processes', REDIS_EVENTS, lanes, strike, strikeLeases)
}

async function strike(lane: Lane, event: RedisEvent, mode: Mode): Promise<Finding> {
  return await underLoad(lane, event, mode, async happen => {
    const spares = await Promise.all(Array.from({ length: CONSUMERS }, () => consumerOf(lane)))
    const callers: Caller[] = []
    const { overAt, after } = await happen(AT_ONCE, 50, async isOver => {
      while (!isOver()) {
        const caller = (callers.length % 2 === 0 && spares.pop()) || anonymous(lane)
        callers.push(caller)
        for (let i = 0; i <= LIMIT && !isOver(); i++) {
          await askAs(lane, caller, mode)
          await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
        }
      }
    })

    const judged = await judge(lane, [...callers, ...after], {
      mode,
      arrives: event.arrives ?? false,
      losses: event.losses ?? 0,
      unreplicated: event.isCopiedLate ? UNREPLICATED : 0,
    })
    // Checked before the lane is connected to another Redis.
    const mistakes = [...judged.mistakes, ...(await unitsStillHeld(lane, judged.callers, mode))]
    const backAfter = backSince(overAt, [...callers, ...after])
    if (backAfter > RECOVERY_MS) mistakes.push(`the store was asked again after ${Math.round(backAfter)} ms`)
    const replies = callers.flatMap(({ replies }) => replies)
    if (event.isHarmless && isTreatedAsFailure(replies)) mistakes.push('treated as a failure')
    return { ...judged, mistakes, backAfter, hasHit: true }
  })
}

async function strikeLeases(lane: Lane, event: RedisEvent, mode: Mode): Promise<LeaseFinding> {
  return await underLoad(lane, event, mode, async happen => {
    const callers = await leasedCallers(lane, mode)
    const begun = await beginLeases(lane, callers, mode)
    await happen(callers.length, 0, async (isOver, i) => {
      while (!isOver()) {
        await askAs(lane, callers[i]!, mode)
        await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
      }
    })
    const mistakes = await judgeLeases(lane, callers, mode, {
      isUndisturbed: event.isHarmless ?? false,
      losses: event.losses ?? 0,
      unreplicated: event.isCopiedLate ? callers.length * UNREPLICATED_GRANTS * MAX_GRANTED : 0,
    })
    return { mistakes: [...begun, ...mistakes] }
  })
}

/** The leases of each caller that a failover may lose. */
const UNREPLICATED_GRANTS = 2

interface Happened {
  overAt: number
  /** New callers, until the store decides again. */
  after: readonly Caller[]
}

/**
 * Starts loops that send requests, waits, and makes the event happen. Resolves when the store has decided again and the loops have
 * ended.
 */
type Happen = (
  loops: number,
  waitMs: number,
  loop: (isOver: () => boolean, i: number) => Promise<void>,
) => Promise<Happened>

/** Connects the lane to a Redis of its own, to which the event happens. */
async function underLoad<T>(
  lane: Lane,
  event: RedisEvent,
  mode: Mode,
  work: (happen: Happen) => Promise<T>,
): Promise<T> {
  const before = lane.redis.target
  const redis = await startRedisProcess()
  let last = redis
  let isOver = false
  let load: Promise<void>[] = []
  try {
    await event.prepare?.(redis)
    await connectTo(lane, redis)
    return await work(async (loops, waitMs, loop) => {
      load = Array.from({ length: loops }, (_, i) => loop(() => isOver, i))
      await new Promise(resolve => setTimeout(resolve, waitMs))
      const other = await event.happen(redis)
      const overAt = performance.now()
      if (other) {
        last = other
        lane.redis.target = other
        lane.redis.cut()
      }
      const after = await untilDecided(lane, mode)
      isOver = true
      await Promise.all(load)
      return { overAt, after }
    })
  } finally {
    isOver = true
    await Promise.allSettled(load)
    await connectTo(lane, before)
    await redis.close()
    if (last !== redis) await last.close()
  }
}

/** Connects the bridge of the lane to another Redis. */
async function connectTo(lane: Lane, target: Target): Promise<void> {
  lane.redis.target = target
  lane.redis.cut()
  await lane.ready()
}
