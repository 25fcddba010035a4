/** Durations as people write them: '250ms', '1s', '90s', '15m', '1h', '1d'. */

const MICROSECONDS = { ms: 1e3, s: 1e6, m: 60e6, h: 3600e6, d: 86400e6 } as const

export type Duration = `${number}${keyof typeof MICROSECONDS}`

/** @returns whole microseconds, or undefined when the text is no duration (it must come to whole milliseconds). */
export function parseDuration(text: string): number | undefined {
  const [, amount, unit] = /^(\d{1,15}(?:\.\d{1,6})?)(ms|s|m|h|d)$/.exec(text) ?? []
  if (!amount || !unit) return undefined
  const exact = Number(amount) * MICROSECONDS[unit as keyof typeof MICROSECONDS]
  // 1.001 * 1e6 is 1000999.9999999999
  const microseconds = Math.round(exact / 1e3) * 1e3
  return Number.isSafeInteger(microseconds) && Math.abs(microseconds - exact) < 0.01
    ? microseconds
    : undefined
}
