/** Schemas of the values in a config: durations, amounts, names. Their messages say what is wrong and what to write instead. */
import * as v from 'valibot'
import { AmbiguousError } from '../../patterns/expression.ts'
import { hostMatcher, pathMatcher } from '../../patterns/patterns.ts'
import { type Duration, parseDuration } from '../duration.ts'
import { didYouMean } from './did-you-mean.ts'

const MAX_UNITS = 1e9

const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/

/** An object with these keys and no others. */
export function settings<const T extends v.ObjectEntries>(entries: T, fix: string) {
  return v.strictObject(entries, issue => {
    if (issue.expected === 'never') {
      const known = Object.keys(entries)
      const meant = didYouMean(issue.path?.at(-1)?.key, known)
      return `is not a setting here.${meant} Settings: ${known.join(', ')}.`
    }
    const missing = entries[String(issue.path?.at(-1)?.key)]
    // A missing key gets the message that its schema has for undefined.
    return (missing && v.safeParse(missing as v.GenericSchema, undefined).issues?.[0].message) ?? fix
  })
}

/** An object whose keys are names that the user chooses. A list is rejected, although its indexes would be valid names. */
export function record<
  const K extends v.GenericSchema<string>,
  const V extends v.BaseSchema<unknown, unknown, v.BaseIssue<unknown>>,
>(key: K, value: V, fix: string) {
  const isRecord = (input: unknown) => typeof input === 'object' && input !== null && !Array.isArray(input)
  return v.pipe(
    v.custom<Record<string, v.InferInput<V>>>(isRecord, fix),
    v.check(
      input => lostName(input) === undefined,
      ({ input }) =>
        `cannot have the name '${lostName(input)}', which every object has. Choose another name.`,
    ),
    v.record(key, value, fix),
  )
}

/** A name that v.record would leave out. */
const lostName = (input: object) =>
  ['__proto__', 'constructor', 'prototype'].find(name => Object.hasOwn(input, name))

/**
 * One of a few words.
 *
 * @param flaw of any other value, as in `is not a mode`
 * @param use replaces the list of the words at the end of the message
 */
export function oneOf<const T extends readonly string[]>(words: T, flaw: string, use?: string) {
  const quoted = words.map(word => `'${word}'`)
  return v.picklist(words, ({ input }) => {
    return `${flaw}.${didYouMean(input, words)} ${use ?? `Use ${listed(quoted, 'or')}.`}`
  })
}

export const text = (fix: string) => v.pipe(v.string(fix), v.minLength(1, fix))

export const name = (what: string) =>
  v.pipe(
    v.string(`is not a ${what}. Write text.`),
    v.regex(NAME, `is not a ${what}. Use 1 to 63 lowercase letters, digits, '-' and '_'.`),
  )

export function duration(low: number, high: number, range: string) {
  const fix =
    "is not a duration. Write a number and a unit in quotes, as in '250ms', '1s', '15m', '1h' or '1d'."
  return v.pipe(
    v.custom<Duration>(input => typeof input === 'string' && parseDuration(input) !== undefined, fix),
    v.check(input => {
      const microseconds = parseDuration(input)!
      return microseconds >= low && microseconds <= high
    }, `is out of range. Use a duration ${range}.`),
  )
}

/** @param algorithm that allows less than usual */
export const units = (low: number, high = MAX_UNITS, algorithm?: string) => {
  const fix = `is not an amount. Write a whole number from ${low} to ${high}.`
  const tooHigh = `is too high: ${algorithm ? `${algorithm} allows at most` : 'the maximum is'} ${high}.`
  const fixOfType = ({ input }: { input: unknown }) => (input === 'adaptive' ? ADAPTIVE : fix)
  return v.pipe(v.number(fixOfType), v.integer(fix), v.minValue(low, fix), v.maxValue(high, tooHigh))
}

/** `limit: 'adaptive'` looks like a way to write a limit that follows the origin. */
const ADAPTIVE =
  "is not an amount. For a limit that follows the origin, write its highest value and add adaptive, as in limit: 1000, adaptive: {}. The rule needs algorithm: 'concurrency' and by: 'global'."

/** A share from `low` to 1. */
export function share(low: number) {
  const fix = `is not a share. Write a number from ${low} to 1.`
  return v.pipe(v.number(fix), v.minValue(low, fix), v.maxValue(1, fix))
}

/** A factor from `low` to `high`. */
export function multiple(low: number, high: number) {
  const fix = `is not a multiple. Write a number from ${low} to ${high}.`
  return v.pipe(v.number(fix), v.minValue(low, fix), v.maxValue(high, fix))
}

export const flag = v.boolean('is neither true nor false. Write true or false, without quotes.')

export const headerName = v.pipe(
  text("is not a header name. Write it like 'x-partner-key'."),
  v.regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/, "is not a header name. Write it like 'x-partner-key'."),
)

/** @param several an example of one pattern that matches several values */
function pattern(part: 'pathname' | 'hostname', example: string, several: string) {
  return v.pipe(
    v.string(({ input }) =>
      Array.isArray(input)
        ? `is a list. Write one pattern, as in '${several}', or one rule or route for each.`
        : `is not a pattern. Write text such as '${example}'.`,
    ),
    v.minLength(1, `is not a pattern. Write text such as '${example}'.`),
    v.check(
      input => flawOfPattern(part, input) === undefined,
      ({ input }) => flawOfPattern(part, input)!,
    ),
  )
}

export const pathPattern = pattern('pathname', '/reports/*', '/(reports|exports)/*')
export const hostPattern = pattern('hostname', 'api.example.com', '(api|www).example.com')

const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:\/|$)/i

function flawOfPattern(part: 'pathname' | 'hostname', input: string): string | undefined {
  const isPath = part === 'pathname'
  if (isPath && !input.startsWith('/')) return "does not start with '/'. Write it like '/reports/*'."
  if (/[\t\n\r]/.test(input)) return 'contains a tab or a line break, which no URL contains. Remove it.'
  if (isPath && DOT_SEGMENT.test(input.replace(/[\\{}]/g, ''))) {
    return "contains a '.' or '..' segment, which paths are matched without. Remove it."
  }
  try {
    return void (isPath ? pathMatcher : hostMatcher)(input)
  } catch (error) {
    if (error instanceof AmbiguousError) {
      return "could take a long time to match, because the same text can belong to two of its parts. Use fewer '*', '+' and '?', or several patterns."
    }
  }
  return isPath
    ? "is not a URLPattern. Write something like '/reports/*', without a query."
    : "is not a URLPattern of a host. Write something like 'api.example.com', without scheme, port and path."
}

/** `a, b or c` */
export function listed(items: readonly string[], conjunction: 'and' | 'or'): string {
  return `${items.slice(0, -1).join(', ')} ${conjunction} ${items.at(-1)}`
}
