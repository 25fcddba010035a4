/**
 * Refuses requests of unimportant classes while the workers of the origin are too busy. Here is decided which requests that can concern, and
 * who the caller is. Fleet usage is not decided here: it is made of rules (src/config/compile-shedding.ts).
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
  judge(trafficClass: TrafficClass, caller: Caller, matched: Matched): ShedVerdict | undefined
}

export function createShedder(
  { allow }: Pick<Config, 'allow'>,
  utilization: WorkerUtilizationShedder,
  board: SwitchBoard,
): Shedder {
  return {
    judge({ rank }, caller, matched) {
      if (isExempt(allow, caller, matched)) return undefined
      const key = callerKey(caller)
      return utilization.judge(rank, key, rule =>
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
  // Only the store knows whose key this is. It is asked once: made-up keys are refused, and of others the isolate knows it then.
  return credential.consumer === UNKNOWN_CONSUMER || allow.consumers.has(credential.consumer)
}
