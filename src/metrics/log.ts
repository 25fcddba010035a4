/**
 * Log lines, bounded per second for each event and isolate, so that a flood of requests does not flood the log. Each line says
 * how many lines of its event were skipped since the last one.
 */
export type Log = (level: 'info' | 'warn', event: string, fields: Readonly<Record<string, unknown>>) => void

export function createLog(perSecond: number, now: () => number): Log {
  const events = new Map<string, { second: number; written: number; skipped: number }>()
  return (level, event, fields) => {
    const second = Math.floor(now() / 1e3)
    const before = events.get(event) ?? { second, written: 0, skipped: 0 }
    const { skipped } = before
    const written = before.second === second ? before.written : 0
    const isLeftOut = written >= perSecond
    events.set(
      event,
      isLeftOut ? { second, written, skipped: skipped + 1 } : { second, written: written + 1, skipped: 0 },
    )
    if (!isLeftOut) console[level](JSON.stringify({ level, event, ...fields, skipped }))
  }
}
