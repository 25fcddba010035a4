/**
 * The gateway as a Worker with every part, for those who build nothing: the config is checked when the Worker starts, and its rules are
 * compiled to Lua when they are first needed. What `npx sluicegate build` makes of a config is half as large, and starts faster.
 */
import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import { checkConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import * as SHEDDING_COMPILER from '../../config/compile-shedding.ts'
import { ALL_PARTS } from '../http/all-parts.ts'
import { createWorker, type GatewayWorker } from './worker.ts'

export type { GatewayWorker }

/**
 *     export default gateway(config)
 *
 * @throws ConfigError naming every mistake of the config
 */
export function gateway(config: ConfigInput): GatewayWorker {
  const parts = { algorithms: ALL_ALGORITHMS, parts: ALL_PARTS, shedding: SHEDDING_COMPILER }
  return createWorker(checkConfig(config), parts)
}
