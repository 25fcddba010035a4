/**
 * The entrypoint that `npx sluicegate build` generates: for a config that was checked before, with scripts that were
 * compiled before. So the Worker carries neither the check nor the compiler.
 */
import { waitUntil } from 'cloudflare:workers'
import type { Algorithms } from '../../algorithms/descriptor.ts'
import { SYSTEM_CLOCK } from '../../clock.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import { type Compilers, compileConfig } from '../../config/compile.ts'
import { preparePauseBy } from '../../limiter/prepared-call.ts'
import type { Script } from '../../store/store.ts'
import { createSwitchBoard } from '../../switches/live.ts'
import { deployConfig } from '../deploy-config.ts'
import { createLimiterWithParts } from '../limits/limiter.ts'
import type { LimiterParts } from '../limits/parts.ts'
import { createEntrypoint, type EntrypointClass } from './service.ts'

/** The parts that a Worker carries for the limits by name of its config. */
export interface BuiltLimits {
  algorithms: Algorithms
  parts: LimiterParts & { pauseScript: () => Script }
  compilers: Compilers
}

/** A built Worker finds its missing parts in the prototype. */
const withPauses = (parts: BuiltLimits['parts']): LimiterParts =>
  Object.assign(Object.create(parts), {
    preparePause: (pause: Parameters<LimiterParts['preparePause']>[0]) =>
      preparePauseBy(parts.pauseScript(), pause),
  })

/**
 * Creates the class of the entrypoint.
 *
 * @param config already checked
 * @throws Error (from its methods) if it was built for other limits than those of the config
 */
export function builtEntrypoint(
  config: ConfigInput,
  { algorithms, parts, compilers }: BuiltLimits,
): EntrypointClass {
  return createEntrypoint(config, env => {
    // The rest of the config is that of the gateway, which may use other algorithms.
    const { rules: _, shedding: _shedding, routes: _routes, ...limitsConfig } = config
    const compiled = compileConfig(limitsConfig, algorithms, compilers)
    // Nothing is proxied, so an origin is not needed.
    const { config: deployed, store } = deployConfig({ ...compiled, origin: 'route' }, env)
    const board = createSwitchBoard(SYSTEM_CLOCK)
    return {
      limiter: createLimiterWithParts(deployed, store, withPauses(parts), {
        ...{ board, waitUntil, awaitsCounters: true, variables: { ...env } },
      }),
      limits: deployed.limits,
    }
  })
}
