/** Reports when Redis stops answering, and when it answers again. Checks regularly, also without requests. */
import type { FoundRedis } from './found-redis.ts'

/** The time from one answer to the next check. So there is at most one message a second. */
const EVERY_MS = 1000

export interface WatchOptions {
  /** Called when Redis answers again. */
  onBack?: () => void
  now?: () => number
  /** Resolves when the next check is due; tests pass their own. */
  pause?: (ms: number) => Promise<void>
}

/** @returns a function that ends the watch */
export function watchRedis(
  redis: Pick<FoundRedis, 'outages' | 'isCluster'>,
  log: (line: string) => void,
  { onBack, now = Date.now, pause = unrefPause }: WatchOptions = {},
): () => void {
  let isOver = false
  let lostAt: number | undefined

  async function watch(): Promise<void> {
    while (!isOver) {
      const outage = (await redis.outages()).find(outage => outage)
      if (isOver) return
      if (outage && lostAt === undefined) {
        lostAt = now()
        const commands = redis.isCluster ? 'commands on its keys' : 'every command'
        // A Redis that refuses changes (MISCONF) can still answer reads.
        const effect =
          outage.status === 400
            ? 'the bridge passes its errors on with 400'
            : `the bridge answers ${commands} with ${outage.status}`
        log(`${outage.address} ${outage.reason}. Until it is back, ${effect}.`)
      } else if (!outage && lostAt !== undefined) {
        log(`Redis is back after ${Math.max(1, Math.round((now() - lostAt) / 1e3))} s.`)
        lostAt = undefined
        onBack?.()
      }
      await pause(EVERY_MS)
    }
  }

  void watch()
  return () => {
    isOver = true
  }
}

const unrefPause = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms).unref())
