/** Times in texts for people (UTC). */
import { formatWait } from '../config/duration.ts'

/** `2026-11-21 06:00` */
export function time(date: Date): string {
  return date.toISOString().slice(0, 16).replace('T', ' ')
}

/** `2026-11-21 06:00:07` */
export const timeWithSeconds = (date: Date): string => date.toISOString().slice(0, 19).replace('T', ' ')

/**
 * `2026-11-21 06:00 (in 23 h)`
 * @param zone stands behind the time; in a table the heading names it
 */
export function timeAhead(date: Date, zone = ''): string {
  const left = date.getTime() - Date.now()
  return `${time(date)}${zone} (${left > 0 ? `in ${formatWait(left * 1000)}` : 'ended'})`
}

/** `14:02 UTC`, and the date if it is not today. */
export function clock(at: Date, now: Date, zone = ' UTC'): string {
  const text = time(at)
  return (text.slice(0, 10) === time(now).slice(0, 10) ? text.slice(11) : text) + zone
}
