/** The settings of the suite, and the replies that callers may get under them while the store fails. */
import type { Observed } from './exchange.ts'

/** The fallbacks of a rule (`onStoreFailure`). */
export const MODES = ['open', 'closed', 'local'] as const
export type Mode = (typeof MODES)[number]

/** The limit of the rules for each mode, except those for the soak test and for requests in flight. */
export const LIMIT = 2

/** The limit of every `concurrency` rule. */
export const AT_ONCE = 4
/** How long units in flight stay held without being renewed. */
export const SLOT_TTL_MS = 2000

/** The limit and period of the soak rules. The period is short, so that records in Redis expire. */
export const SOAK_LIMIT = 20
export const SOAK_PERIOD_MS = 5000

/** The algorithms of the rules with leases, each with the callers that its rules count. */
export const LEASE_ALGORITHMS = {
  'fixed-window': 'consumer',
  gcra: 'address',
  'token-bucket': 'consumer',
  'sliding-window': 'address',
} as const
export type LeaseAlgorithm = keyof typeof LEASE_ALGORITHMS

/** The limit of each rule with a lease, and how long an isolate serves from a lease (`for`). */
export const LEASE_LIMIT = 1000
export const LEASE_MS = 1000

/** The store grants at most this many requests at once: a sixteenth of the limit. */
export const MAX_GRANTED = Math.ceil(LEASE_LIMIT / 16)

export const leaseRuleName = (mode: Mode, algorithm: string) => `leased-${mode}-${algorithm}`

/** The cost of a request that leaves little of the limit, so that its caller reaches the limit. */
export const COSTLY = 920

/** The limit, period and lease of the soak rules with leases. */
export const SOAK_LEASE_LIMIT = 1000
export const SOAK_LEASE_PERIOD_MS = 10_000
export const SOAK_LEASE_MS = 250

/** How many streams the soak test holds, each the only unit of its address, and how long a unit stays held without being renewed. */
export const SOAK_STREAMS = 3000
export const SOAK_STREAM_TTL_MS = 12_000

const LOCAL_SHARE = 0.5

/** How many units of a limit an isolate admits without the store. */
const LOCAL_LIMIT = LIMIT * LOCAL_SHARE

/** The deadline of the store, which is the default. */
export const DEADLINE_MS = 250
const RETRY_AFTER_MS = 250

export const STORE = {
  deadline: `${DEADLINE_MS}ms`,
  breaker: { retryAfter: `${RETRY_AFTER_MS}ms` },
  localShare: LOCAL_SHARE,
} as const

/**
 * How much later than the deadline a reply may come. Long, because timers are late on a machine that is busy with other suites.
 * docs/internals/reliability.md has measured values.
 */
export const LATE_MS = 10_000

/** The longest time from the last fault to the first decision of the store. Long for the same reason. */
export const RECOVERY_MS = 30_000

/** The same after the store has reported that its Upstash plan is used up. The Worker then tries again every 30 seconds. */
export const QUOTA_RECOVERY_MS = 60_000

const TEMPORARY_REDUCED_CAPACITY =
  'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity'

/**
 * How many requests of one caller may pass without the store in one outage.
 * @param marked how many have passed with the header `Sluice-Degraded`
 */
export function mostWithoutStore(mode: Mode, marked: number): number {
  if (mode === 'open') return marked
  return mode === 'closed' ? 0 : LOCAL_LIMIT
}

/**
 * Whether a request was decided without the store because the store was slow. On a busy machine, that can happen without a fault. Until
 * an outage is confirmed, a rule `open` decides like a rule `local`, and can refuse.
 */
export function isSlownessMark(mark: string): boolean {
  return ['store-timeout', 'breaker-open', 'overload'].includes(mark)
}

export interface Situation {
  mode: Mode
  /** This isolate has not verified the credential. */
  isUnknown: boolean
  /** The store has lost its keys. */
  isForgotten: boolean
}

/** Checks a reply. @returns what is wrong with it, or undefined if the fallback permits it */
export function mistakeIn(
  { status, mark, type, retryAfter }: Observed,
  { mode, isUnknown, isForgotten }: Situation,
): string | undefined {
  switch (status) {
    case 200:
      if (mark === undefined) return undefined
      if (mode === 'closed') return 'a closed rule let it pass, marked'
      return isUnknown ? 'a credential that was never verified passed, marked' : undefined
    case 401:
      return isUnknown || isForgotten ? undefined : 'a valid credential was refused'
    case 429:
      if (mark === undefined || mode === 'local') return undefined
      return mode === 'open' && isSlownessMark(mark) ? undefined : 'refused by a limit that was not asked'
    case 503:
      if (type !== TEMPORARY_REDUCED_CAPACITY) return `503 of type ${type}`
      if (mark === undefined || !retryAfter) return '503 that does not say why, or how long'
      return mode === 'closed' || isUnknown ? undefined : 'unexpected 503'
    default:
      return `unexpected ${status}`
  }
}
