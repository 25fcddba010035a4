/**
 * Writes a log line as JSON. Lines are bounded per second for each event and isolate, so that a flood of requests does not flood the log.
 * Each line has the number of lines of its event that were skipped since the last one (`skipped`).
 */
export type Log = (level: 'info' | 'warn', event: string, fields: Readonly<Record<string, unknown>>) => void

/**
 * Creates the log of an isolate.
 * @param perSecond lines of each event
 * @param now ms since the epoch
 */
export function createLog(perSecond: number, now: () => number): Log {
  const events = new Map<string, { second: number; written: number; skipped: number }>()
  return (level, event, fields) => {
    const second = Math.floor(now() / 1e3)
    const before = events.get(event) ?? { second, written: 0, skipped: 0 }
    const { skipped } = before
    const written = before.second === second ? before.written : 0
    const isSkipped = written >= perSecond
    events.set(
      event,
      isSkipped ? { second, written, skipped: skipped + 1 } : { second, written: written + 1, skipped: 0 },
    )
    if (!isSkipped) console[level](JSON.stringify({ level, event, ...fields, skipped }))
  }
}
