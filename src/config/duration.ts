/** Parses and formats durations. A config has '250ms', '1s', '90s', '15m', '1h', '1d'. */

/** Microseconds of each unit, the longest first: the symbol `m` must find `minute` before `ms`. */
const UNITS = [
  ['day', 86400e6],
  ['hour', 3600e6],
  ['minute', 60e6],
  ['second', 1e6],
  ['ms', 1e3],
] as const

export type Duration = `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

/** @returns microseconds; undefined if the text is not a duration of whole milliseconds */
export function parseDuration(text: string): number | undefined {
  const [, amount, symbol] = /^(\d{1,15}(?:\.\d{1,6})?)(ms|s|m|h|d)$/.exec(text) ?? []
  if (!amount || !symbol) return undefined
  const exact = Number(amount) * UNITS.find(([name]) => name.startsWith(symbol))![1]
  // Rounded, because 1.001 * 1e6 is 1000999.9999999999.
  const microseconds = Math.round(exact / 1e3) * 1e3
  return Number.isSafeInteger(microseconds) && Math.abs(microseconds - exact) < 0.01
    ? microseconds
    : undefined
}

/** Formats a period for use after `per`, without rounding: `second`, `15 minutes`, `250 ms`. */
export function formatPeriod(microseconds: number): string {
  const [name, unit] = UNITS.find(([, unit]) => microseconds % unit === 0) ?? UNITS[4]
  const count = microseconds / unit
  if (name === 'ms') return `${count} ms`
  return count === 1 ? name : `${count} ${name}s`
}

/** Formats a duration, always with a number and without rounding: `1 second`, `15 minutes`. */
export function formatDuration(microseconds: number): string {
  const period = formatPeriod(microseconds)
  return /^\d/.test(period) ? period : `1 ${period}`
}

const SHORT = { day: 'd', hour: 'h', minute: 'min', second: 's', ms: 'ms' }

/** Formats a rounded duration for tables: `23 h`, `90 s`, `5 ms`. Uses the largest unit of which there are at least two. */
export function formatWait(microseconds: number): string {
  const [name, unit] = UNITS.find(([, unit]) => microseconds >= 1.995 * unit) ?? UNITS[4]
  return `${Math.max(1, Math.round(microseconds / unit))} ${SHORT[name]}`
}

/** Converts a duration that the check has accepted. */
export function milliseconds(text: Duration): number {
  return parseDuration(text)! / 1e3
}
