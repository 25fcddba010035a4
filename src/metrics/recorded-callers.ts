/** Reads the records of refused callers (add-callers.ts). Pure. */
import { pairs } from './sums.ts'

const MINUTE_MS = 60e3

/** Stands for callers that nothing names: they have no consumer, and networks are not kept. */
export const UNNAMED = '-'

/** Ends the name of a consumer in the mode test. No other name ends like this, because names of consumers have no colon. */
export const TEST_SUFFIX = ':test'

/** A caller in the record of an hour. */
export interface RecordedCaller {
  /** As it is written in the store: with the mode. */
  name: string
  count: number
  /** By how much the count can be too high. */
  error: number
  /** The minute of the hour since which it has been refused without a longer pause. */
  since: number
  /** What was counted in the last minutes with refusals. */
  minutes: readonly (readonly [minute: number, count: number])[]
}

/** The text of a field of a record. Text that cannot be read is left out. */
export function parseCallers(text: string): RecordedCaller[] {
  return [...text.matchAll(/(?<!\S)(\S+) (\d+) (\d+) (\d+) (\S+)/g)].map(
    ([, name = '', count, error, since, minutes = '']) => ({
      ...{ name, count: Number(count), error: Number(error), since: Number(since) },
      minutes: minutes.split(',').map(each => {
        const [minute, count] = each.split(':')
        return [Number(minute), Number(count)] as const
      }),
    }),
  )
}

/** In which minutes the most refused caller is looked for: this one and those before. */
const RECENT_MINUTES = 5

/** The hours of those minutes. @param now ms since the epoch */
export const recentHours = (now: number): Date[] =>
  [
    ...new Set([now - (RECENT_MINUTES - 1) * MINUTE_MS, now].map(at => Math.floor(at / (60 * MINUTE_MS)))),
  ].map(hour => new Date(hour * 60 * MINUTE_MS))

/**
 * How often each rule has refused the caller that it has refused most in the last five minutes, at least. Callers that nothing names are
 * not one caller.
 * @param hashes the record of each hour, as a list: field, value, field, value
 * @param now ms since the epoch
 * @returns by rule
 */
export function mostRefused(
  hours: readonly Date[],
  hashes: readonly (readonly string[])[],
  now: number,
): Map<string, number> {
  const sums = new Map<string, number>()
  const most = new Map<string, number>()
  for (const [i, hash] of hashes.entries())
    for (const [field, text] of pairs(hash)) {
      const [, rule] = /^limited (\S+)$/.exec(field) ?? []
      if (rule === undefined) continue
      for (const { name, minutes } of parseCallers(text)) {
        if (name === UNNAMED) continue
        const key = `${rule} ${name}`
        for (const [minute, count] of minutes) {
          const agoMs = now - (hours[i]!.getTime() + minute * MINUTE_MS)
          if (agoMs < RECENT_MINUTES * MINUTE_MS) sums.set(key, (sums.get(key) ?? 0) + count)
        }
        most.set(rule, Math.max(most.get(rule) ?? 0, sums.get(key) ?? 0))
      }
    }
  return most
}
