/** What a caller has left, for its own credential. */
import { createOwnUsage } from '../own-usage.ts'
import type { OwnRoute } from '../route.ts'

export const usageRoutes: readonly OwnRoute[] = [
  { kind: 'own', method: 'GET', path: 'usage', create: createOwnUsage },
]
