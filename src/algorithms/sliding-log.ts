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

/** So many units may a log hold: a megabyte, which is written anew each time an eighth of it has been added. */
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

  // The first entry that still counts. What had passed when the newest came stays passed, also for a clock set back: it
  // need not be in the log any more.
  const passed = Math.max(now, newest) - period
  let [first, beyond] = [1, n]
  while (first < beyond) {
    const middle = Math.floor((first + beyond) / 2)
    if (log[middle]![0] > passed) beyond = middle
    else first = middle + 1
  }
  let used = n > 0 ? modulo(total - log[first - 1]![1]) : 0
  let remaining = Math.max(0, limit - used)
  let resetAfter = used > 0 ? newest + period - now : 0

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
    const retryAfter = log[low]![0] + period - now
    if (retryAfter > 0 && retryAfter <= 2 * period)
      return { retryAfter, remaining, resetAfter }
      // Entries that are not in order are not ours: an idle caller's.
    ;[n, newest, total, used, remaining, resetAfter] = [0, 0, 0, 0, limit, 0]
  }

  if (cost < 0) {
    let back = Math.min(-cost, used)
    let entries = log.slice(0, n)
    if (spentAt !== undefined) {
      // Only what was spent in that very microsecond: those after it are counted anew.
      const at = entries.findIndex(([time], i) => i >= first && time >= spentAt)
      const [time = 0, byThen = 0] = entries[at] ?? []
      const units = modulo(byThen - (entries[at - 1]?.[1] ?? 0))
      back = at > 0 && time === spentAt ? Math.min(units, back) : 0
      if (back > 0) {
        const moved = entries.slice(back === units ? at + 1 : at)
        entries = [
          ...entries.slice(0, at),
          ...moved.map(([time, byThen]): LogEntry => [time, modulo(byThen - back)]),
        ]
      }
    } else if (back > 0 && back < used) {
      // The newest units: the first entry by which all but those were admitted is the last that stays, with what is
      // left of it.
      const last = entries.findIndex(([, byThen], i) => i >= first && modulo(total - byThen) <= back)
      entries = [...entries.slice(0, last), [entries[last]![0], modulo(total - back)]]
    }
    used -= back
    newest = entries.at(-1)?.[0] ?? 0
    // Nothing is left, or what is left is not ours.
    if (used === 0 || newest <= now - period || newest > now + period) [newest, used] = [now - period, 0]
    const after = {
      remaining: Math.max(0, limit - used),
      resetAfter: used > 0 ? newest + period - now : 0,
      state: [ceilToMs(newest + period), used > 0 ? entries.length : 0, entries],
    } as const
    return { retryAfter: 0, remaining, resetAfter, after }
  }

  const time = Math.max(now, newest)
  const counting = n > 0 ? log.slice(first - 1, time === newest ? n - 1 : n) : [BASE]
  const entries: LogEntry[] = [...counting, [time, modulo(total + cost)]]
  const after = {
    remaining: limit - used - cost,
    resetAfter: time + period - now,
    state: [ceilToMs(time + period), entries.length, entries],
  } as const
  return { retryAfter: 0, remaining, resetAfter, after }
}

/** As an unsigned 32-bit integer. */
const modulo = (total: number) => total >>> 0
