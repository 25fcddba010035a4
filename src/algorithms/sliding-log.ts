/**
 * Sliding log: exactly `limit` in any `period`. Lua twin: sliding-log.lua, kept line for line (there the log is bytes
 * with room behind, here a list).
 *
 * Every admitted request leaves an entry in a log: when, and all units ever admitted by then, modulo 2^32. Both grow,
 * so two binary searches find what still counts and when enough of it will not, whatever the costs. An entry at t
 * counts until just before t + period. The first entry is no request but what went before.
 *
 * State: idleAt is when the newest entry has passed, n the number of entries.
 */
import { type Algorithm, ceilToMs, type LogEntry } from './algorithm.ts'

/** So many units may a log hold: it is read whole at each decision. */
export const MAX_LOG_LIMIT = 100_000

const BASE: LogEntry = [0, 0]

export const slidingLog: Algorithm = ({ limit, period, cost }, [idleAt, count, log = []], now, spentAt) => {
  let n = count
  let [newest, total] = log[n - 1] ?? BASE
  // A log that does not fit its record (evicted, foreign, or of a clock set back by more than a period) is an idle
  // caller's.
  if (newest <= now - period || newest > now + period || ceilToMs(newest + period) !== idleAt) {
    ;[n, newest, total] = [0, 0, 0]
  }

  // The first entry that still counts.
  let [first, beyond] = [1, n]
  while (first < beyond) {
    const middle = Math.floor((first + beyond) / 2)
    if (log[middle]![0] > now - period) beyond = middle
    else first = middle + 1
  }
  let used = n > 0 ? modulo(total - log[first - 1]![1]) : 0
  const remaining = Math.max(0, limit - used)
  const resetAfter = used > 0 ? newest + period - now : 0

  // A peek is never refused, even where the limit has since been lowered.
  if (cost === 0) return { retryAfter: 0, remaining, resetAfter }
  if (cost > limit) return { retryAfter: -1, remaining, resetAfter }
  if (cost > 0 && used + cost > limit) {
    // The first entry after which no more than limit - cost has been admitted: when it has passed, there is room.
    let [low, high] = [first, n - 1]
    while (low < high) {
      const middle = Math.floor((low + high) / 2)
      if (modulo(total - log[middle]![1]) <= limit - cost) high = middle
      else low = middle + 1
    }
    return { retryAfter: log[low]![0] + period - now, remaining, resetAfter }
  }

  if (cost < 0) {
    // The newest units go first, or those of the time that is told. What is left is counted anew, from the oldest on.
    const kept: LogEntry[] = []
    let back = -cost
    for (let last = n - 1; last >= first; last--) {
      const [time, byThen] = log[last]!
      let units = modulo(byThen - log[last - 1]![1])
      if (spentAt === undefined || time === spentAt) {
        const taken = Math.min(units, back)
        units -= taken
        back -= taken
      }
      if (units > 0) kept.push([time, units])
    }
    newest = kept[0]?.[0] ?? now - period
    used = 0
    const entries = kept.reverse().map(([time, units]): LogEntry => {
      used += units
      return [time, used]
    })
    const spent = {
      remaining: Math.max(0, limit - used),
      resetAfter: newest + period - now,
      state: [ceilToMs(newest + period), entries.length + 1, [BASE, ...entries]],
    } as const
    return { retryAfter: 0, remaining, resetAfter, spent }
  }

  const time = Math.max(now, newest)
  const counting = n > 0 ? log.slice(first - 1, time === newest ? n - 1 : n) : [BASE]
  const entries: LogEntry[] = [...counting, [time, modulo(total + cost)]]
  const spent = {
    remaining: limit - used - cost,
    resetAfter: time + period - now,
    state: [ceilToMs(time + period), entries.length, entries],
  } as const
  return { retryAfter: 0, remaining, resetAfter, spent }
}

/** As an unsigned 32-bit integer. */
const modulo = (total: number) => total >>> 0
