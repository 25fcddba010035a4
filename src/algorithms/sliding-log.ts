/**
 * Sliding log: admits exactly `limit` in any `period`. Lua twin: sliding-log.lua, with the same sections. In this model, the log is a
 * list. In Redis, it is a string in its side key and, if it is long, chunks in a second key, which only the Lua knows (`open_log`).
 *
 * Each admitted request adds an entry: its time, and the units admitted in all up to this request, modulo 2^32. Both numbers grow, so
 * a binary search finds the first entry that still counts. A second search finds the entry whose expiry makes room for a cost. An entry at
 * time t counts until just before t + period. The first entry is not a request: it holds the total before the others.
 *
 * State: idleAt is when the newest entry no longer counts, n the number of entries.
 */
import { ceilToMs, type LogEntry, modelOf } from './algorithm.ts'

/** The highest limit: a log of about a megabyte. */
export const MAX_LOG_LIMIT = 100_000

/** The sizes of a log in Redis (sliding-log.lua): the bytes of an entry, and bounds in entries, except for the fields of the hash. */
export const LOG_ENTRY = 11
export const LOG_PLAIN = 64
export const LOG_CHUNK = 32
export const LOG_FIELDS = 4096

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

/** Time until the cost fits: until the entries that remain have at most limit - cost units. */
function retryAfterOf({ limit, period, now, log, n, total, first }: Kept, cost: number): number {
  let [low, high] = [first, n - 1]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (modulo(total - log[middle]![1]) <= limit - cost) high = middle
    else low = middle + 1
  }
  return log[low]![0] + period - now
}

// Annotated as pure, so that a bundler can leave this model out of the Worker. When the Worker counts by itself, it uses a sliding window
// instead (sliding-log.descriptor.ts).
export const slidingLog = /* @__PURE__ */ modelOf<Kept>({
  read({ quota: { burst: limit, period }, state: [idleAt, count, log = []], now }) {
    let n = count
    let [newest, total] = log[n - 1] ?? BASE
    // A log that does not match its record counts as empty: it was evicted, written by another program, or the clock was set back by
    // more than a period.
    if (newest <= now - period || newest > now + period || ceilToMs(newest + period) !== idleAt) {
      ;[n, newest, total] = [0, 0, 0]
    }

    // Find the first entry that still counts. Entries that had expired when the newest one was added stay expired, even if the clock was
    // set back, because they may no longer be in the log.
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
    // Entries that are not in order were not written by this algorithm. The log counts as empty.
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
    // Gives back only units that were spent exactly at `spentAt`, and lowers the totals of all later entries.
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
    // The log is empty now, or its entries were not written by this algorithm.
    if (kept.used === 0 || kept.newest <= now - period || kept.newest > now + period) {
      Object.assign(kept, { log: [], newest: now - period, used: 0 })
    }
  },

  standing({ limit, period, now, newest, used }) {
    return { remaining: Math.max(0, limit - used), resetAfter: used > 0 ? newest + period - now : 0 }
  },

  write: ({ period, newest, log }) => [ceilToMs(newest + period), log.length, log],
})

/** Modulo 2^32. */
const modulo = (total: number) => total >>> 0
