/** The shipped config with all parts of the API, units and limits by name, to test the built Worker. */
import shipped from '../../sluice.config.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import binding from '../worker/rpc/config.ts'

const { units, limits } = binding

export default { ...shipped, units, limits, api: { routes: 'all' } } satisfies ConfigInput
