/**
 * Writes a log line as JSON. Lines are bounded per second for each event and isolate, so that a flood of requests does not flood the log.
 * Each line has the number of lines of its event that were skipped since the last one (`skipped`).
 *
 * @returns whether the line was written
 */
export type Log = (
  level: 'info' | 'warn' | 'error',
  event: string,
  fields: Readonly<Record<string, unknown>>,
) => boolean

/** Default of `log.perSecond`. */
export const LINES_PER_SECOND = 5

/**
 * Creates the log of an isolate. All of its parts write to this one.
 *
 * @param perSecond lines of each event. Of errors, one is written even with 0, because replies refer to the log
 * @param now ms since the epoch
 * @param write gets each line
 */
export function createLog(
  perSecond = LINES_PER_SECOND,
  now: () => number,
  write = (level: Parameters<Log>[0], line: string): void => console[level](line),
): Log {
  const events = new Map<string, { second: number; written: number; skipped: number }>()
  return (level, event, fields) => {
    const second = Math.floor(now() / 1e3)
    const before = events.get(event)
    const skipped = before?.skipped ?? 0
    const written = before?.second === second ? before.written : 0
    const isWritten = written < (level === 'error' ? Math.max(1, perSecond) : perSecond)
    events.set(event, { second, written: written + Number(isWritten), skipped: isWritten ? 0 : skipped + 1 })
    if (isWritten) write(level, JSON.stringify({ level, event, ...fields, skipped }))
    return isWritten
  }
}
