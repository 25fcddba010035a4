/** Durations as people write and read them. The config has '250ms', '1s', '90s', '15m', '1h', '1d'. */

/** In microseconds, longest first: `m` is the start of `minute` before it is that of `ms`. */
const UNITS = [
  ['day', 86400e6],
  ['hour', 3600e6],
  ['minute', 60e6],
  ['second', 1e6],
  ['ms', 1e3],
] as const

export type Duration = `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

/** @returns whole microseconds; undefined when the text is not a valid duration, or not whole milliseconds */
export function parseDuration(text: string): number | undefined {
  const [, amount, symbol] = /^(\d{1,15}(?:\.\d{1,6})?)(ms|s|m|h|d)$/.exec(text) ?? []
  if (!amount || !symbol) return undefined
  const exact = Number(amount) * UNITS.find(([name]) => name.startsWith(symbol))![1]
  // 1.001 * 1e6 is 1000999.9999999999
  const microseconds = Math.round(exact / 1e3) * 1e3
  return Number.isSafeInteger(microseconds) && Math.abs(microseconds - exact) < 0.01
    ? microseconds
    : undefined
}

/** As it reads after `per`, never rounded: `second`, `15 minutes`, `250 ms`. */
export function formatPeriod(microseconds: number): string {
  const [name, unit] = UNITS.find(([, unit]) => microseconds % unit === 0) ?? UNITS[4]
  const count = microseconds / unit
  if (name === 'ms') return `${count} ms`
  return count === 1 ? name : `${count} ${name}s`
}

/** The same with its number: `1 second`, `15 minutes`. */
export function formatDuration(microseconds: number): string {
  const period = formatPeriod(microseconds)
  return /^\d/.test(period) ? period : `1 ${period}`
}

const SHORT = { day: 'd', hour: 'h', minute: 'min', second: 's', ms: 'ms' }

/** Rounded, and short for tables: `23 h`, `90 s`, `5 ms`. A unit is used from two of it on. */
export function formatWait(microseconds: number): string {
  const [name, unit] = UNITS.find(([, unit]) => microseconds >= 1.995 * unit) ?? UNITS[4]
  return `${Math.max(1, Math.round(microseconds / unit))} ${SHORT[name]}`
}

/** Of a duration that the check has accepted. */
export function milliseconds(text: Duration): number {
  return parseDuration(text)! / 1e3
}
