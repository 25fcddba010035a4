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
import type { Caller } from './caller.ts'
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
  function isExempt({ address, credential }: Caller, { settings }: Matched): boolean {
    const isAllowed = credential !== undefined && allow.consumers.has(credential.consumer)
    return !settings.isLimited || isAllowed || isInRanges(allow.addresses, address)
  }

  return {
    judge({ rank }, caller, matched) {
      if (isExempt(caller, matched)) return undefined
      const key = keyOf(caller)
      return shedder.judge(rank, key, rule => switchedMode(rule, key, board.current(), WORKER_UTILIZATION))
    },
  }
}

/** The consumer, else the credential where only the store knows whose it is, else the address. */
function keyOf({ credential, addressIdentity }: Caller): string {
  if (!credential) return addressIdentity
  return credential.consumer === UNKNOWN_CONSUMER ? credential.digest : credential.consumer
}
