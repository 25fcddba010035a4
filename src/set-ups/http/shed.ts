/**
 * Refuses requests of unimportant classes while the workers of the origin are too busy. This file decides which
 * requests can be shed, and names their callers. Fleet usage is not decided here: it is compiled to rules
 * (src/config/compile-shedding.ts).
 */
import { isInRanges } from '../../config/address-ranges.ts'
import type { Config } from '../../config/compile.ts'
import { type TrafficClass, WORKER_UTILIZATION } from '../../config/compile-shedding.ts'
import { modeUnderSwitches } from '../../limiter/apply-switches.ts'
import type { ShedVerdict, WorkerUtilizationShedder } from '../../shedding/worker-utilization.ts'
import { UNKNOWN_CONSUMER } from '../../store/keys.ts'
import type { SwitchBoard } from '../../switches/live.ts'
import { type Caller, callerKey } from './caller.ts'
import type { Matched } from './match.ts'

export interface Shedder {
  /** @returns undefined for a request that is never shed */
  evaluate(trafficClass: TrafficClass, caller: Caller, matched: Matched): ShedVerdict | undefined
}

export function createShedder(
  { allow }: Pick<Config, 'allow'>,
  utilization: WorkerUtilizationShedder,
  board: SwitchBoard,
): Shedder {
  return {
    evaluate({ rank }, caller, matched) {
      if (isExempt(allow, caller, matched)) return undefined
      const key = callerKey(caller)
      return utilization.evaluate(rank, key, rule =>
        modeUnderSwitches(rule, key, board.current(), WORKER_UTILIZATION),
      )
    },
  }
}

/** Whether a request is never shed. */
export function isExempt(
  allow: Config['allow'],
  { address, credential }: Caller,
  { settings }: Pick<Matched, 'settings'>,
): boolean {
  if (!settings.isLimited || isInRanges(allow.addresses, address)) return true
  if (!credential) return false
  // Only the store knows the consumer of this key, so the first request makes a trip. The store refuses made-up
  // keys, and the isolate remembers the others.
  return credential.consumer === UNKNOWN_CONSUMER || allow.consumers.has(credential.consumer)
}
