/** How long a third party wants its callers to wait. */
import { expect, it } from 'vitest'
import { parseRetryAfter, type RetryAfter } from '../../src/set-ups/limits/retry-after.ts'

const NOW = Date.parse('2026-11-26T12:00:00Z')
const withDate = (retryAfter: string, date: string) =>
  new Response(null, { status: 429, headers: { 'retry-after': retryAfter, date } })

it.each<[RetryAfter, number | undefined]>([
  ['30', 30_000],
  [' 0 ', 0],
  ['1.5', 1500],
  [new Headers({ 'retry-after': '7' }), 7000],
  [new Response(null, { headers: { 'retry-after': '7' } }), 7000],
  // The three forms of a date, and one in the past.
  ['Thu, 26 Nov 2026 12:00:10 GMT', 10_000],
  ['Thursday, 26-Nov-26 12:00:10 GMT', 10_000],
  ['Thu Nov 26 12:00:10 2026', 10_000],
  ['Thu, 26 Nov 2026 11:00:00 GMT', 0],
  // The clock of the third party is an hour ahead, or its Date is not valid.
  [withDate('Thu, 26 Nov 2026 13:00:10 GMT', 'Thu, 26 Nov 2026 13:00:00 GMT'), 10_000],
  [withDate('Thu, 26 Nov 2026 12:00:10 GMT', 'now'), 10_000],
  [new Response(), undefined],
  ...['', '-1', '1e3', 'soon', '10 s', '2026-11-26T12:00:10Z', 'Thu, 99 Foo 2026 12:00:10 GMT'].map(
    (text): [string, undefined] => [text, undefined],
  ),
])('reads %o', (from, ms) => {
  expect(parseRetryAfter(from, NOW)).toBe(ms)
})
