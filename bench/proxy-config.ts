/** What a Worker of the benchmark proxies by. Made once for an isolate, as Sluice makes its own. */
import { type Config, compileConfig } from '../src/config/compile.ts'

let config: Config | undefined

export function proxyConfig(origin: string): Config {
  config ??= compileConfig({
    origin,
    rules: [{ name: 'none', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' }],
  })
  return config
}
