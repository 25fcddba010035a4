/** Parts that a Worker carries only if its limits by name use them. src/built/binding.generated.ts selects them. */
import type { EvaluateOnCluster } from '../../limiter/evaluate.ts'
import type { createHoldingsKeeper } from '../../limiter/keep-holdings.ts'
import type { createLeases } from '../../limiter/leases.ts'
import type { createLocalLimiter } from '../../limiter/local.ts'
import type { prepareReset } from '../../limiter/prepared-call.ts'
import type { createRefusalMemory } from '../../limiter/refusals.ts'
import type { ScriptsOf } from '../../script/policy-shape.ts'
import type { Script } from '../../store/store.ts'

export interface LimiterParts {
  scriptsOf: ScriptsOf
  /** With `store.cluster`. */
  evaluateOnCluster: EvaluateOnCluster
  /** Unless all rules are `closed` while the store fails. */
  createLocalLimiter: typeof createLocalLimiter
  /** If refusals are remembered, as by default (not with `refusals: { rememberFor: 0 }`). */
  createRefusalMemory: typeof createRefusalMemory
  /** With `lease`. */
  createLeases: typeof createLeases
  /** With `concurrency` rules. */
  createHoldingsKeeper: typeof createHoldingsKeeper
  syncScript: () => Script
  /** For `reset`, which the service binding does not offer. */
  prepareReset: typeof prepareReset
}
