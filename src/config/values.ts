/** The values a config is made of: durations, amounts, names. Each says what is wrong and what to write instead. */
import * as v from 'valibot'
import { type Duration, parseDuration } from './duration.ts'

const MAX_UNITS = 1e9

const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/

/** An object with these keys and no others. */
export function settings<const T extends v.ObjectEntries>(entries: T, fix: string) {
  return v.strictObject(entries, issue => {
    if (issue.expected === 'never') {
      return `is not a setting here. The settings are ${Object.keys(entries).join(', ')}.`
    }
    const missing = entries[String(issue.path?.at(-1)?.key)]
    // A key that is missing is explained as if undefined stood there.
    return (missing && v.safeParse(missing as v.GenericSchema, undefined).issues?.[0].message) ?? fix
  })
}

export const text = (fix: string) => v.pipe(v.string(fix), v.minLength(1, fix))

export const name = (what: string) =>
  v.pipe(
    v.string(`is no ${what}. Write text.`),
    v.regex(NAME, `is no ${what}. Use 1 to 63 lower case letters, digits, '-' and '_'.`),
  )

export function duration(low: number, high: number, range: string) {
  const fix = "is no duration. Write a number and a unit in quotes, as in '250ms', '1s', '15m', '1h' or '1d'."
  return v.pipe(
    v.custom<Duration>(input => typeof input === 'string' && parseDuration(input) !== undefined, fix),
    v.check(input => {
      const microseconds = parseDuration(input)!
      return microseconds >= low && microseconds <= high
    }, `is out of range. It can be ${range}.`),
  )
}

/** @param why there is a lower bound than elsewhere, as a clause */
export const units = (low: number, high = MAX_UNITS, why?: string) => {
  const fix = `is no amount. Write a whole number from ${low} to ${high}${why ? `: ${why}` : ''}.`
  return v.pipe(v.number(fix), v.integer(fix), v.minValue(low, fix), v.maxValue(high, fix))
}

export const flag = v.boolean('is neither true nor false.')

export function urlPattern(part: 'pathname' | 'hostname', example: string) {
  return v.pipe(
    text(`is no pattern. Write text such as '${example}'.`),
    v.check(input => {
      try {
        return Boolean(new URLPattern({ [part]: input }))
      } catch {
        return false
      }
    }, `is no URLPattern. Write something like '${example}'.`),
  )
}
