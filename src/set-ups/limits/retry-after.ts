/** Reads how long another service wants its callers to wait: the header Retry-After (RFC 9110, section 10.2.3). Pure. */

interface HeaderReader {
  get(name: string): string | null
}

/** A response, its headers, or the text of its header. */
export type RetryAfter = string | HeaderReader | { readonly headers: HeaderReader }

const SECONDS = /^\d{1,10}(\.\d{1,9})?$/
/** The three forms of a date: all begin with a day of the week. */
const DATE = /^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? .*\d\d:\d\d:\d\d/i

/**
 * @param nowMs ms since the epoch, for a date in a response without `Date`
 * @returns ms; undefined without a valid header
 */
export function parseRetryAfter(from: RetryAfter, nowMs: number): number | undefined {
  const headers = typeof from === 'string' ? undefined : 'headers' in from ? from.headers : from
  // The headers of other libraries can have numbers.
  const text = String(headers ? (headers.get('retry-after') ?? '') : from).trim()
  if (SECONDS.test(text)) return Number(text) * 1e3
  const end = parseDate(text)
  if (end === undefined) return undefined
  // Both are by the clock of that service.
  return Math.max(0, end - (parseDate(String(headers?.get('date') ?? '').trim()) ?? nowMs))
}

/** @returns ms since the epoch */
function parseDate(text: string): number | undefined {
  if (!DATE.test(text)) return undefined
  // The oldest form has no time zone.
  const at = Date.parse(/ gmt$/i.test(text) ? text : [text, 'GMT'].join(' '))
  return Number.isNaN(at) ? undefined : at
}
