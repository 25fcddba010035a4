/**
 * What the models do differently for rules that are settled later (`--@ if settled` in the Lua files). Their requests can have cost more
 * than the limit, and units above the limit are a debt. Only the model of the scripts needs this: an isolate does not count settlements.
 */
import { ceilDiv, type Model, modelOf, type Sections } from './algorithm.ts'
import type { AlgorithmName } from './all.ts'
import type { Kept as KeptOfFixedWindow } from './fixed-window.ts'
import type { Kept as KeptOfRate } from './gcra.ts'
import { type Kept as KeptOfSlidingWindow, unitsLeft } from './sliding-window.ts'
import { MAX_WINDOW_COUNT } from './window.ts'

/** At most this many times the limit counts as spent. So all numbers stay exact. */
export const MAX_DEBT = 16

/**
 * The longest time (µs) in which a backlog with a debt drains. A later instant could be no state: scripts drop records that are idle only in
 * more than four years (HORIZON of script/constants.ts), which allows for a clock that was set back by a year.
 */
export const LONGEST_DEBT = 3 * 366 * 86400e6

/** The model of a rule that is settled later. @param model that of its algorithm */
export function settledModelOf({ sections }: Model, algorithm: AlgorithmName): Model {
  return modelOf({ ...sections, ...SETTLED[algorithm]?.(sections) })
}

type Settled<Kept> = (plain: Sections<Kept>) => Partial<Sections<Kept>>

const fixedWindow: Settled<KeptOfFixedWindow & { opensFor?: number }> = ({ read, standing }) => ({
  read: input => ({
    ...read(input),
    ...(input.quota.startsWithRequest && { opensFor: input.quota.period }),
  }),
  spend(kept, cost) {
    // A settlement before it in the same call can have given back all units. Then this one opens a window.
    if (kept.opensFor !== undefined && kept.count === 0) {
      kept.windowStart = kept.now - (kept.now % 1000)
      kept.windowEnd = kept.windowStart + kept.opensFor
    }
    // A cost that is known afterwards is not checked. A count from before the limit was lowered stays, because the limit may rise again.
    const most = Math.max(kept.count, MAX_DEBT * kept.limit)
    kept.count = Math.min(kept.count + cost, most)
    return undefined
  },
  standing: kept => ({ ...standing(kept), debt: Math.max(0, kept.count - kept.limit) }),
})

const slidingWindow: Settled<KeptOfSlidingWindow> = ({ standing }) => ({
  spend(kept, cost) {
    // Both counts share one number of the record. A count from before the limit was lowered stays.
    const most = Math.max(kept.current, Math.min(MAX_DEBT * kept.limit, MAX_WINDOW_COUNT))
    kept.current = Math.min(kept.current + cost, most)
    return undefined
  },
  standing: kept => ({ ...standing(kept), debt: Math.max(0, -unitsLeft(kept)) }),
})

const gcra: Settled<KeptOfRate> = ({ standing }) => ({
  read({ quota: { rate, period, burst }, state: [idleAt, n], now }) {
    let backlog = (idleAt - now) * rate - n
    // A debt is above the burst, and drains too. Twice the highest one cannot be a state of this rule: the record was written by a clock
    // that was far ahead.
    if (backlog < 0 || backlog > 2 * MAX_DEBT * (burst * period)) backlog = 0
    return { rate, period, burst, now, backlog: Math.min(backlog, mostOf({ rate, period, burst })) }
  },
  spend(kept, cost) {
    kept.backlog = Math.min(kept.backlog + cost * kept.period, mostOf(kept))
    return undefined
  },
  standing(kept) {
    const { period, burst, backlog } = kept
    return { ...standing(kept), debt: Math.max(0, ceilDiv(backlog - burst * period, period)) }
  },
})

/** The highest backlog, in ticks. */
const mostOf = ({ rate, period, burst }: Pick<KeptOfRate, 'rate' | 'period' | 'burst'>) =>
  Math.min(MAX_DEBT * (burst * period), LONGEST_DEBT * rate)

/** Of the algorithms whose rules can be settled. Each gets its own sections. */
const SETTLED = {
  'fixed-window': fixedWindow,
  'sliding-window': slidingWindow,
  gcra,
  'token-bucket': gcra,
} as unknown as Partial<Record<AlgorithmName, Settled<unknown>>>
