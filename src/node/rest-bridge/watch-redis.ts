/** Says when Redis stops answering and when it is back, also while there are no requests. */
import type { FoundRedis } from './found-redis.ts'

/** From one answer to the next question, so that there is at most one line a second. */
const EVERY_MS = 1000

export interface WatchOptions {
  /** Called when Redis answers again. */
  onBack?: () => void
  now?: () => number
  /** Resolves when the next check is due; tests pass their own. */
  pause?: (ms: number) => Promise<void>
}

/** @returns ends it */
export function watchRedis(
  redis: Pick<FoundRedis, 'outages' | 'isCluster'>,
  say: (line: string) => void,
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
        say(
          `${outage.address} ${outage.reason}. Until it is back, the bridge answers ${commands} with ${outage.status}.`,
        )
      } else if (!outage && lostAt !== undefined) {
        say(`Redis is back after ${Math.max(1, Math.round((now() - lostAt) / 1e3))} s.`)
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
