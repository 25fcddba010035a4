/** The config that Workers of the benchmark proxy with. Compiled once for each isolate, as Sluice does. */

import { ALL_ALGORITHMS } from '../src/algorithms/all.ts'
import { type Config, compileConfig } from '../src/config/compile.ts'
import * as SHEDDING_COMPILER from '../src/config/compile-shedding.ts'
import { compileUnits } from '../src/config/compile-units.ts'

let config: Config | undefined

export function proxyConfig(origin: string): Config {
  const rules = [{ name: 'none', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' }] as const
  config ??= compileConfig({ origin, rules: [...rules] }, ALL_ALGORITHMS, {
    ...SHEDDING_COMPILER,
    compileUnits,
  })
  return config
}
