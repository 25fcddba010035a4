/**
 * How late a change takes effect, for docs/internals/simulations.md: the longest time from the change to the last request that is still
 * decided as before, in a simulated fleet (test/support/lease-fleet.ts) and for changes at several moments.
 */
import { type Change, type LeaseFleetPlan, runLeaseFleet } from '../../../test/support/lease-fleet.ts'
import type { LeaseFor } from './simulation.ts'

/** The duration of a trip in the simulation (ms). */
export const TRIP_MS = 6

/** The lease that the page shows, and `rememberFor` (ms). */
const LEASE_MS = 250
const REMEMBER_MS = 1000

interface ChangeShown {
  what: string
  /** What the page shows as the bound. */
  atMost: (lease: LeaseFor) => string
  /** The longest time that requests may be decided as before, except those that arrive while another one asks the store (ms). */
  mostMs: (lease: LeaseFor) => number
}

const untilLeaseEnds = {
  mostMs: (lease: LeaseFor) => (lease ? LEASE_MS + TRIP_MS : 0),
  atMost: (lease: LeaseFor) => (lease ? `\`for\` and a trip: ${LEASE_MS + TRIP_MS} ms` : '0 ms'),
}

const untilMemoryEnds = {
  mostMs: () => REMEMBER_MS + TRIP_MS,
  atMost: () => '`rememberFor`, and the trip of the next request',
}

export const CHANGES: Record<Change, ChangeShown> = {
  block: { what: 'a consumer is blocked: last request that was admitted', ...untilLeaseEnds },
  revoke: { what: 'a key is revoked: last request that was admitted', ...untilLeaseEnds },
  raise: { what: 'a limit is raised (override): last request that was refused', ...untilMemoryEnds },
  reset: { what: 'a limit is reset: last request that was refused', ...untilMemoryEnds },
}

export const TRAFFIC: readonly { what: string; isolates: number; perSecond: number; moments: number }[] = [
  { what: '10 a second', isolates: 1, perSecond: 10, moments: 8 },
  { what: '100 a second', isolates: 1, perSecond: 100, moments: 8 },
  { what: '1,000 a second', isolates: 1, perSecond: 1000, moments: 4 },
  { what: '20 a second in each of 50 isolates', isolates: 50, perSecond: 20, moments: 4 },
]

const LIMIT = 100_000

/** When the first of the changes is made, and how far apart their moments are at most (ms). */
const FIRST_MS = 1000
const SPREAD_MS = 1000

export interface Staleness {
  /** The longest time (ms). */
  longest: number
  /** The same without requests that arrive while another one asks the store. */
  longestAlone: number
}

export async function stalenessOf(
  change: Change,
  lease: LeaseFor,
  { isolates, perSecond, moments }: (typeof TRAFFIC)[number],
): Promise<Staleness> {
  const isAboutRefusals = change === 'raise' || change === 'reset'
  // The rest of the limit lasts for the first third of a second.
  const left = Math.ceil((isolates * perSecond) / 3)
  const found = { longest: 0, longestAlone: 0 }
  for (let i = 0; i < moments; i++) {
    const afterMs = FIRST_MS + (SPREAD_MS * i) / moments
    const plan: LeaseFleetPlan = {
      ...{ isolates, perSecond, tripMs: TRIP_MS, seed: i + 1 },
      seconds: (afterMs + (isAboutRefusals ? REMEMBER_MS : LEASE_MS) + 500) / 1000,
      ...(isAboutRefusals && { spentBefore: LIMIT - left }),
      change: { what: change, afterMs },
      rules: [
        {
          ...{ name: 'hot', by: 'consumer', algorithm: 'fixed-window', limit: LIMIT, period: '300d' },
          ...(lease && { lease: { for: lease } }),
        },
      ],
    }
    const { admitted, refused, refusedAlone } = (await runLeaseFleet(plan)).lastAfterChange
    found.longest = Math.max(found.longest, isAboutRefusals ? refused : admitted)
    found.longestAlone = Math.max(found.longestAlone, isAboutRefusals ? refusedAlone : admitted)
  }
  return found
}
