/**
 * Load shedding at the gateway: which requests the shedder by worker utilization is for, and who the caller is. The shedder by fleet usage is made of rules, which the store decides (src/config/compile-shedding.ts).
 */
import { isInRanges } from '../../config/address-ranges.ts'
import type { Config } from '../../config/compile.ts'
import { type TrafficClass, WORKER_UTILIZATION } from '../../config/compile-shedding.ts'
import { switchedMode } from '../../limiter/apply-switches.ts'
import type { ShedVerdict, WorkerUtilizationShedder } from '../../shedding/worker-utilization.ts'
import { UNKNOWN_CONSUMER } from '../../store/keys.ts'
import type { SwitchBoard } from '../../switches/live.ts'
import { type Caller, callerKey } from './caller.ts'
import type { Matched } from './match.ts'

export interface Shedding {
  /** @returns undefined for a request that is never shed */
  judge(trafficClass: TrafficClass, caller: Caller, matched: Matched): ShedVerdict | undefined
}

export function createShedding(
  { allow }: Pick<Config, 'allow'>,
  shedder: WorkerUtilizationShedder,
  board: SwitchBoard,
): Shedding {
  return {
    judge({ rank }, caller, matched) {
      if (isExempt(allow, caller, matched)) return undefined
      const key = callerKey(caller)
      return shedder.judge(rank, key, rule => switchedMode(rule, key, board.current(), WORKER_UTILIZATION))
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
