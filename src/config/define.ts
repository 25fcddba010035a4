/** What a config is written with. */
import type { ConfigInput } from './check/schema.ts'

/**
 * Types the config of sluice.config.ts, and nothing else: it is checked by `npx sluice check`, by `npm start`, and when
 * the Worker is built for a deployment.
 */
export function defineConfig(input: ConfigInput): ConfigInput {
  return input
}
