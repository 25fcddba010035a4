/** The shipped config with all parts of the API, to test its size (bench/size.ts). */
import shipped from '../../sluice.config.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'

export default { ...shipped, api: { routes: 'all' } } satisfies ConfigInput
