/** The API as a part of a gateway without a build: `export default gateway(config, api)`. */
import { mistakesOfSettlement } from '../../config/check/mistakes-of-settlement.ts'
import { sumFields } from '../../metrics/sums.ts'
import { PAUSE } from '../../script/pause.ts'
import { RESET } from '../../script/reset.ts'
import { compileScripts } from '../../script/scripts.ts'
import { ALL_NUMBERS } from '../limits/all-numbers.ts'
import { createHolder } from '../limits/held.ts'
import { createGiveNumbers } from '../limits/numbers.ts'
import { createReserving } from '../limits/reserve.ts'
import { withApiCors } from './cors.ts'
import { type ApiParts, createApi } from './create-api.ts'
import { createKeySigning } from './key-signing.ts'
import { createApiLimits } from './limits.ts'
import { API_ON_CLUSTER } from './on-cluster.ts'
import { createOverrides } from './overrides.ts'
import { ROUTES, routesServedBy } from './routes.ts'

export type { ApiParts }

export const api: ApiParts = {
  // A build picks the routes that a config serves. Without a build, they are picked here.
  createApi: (config, store, parts, options) =>
    createApi(config, store, { ...parts, apiRoutes: routesServedBy(config) }, options),
  createApiLimits,
  createHolder,
  createReserving,
  createGiveNumbers,
  createKeySigning,
  createOverrides,
  withApiCors,
  opsOnCluster: API_ON_CLUSTER,
  apiRoutes: ROUTES,
  resetScript: () => RESET,
  pauseScript: () => PAUSE,
  scriptsOfLimits: compileScripts,
  mistakesOfSettlement,
  sumStats: sumFields,
  ruleNumbers: ALL_NUMBERS,
}
