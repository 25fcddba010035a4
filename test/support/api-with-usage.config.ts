/** The shipped config with the usual parts of the API, `usage` and `audit`, to test its size (bench/size.ts). */
import shipped from '../../sluice.config.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'

export default {
  ...shipped,
  api: { routes: ['limits', 'keys', 'consumers', 'overrides', 'tokens', 'usage', 'audit'] },
} satisfies ConfigInput
