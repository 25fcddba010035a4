/** The shipped config with the API and four limits by name, to test its size (bench/size.ts). */
import shipped from '../../sluice.config.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import binding from '../worker/rpc/config.ts'

/** The limits that count requests. */
const limits = Object.fromEntries(Object.entries(binding.limits ?? {}).filter(([name]) => name !== 'llm'))

export default { ...shipped, limits, api: {} } satisfies ConfigInput
