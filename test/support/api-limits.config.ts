/** The shipped config with the API and limits by name of every kind, to test its size (bench/size.ts). */
import shipped from '../../sluice.config.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import binding from '../worker/rpc/config.ts'

export default { ...shipped, units: binding.units, limits: binding.limits, api: {} } satisfies ConfigInput
