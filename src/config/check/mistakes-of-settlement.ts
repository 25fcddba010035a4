/** Finds mistakes in the numbers of rules that are settled later. */
import type { Flaw } from '../../algorithms/descriptor.ts'
import { MAX_WINDOW_COUNT } from '../../algorithms/window.ts'
import { canSettle, type GatewayRule, type LimitRule, REQUESTS } from '../compile-rule.ts'
import type { Mistake } from '../config-error.ts'
import { show } from './mistake.ts'

/** The highest limit of a sliding window that is settled: its counts go as far above it (MAX_WINDOW_COUNT). */
const MAX_SETTLED_WINDOW = (MAX_WINDOW_COUNT + 1) / 2

/** Units times ticks per unit of a rate that is settled: a debt may be many times the burst, and sums stay exact up to 2^52. */
const MAX_SETTLED_TICKS = 2 ** 52 / 16

/** Redis does not compile the script of more than about 23 rules of one identity that reserve. */
const MAX_RESERVING = 20

/** Finds rules that reserve units, beyond those that one identity can have. @param rules all rules of the gateway, or of a limit by name */
export function mistakesOfReserving(rules: readonly (GatewayRule | LimitRule)[], path: string): Mistake[] {
  const found = rules
    .map((rule, i) => ({ rule, path: `${path}[${i}]` }))
    .filter(({ rule }) => rule.settlement)
  return [...Map.groupBy(found, ({ rule }) => rule.by.join()).values()].flatMap(same =>
    same.slice(MAX_RESERVING).map(({ rule, path }) => ({
      path,
      message: `'${rule.name}' is one more rule by ${show(rule.by)} that reserves units, and ${MAX_RESERVING} are the maximum. Remove it, or count by another identity.`,
    })),
  )
}

/** Finds numbers that leave no room for a debt, and an estimate that is never admitted. */
export function mistakesOfSettlement({
  algorithm,
  unit,
  cost,
  limit,
  counting,
  quota,
  settlement,
}: GatewayRule | LimitRule): Flaw[] {
  const flaws: string[] = []
  if (settlement && algorithm === 'sliding-window' && limit > MAX_SETTLED_WINDOW) {
    flaws.push(
      `${limit} leaves no room for costs above their estimates: with sliding-window, the maximum is ${MAX_SETTLED_WINDOW}. Lower it, or use fixed-window or gcra.`,
    )
  }
  if (settlement && counting.state === 'time' && quota.burst * quota.period >= MAX_SETTLED_TICKS) {
    flaws.push(
      `${limit} with a burst of ${quota.burst} leaves no room for costs above their estimates: it needs more than 2^48 steps. Lower the burst, or choose a limit that is a divisor of the period in microseconds.`,
    )
  }
  if (unit !== REQUESTS && settlement?.aboveLimit !== 'clamp' && cost > quota.burst && canSettle(counting)) {
    const clamp = settlement ? ", or set aboveLimit: 'clamp' there" : ''
    flaws.push(
      `${limit} is below the estimate of a request (${cost} ${unit}), so no request would ever be admitted. Raise it, or lower units.${unit}.estimate${clamp}.`,
    )
  }
  return flaws.map(message => ['limit', message])
}
