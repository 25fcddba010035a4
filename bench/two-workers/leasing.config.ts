/** The same with leases. */
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { CONFIG } from './rules.ts'

export default { ...CONFIG, lease: { for: '250ms' } } satisfies ConfigInput
