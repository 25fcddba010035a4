/** What a Worker of the benchmark proxies by. Made once for an isolate, as Sluice makes its own. */

import { ALL_ALGORITHMS } from '../src/algorithms/all.ts'
import { type Config, compileConfig } from '../src/config/compile.ts'
import * as SHEDDING_COMPILER from '../src/config/compile-shedding.ts'

let config: Config | undefined

export function proxyConfig(origin: string): Config {
  const rules = [{ name: 'none', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' }] as const
  config ??= compileConfig({ origin, rules: [...rules] }, ALL_ALGORITHMS, SHEDDING_COMPILER)
  return config
}
