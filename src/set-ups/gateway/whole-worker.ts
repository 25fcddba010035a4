/**
 * The gateway as a Worker with every part, for deployments without a build: the config is checked when the Worker
 * starts, and its rules are compiled to Lua when they are first needed. The output of `npx sluicegate build` is half
 * as large and starts faster.
 */
import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import { checkConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import * as SHEDDING_COMPILER from '../../config/compile-shedding.ts'
import { compileUnits } from '../../config/compile-units.ts'
import { ConfigError } from '../../config/config-error.ts'
import type { ApiParts } from '../api/create-api.ts'
import { ALL_PARTS } from '../http/all-parts.ts'
import { METRICS_PARTS } from './metrics.ts'
import { createWorker, type GatewayWorker } from './worker.ts'

export type { GatewayWorker }

/**
 * Creates the Worker of a config, for its default export:
 *
 *     export default gateway(config)
 *
 * @param api of `sluicegate/api`, for a config with `api`
 * @throws ConfigError naming every mistake of the config
 */
export function gateway(config: ConfigInput, api?: ApiParts): GatewayWorker {
  const parts = {
    algorithms: ALL_ALGORITHMS,
    parts: { ...ALL_PARTS, ...METRICS_PARTS, ...api },
    compilers: { ...SHEDDING_COMPILER, compileUnits },
  }
  const checked = checkConfig(config)
  if (checked.api && !api) throw new ConfigError([{ path: 'api', message: NEEDS_API }])
  return createWorker(checked, parts)
}

const NEEDS_API =
  "needs its part: import { api } from 'sluicegate/api', and write gateway(config, api). Or build the Worker with npx sluicegate build."
