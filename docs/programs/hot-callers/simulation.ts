/**
 * What docs/internals/simulations.md shows: traffic of hot callers in a simulated fleet (test/support/lease-fleet.ts), with and without leases. The
 * limiter is the real one, the store is the model of its script, and time is simulated and seeded: the same numbers every time.
 */
import type { Duration } from '../../../src/config/check/schema.ts'
import { type LeaseFleetPlan, type RuleReport, runLeaseFleet } from '../../../test/support/lease-fleet.ts'

export const LEASES = [undefined, '100ms', '250ms', '1s'] as const

export type LeaseFor = (typeof LEASES)[number]

export interface Shape {
  what: string
  limit: number
  period: Duration
  plan: Omit<LeaseFleetPlan, 'rules'>
}

/** The rows of the table. If a row names no limit, the rate of a caller never exceeds half of its limit. */
export const SHAPES: readonly Shape[] = [
  ...[10, 100, 1000].map((perSecond): Shape => {
    const what = `${perSecond.toLocaleString('en')} a second, one isolate`
    const seconds = Math.max(5, 600 / perSecond)
    return { what, limit: 120 * perSecond, period: '1m', plan: { isolates: 1, perSecond, seconds } }
  }),
  {
    what: '20 a second in each of 50 isolates',
    ...{ limit: 120_000, period: '1m', plan: { isolates: 50, perSecond: 20, seconds: 5 } },
  },
  {
    what: 'bursts: 500 in some seconds, 2 in the others',
    ...{ limit: 60_000, period: '1m', plan: { isolates: 1, perSecond: [2, 2, 2, 500], seconds: 40 } },
  },
  {
    what: '1,200 a second against a limit of 1,000 a second, one isolate',
    ...{ limit: 1000, period: '1s', plan: { isolates: 1, perSecond: 1200, seconds: 6 } },
  },
  {
    what: '1,200 a second against a limit of 1,000 a second, 50 isolates',
    ...{ limit: 1000, period: '1s', plan: { isolates: 50, perSecond: 24, seconds: 6 } },
  },
  {
    what: '300 or 2,000 in a second, by chance, against a limit of 1,000 a second, one isolate',
    ...{ limit: 1000, period: '1s', plan: { isolates: 1, perSecond: [300, 2000], seconds: 12 } },
  },
  {
    what: '1,000 cold callers, each once a second in one of 5 isolates',
    ...{ limit: 120, period: '1m', plan: { isolates: 5, perSecond: 200, callers: 1000, seconds: 5 } },
  },
]

export interface Figures {
  tripsPerRequest: number
  /** Units that the store has spent above the limit in one window. */
  overspent: number
  /** Units above the limit that the origin has seen in one window. */
  excess: number
  /** The most units that isolates held at once: the bound of the excess. */
  held: number
  /** Admitted units, as a share of those that the limit permits for these requests. */
  utilization: number
}

export async function runShape({ limit, period, plan }: Shape, lease: LeaseFor): Promise<Figures> {
  const rule = { name: 'hot', by: 'consumer', algorithm: 'fixed-window', limit, period } as const
  const report = await runLeaseFleet({
    ...plan,
    rules: [{ ...rule, ...(lease && { lease: { for: lease } }) }],
  })
  const [{ mostSpent, mostInWindow, mostHeld }] = report.rules as [RuleReport]
  return {
    tripsPerRequest: report.trips / report.requests,
    overspent: Math.max(0, mostSpent - limit),
    excess: Math.max(0, mostInWindow - limit),
    held: mostHeld,
    utilization: report.units / report.permitted,
  }
}

export interface Point extends Figures {
  /** Requests a second of the caller in all isolates together, or its limit. */
  perSecond: number
}

/** A caller that stays at half of its limit. */
export async function tripsOverRate(isolates: number, lease: LeaseFor): Promise<Point[]> {
  return await points([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000], lease, perSecond => {
    const seconds = Math.min(60, Math.max(3, 1000 / perSecond))
    const plan = { isolates, perSecond: perSecond / isolates, seconds }
    return { limit: 120 * perSecond, period: '1m', plan }
  })
}

/** A caller that sends 0.3 or 2 times its limit in each second, at random. The window is short, because there a lease has more effect. */
export async function accuracyOverLimit(isolates: number, lease: LeaseFor): Promise<Point[]> {
  return await points([10, 30, 100, 300, 1000], lease, limit => {
    const perSecond = [0.3, 2].map(share => (share * limit) / isolates)
    return { limit, period: '1s', plan: { isolates, perSecond, seconds: 16 } }
  })
}

async function points(
  rates: readonly number[],
  lease: LeaseFor,
  shapeOf: (perSecond: number) => Omit<Shape, 'what'>,
): Promise<Point[]> {
  const found: Point[] = []
  for (const perSecond of rates)
    found.push({ perSecond, ...(await runShape({ what: '', ...shapeOf(perSecond) }, lease)) })
  return found
}
