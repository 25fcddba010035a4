/**
 * Log lines, so many a second for each event and isolate: what floods the gateway must not flood the log. Each line says how
 * many of its event were left out since the one before.
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
