/** Routes that only some configs need. The others do not serve them, and a Worker that is built for them does not carry them. */
import { servedRoutes } from '../../config/api-routes.ts'
import type { ApiRoutes } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'
import { anyCountsInFlight, anyOverridable, anyReserves } from '../../limiter/needs.ts'

type Settings = Pick<Config, 'credentials' | 'limits'>

/** The parts of the API that a config serves. @param all that there are */
export const servedParts = (
  all: readonly ApiRoutes[],
  { api, limits }: Pick<Config, 'api' | 'limits'>,
): readonly ApiRoutes[] =>
  api ? servedRoutes(all, api.routes).filter(part => part !== 'limits' || limits.size > 0) : []

/** Of all limits by name. */
const rulesOf = ({ limits }: Settings) => [...limits.values()].flat()

const NEEDS = {
  import: { part: 'keys', isNeeded: ({ credentials }) => credentials.opaqueKeys !== undefined },
  reservations: { part: 'limits', isNeeded: config => anyReserves(rulesOf(config)) },
  heldUnits: { part: 'limits', isNeeded: config => anyCountsInFlight(rulesOf(config)) },
  limitOverrides: { part: 'overrides', isNeeded: config => anyOverridable(rulesOf(config)) },
} as const satisfies Record<string, { part: ApiRoutes; isNeeded(config: Settings): boolean }>

/** `import`: its routes are `importRoutes`, and `importOperations` is what the OpenAPI document says about them. */
export type FurtherRoutes = keyof typeof NEEDS

/** What a config serves in addition to the usual routes of a part. */
export const furtherRoutes = (part: ApiRoutes, config: Settings): FurtherRoutes[] =>
  (Object.keys(NEEDS) as FurtherRoutes[]).filter(
    name => NEEDS[name].part === part && NEEDS[name].isNeeded(config),
  )
