/**
 * Sliding log: exactly `limit` in any `period`. Lua twin: sliding-log.lua, with the same sections. Here the log is a list. There
 * it is bytes in a key of its own, so the Lua also has to find entries (`read_entry`, `LOG_NEAR`) and to keep room behind them.
 *
 * Every admitted request leaves an entry in a log: when, and all units ever admitted by then, modulo 2^32. Both grow,
 * so two binary searches find what still counts and when enough of it will not, whatever the costs. An entry at t
 * counts until just before t + period. The first entry is not a request: it holds the total before the others.
 *
 * State: idleAt is when the newest entry has passed, n the number of entries.
 */
import { ceilToMs, type LogEntry, modelOf } from './algorithm.ts'

/** Units that a log may hold: a megabyte, which is rewritten each time an eighth of it has been added. */
export const MAX_LOG_LIMIT = 100_000

const BASE: LogEntry = [0, 0]

interface Kept {
  limit: number
  period: number
  now: number
  log: readonly LogEntry[]
  /** Number of entries. */
  n: number
  newest: number
  total: number
  /** Index of the first entry that still counts. */
  first: number
  used: number
}

/** The first entry after which no more than limit - cost has been admitted: when it has passed, there is room. */
function retryAfterOf({ limit, period, now, log, n, total, first }: Kept, cost: number): number {
  let [low, high] = [first, n - 1]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (modulo(total - log[middle]![1]) <= limit - cost) high = middle
    else low = middle + 1
  }
  return log[low]![0] + period - now
}

// Annotated as pure, so that a bundler can leave it out of the Worker, which counts a log as a sliding window.
export const slidingLog = /* @__PURE__ */ modelOf<Kept>({
  read({ quota: { burst: limit, period }, state: [idleAt, count, log = []], now }) {
    let n = count
    let [newest, total] = log[n - 1] ?? BASE
    // A log that does not fit its record (evicted, foreign, or of a clock set back by more than a period) reads as idle.
    if (newest <= now - period || newest > now + period || ceilToMs(newest + period) !== idleAt) {
      ;[n, newest, total] = [0, 0, 0]
    }

    // The first entry that still counts. What had passed when the newest came stays passed, also for a clock set back: it
    // may no longer be in the log.
    const passed = Math.max(now, newest) - period
    let [first, beyond] = [1, n]
    while (first < beyond) {
      const middle = Math.floor((first + beyond) / 2)
      if (log[middle]![0] > passed) beyond = middle
      else first = middle + 1
    }
    const used = n > 0 ? modulo(total - log[first - 1]![1]) : 0
    return { limit, period, now, log, n, newest, total, first, used }
  },

  check(kept, cost) {
    const { limit, period, used } = kept
    if (cost > limit) return -1
    if (used + cost <= limit) return 0
    const retryAfter = retryAfterOf(kept, cost)
    if (retryAfter > 0 && retryAfter <= 2 * period) return retryAfter
    // Entries that are not in order are foreign, and read as idle.
    Object.assign(kept, { n: 0, newest: 0, total: 0, used: 0 })
    return 0
  },

  spend(kept, cost) {
    const { now, log, n, newest, total, first } = kept
    const time = Math.max(now, newest)
    const counting = n > 0 ? log.slice(first - 1, time === newest ? n - 1 : n) : [BASE]
    kept.log = [...counting, [time, modulo(total + cost)]]
    kept.newest = time
    kept.used += cost
    return undefined
  },

  refund(kept, { units, spentAt }) {
    const { period, now, n, first, used } = kept
    const entries = kept.log.slice(0, n)
    // Only what was spent in that very microsecond is given back; the totals after it are lowered.
    const at = entries.findIndex(([time], i) => i >= first && time >= spentAt)
    const [time = 0, byThen = 0] = entries[at] ?? []
    const spentThen = modulo(byThen - (entries[at - 1]?.[1] ?? 0))
    const back = at > 0 && time === spentAt ? Math.min(spentThen, units, used) : 0
    kept.log = entries
    if (back > 0) {
      const moved = entries.slice(back === spentThen ? at + 1 : at)
      const lowered = moved.map(([time, byThen]): LogEntry => [time, modulo(byThen - back)])
      kept.log = [...entries.slice(0, at), ...lowered]
    }
    kept.used = used - back
    kept.newest = kept.log.at(-1)?.[0] ?? 0
    // Nothing is left, or what is left is foreign.
    if (kept.used === 0 || kept.newest <= now - period || kept.newest > now + period) {
      Object.assign(kept, { log: [], newest: now - period, used: 0 })
    }
  },

  standing({ limit, period, now, newest, used }) {
    return { remaining: Math.max(0, limit - used), resetAfter: used > 0 ? newest + period - now : 0 }
  },

  write: ({ period, newest, log }) => [ceilToMs(newest + period), log.length, log],
})

/** As an unsigned 32-bit integer. */
const modulo = (total: number) => total >>> 0
