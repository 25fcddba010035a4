/** What the gateway promises while the store fails: the settings of the suite, and what a caller may see under them. */
import type { Seen } from './exchange.ts'

/** Of a rule: what becomes of a request that its limit cannot be asked about. */
export const MODES = ['open', 'closed', 'local'] as const
export type Mode = (typeof MODES)[number]

/** Of every rule. */
export const LIMIT = 2

/** Requests in flight, of every rule about them, and how long a slot stays taken that is not renewed. */
export const AT_ONCE = 4
export const SLOT_TTL_MS = 2000

/** Of the rules of the soak, which has to find an end in Redis too. */
export const SOAK_LIMIT = 20
export const SOAK_PERIOD_MS = 5000

const LOCAL_SHARE = 0.5

/** What one isolate admits by itself of a limit. */
const LOCAL_LIMIT = LIMIT * LOCAL_SHARE

/** The default. */
export const DEADLINE_MS = 250
const RETRY_AFTER_MS = 250

export const STORE = {
  deadline: `${DEADLINE_MS}ms`,
  breaker: { retryAfter: `${RETRY_AFTER_MS}ms` },
  localShare: LOCAL_SHARE,
} as const

/**
 * How much later than the deadline an answer may come. On a machine that is busy with other suites timers are late; what
 * was measured stands in docs/reliability.md.
 */
export const LATE_MS = 10_000

/** From the last fault to the first decision that is made in the store again; measured as above. */
export const RECOVERY_MS = 30_000

/** The same, after the store has said that its plan is used up: it is tried every 30 seconds then. */
export const PATIENCE_MS = 60_000

const TEMPORARY_REDUCED_CAPACITY =
  'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity'

/**
 * So many requests of one caller may pass without the store in one outage, whatever it has admitted.
 * @param marked those that did, and say so
 */
export function mostWithoutStore(mode: Mode, marked: number): number {
  if (mode === 'open') return marked
  return mode === 'closed' ? 0 : LOCAL_LIMIT
}

/**
 * Marks of requests that were late, which on a busy machine need no fault: until the outage is confirmed, `open` is decided
 * as `local`.
 */
export function isSlownessMark(mark: string): boolean {
  return ['store-timeout', 'breaker-open', 'overload'].includes(mark)
}

export interface Asked {
  mode: Mode
  /** It shows a credential that this isolate has not seen to be good. */
  isUnknown: boolean
  /** The store has lost what it knew of keys. */
  isForgotten: boolean
}

/** What is wrong with a reply, whatever happened behind it; undefined when it is one that the policy asks for. */
export function mistakeIn(
  { status, mark, type, retryAfter }: Seen,
  { mode, isUnknown, isForgotten }: Asked,
): string | undefined {
  switch (status) {
    case 200:
      if (mark === undefined) return undefined
      if (mode === 'closed') return 'a closed rule let it pass, marked'
      return isUnknown ? 'a credential that nobody has seen passed, marked' : undefined
    case 401:
      return isUnknown || isForgotten ? undefined : 'a good credential was refused'
    case 429:
      if (mark === undefined || mode === 'local') return undefined
      return mode === 'open' && isSlownessMark(mark) ? undefined : 'refused by a limit that was not asked'
    case 503:
      if (type !== TEMPORARY_REDUCED_CAPACITY) return `503 of type ${type}`
      if (mark === undefined || !retryAfter) return '503 that does not say why, or how long'
      return mode === 'closed' || isUnknown ? undefined : '503, which nothing asks for'
    default:
      return `${status}, which nothing asks for`
  }
}
