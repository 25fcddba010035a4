import type { ApiRoutes } from './check/schema.ts'

/**
 * The parts of the API that are served without the setting `api.routes`: what a service needs to manage callers and their limits, to show
 * callers what they have left, and to see who has changed what. Live switches are among them, because their use must need no deployment.
 */
export const USUAL_API_ROUTES = [
  'limits',
  'usage',
  'keys',
  'consumers',
  'overrides',
  'tokens',
  'audit',
  'switches',
] as const

/** @param all that there are @param written `api.routes` of the config */
export const servedRoutes = (
  all: readonly ApiRoutes[],
  written: 'all' | readonly ApiRoutes[] = USUAL_API_ROUTES,
): readonly ApiRoutes[] => (written === 'all' ? all : written)
