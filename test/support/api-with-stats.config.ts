/** The shipped config with the parts of the API that administration needs: those of `api: {}`, and statistics. */

import shipped from '../../sluice.config.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'

const routes: NonNullable<ConfigInput['api']>['routes'] = [
  ...(['limits', 'usage', 'keys', 'consumers', 'overrides', 'tokens', 'audit', 'switches'] as const),
  'stats',
]

export default { ...shipped, api: { routes } } satisfies ConfigInput
