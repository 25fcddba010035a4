/** What a reply says about the limits of its API, in any of the common headers. */
import { parseList } from './list.ts'

/** The state of one policy. Absent: the reply does not say it. */
export interface PolicyState {
  /** Name and partition of the policy: the same in all replies that count together. */
  key: string
  name: string
  /** What it counts. A call costs one request, and an unknown number of any other unit. */
  unit: string
  /** Units per window, and its length (ms). */
  quota?: number | undefined
  windowMs?: number | undefined
  /** Units left, and when the count starts again, or is full (ms from now; most servers round it up to whole seconds). */
  left?: number | undefined
  resetMs?: number | undefined
}

/** A wait or a window of more than a year is a mistake. */
const MAX_MS = 366 * 86_400_000

/** Of one reply. */
const MAX_POLICIES = 20
/** Characters. */
const MAX_KEY = 99
/** A number from 0 to `most`. */
const atMost = (value: unknown, most = 1e15) =>
  typeof value === 'number' && value >= 0 && value <= most ? value : undefined

const msOf = (seconds: unknown) => atMost((seconds as number) * 1e3, MAX_MS)

/** Digits, and at most a fraction. `Number` also reads `1e3` and `0x10`, which no server means. */
const numberOf = (text: string | null | undefined) =>
  /^\d+(\.\d+)?$/.test(text ?? '') ? Number(text) : Number.NaN

/**
 * Reads the `RateLimit` fields (draft 11; `a` and `w` of its successor), or else those of older drafts, or `X-RateLimit-*`.
 * @param wallMs ms since the epoch, for servers that send no `Date`
 */
export function policiesOf(headers: Headers, wallMs: number): PolicyState[] {
  const policies = new Map<string, PolicyState>()
  for (const field of ['ratelimit-policy', 'ratelimit'])
    for (const { name, parameters } of parseList(headers.get(field) ?? '')) {
      const get = (key: string) => parameters.get(key)
      const key = `${name};${get('pk') ?? ''}`
      const policy = policies.get(key) ?? { key, name, unit: 'requests' }
      policies.set(key, policy)
      if (field === 'ratelimit') {
        policy.left = atMost(get('r') ?? get('a'))
        policy.resetMs = msOf(get('t') ?? get('w'))
      } else {
        policy.unit = `${get('qu') ?? 'requests'}`
        policy.quota = atMost(get('q'))
        policy.windowMs = msOf(get('w'))
      }
    }
  if (policies.size > 0) return [...policies.values()].slice(0, MAX_POLICIES)
  // Draft 7: `limit=100, remaining=50, reset=30`.
  const members = new Map(
    Array.from(
      headers.get('ratelimit')?.matchAll(/(?:^|, *)(limit|remaining|reset)=(\d+)(?![^,])/g) ?? [],
      ([, name, value]) => [name!, value!],
    ),
  )
  // GitHub, Discord and many others; the three fields of older drafts.
  for (const prefix of ['', 'x-ratelimit-', 'ratelimit-', 'x-rate-limit-']) {
    const read = (name: string) => (prefix ? headers.get(prefix + name) : members.get(name))
    const number = (name: string) => numberOf(read(name))
    const left = atMost(number('remaining'))
    const key = read('resource') ?? read('bucket') ?? ''
    if (left === undefined || key.length > MAX_KEY) continue
    const resetMs = msOf(number('reset-after')) ?? timeUntil(read('reset'), headers, wallMs)
    return [{ key, name: key, unit: 'requests', quota: atMost(number('limit')), left, resetMs }]
  }
  return []
}

/**
 * The time from now (ms) that a text names, if it is valid: seconds, a time in seconds or ms since the epoch, or a date. 1e8 seconds are
 * three years, or the year 1973. Times are compared with the clock of the server, if the reply says it.
 */
export function timeUntil(
  text: string | null | undefined,
  headers: Headers,
  wallMs: number,
): number | undefined {
  const number = numberOf(text)
  if (number < 1e8) return msOf(number)
  const dateOf = (date: string | null | undefined) => Date.parse(/:\d\d/.test(date ?? '') ? date! : '-')
  const time = number > 1e11 ? number : number * 1e3 || dateOf(text)
  return atMost(Math.max(0, time - (dateOf(headers.get('date')) || wallMs)), MAX_MS)
}

/**
 * How long a refused call has to wait (ms): `Retry-After-Ms` (OpenAI, Azure), or else `Retry-After` (RFC 9110, section 10.2.3). Of
 * several lines, the longest time counts.
 */
export function retryAfterOf(headers: Headers, wallMs: number): number | undefined {
  // A comma is part of a date if a time of day follows it.
  const times = (headers.get('retry-after') ?? '')
    .split(/,(?![^,]*:)/)
    .map(each => timeUntil(each.trim(), headers, wallMs) ?? -1)
  return msOf(numberOf(headers.get('retry-after-ms')) / 1e3) ?? atMost(Math.max(...times))
}
