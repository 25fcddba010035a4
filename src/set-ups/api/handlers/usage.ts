/** What a caller has left, for its own credential. */
import { refuseServiceToken } from '../authenticate.ts'
import { createOwnUsage } from '../own-usage.ts'
import { readInput } from '../read-input.ts'
import type { Route } from '../route.ts'

export const usageRoutes: readonly Route[] = [
  {
    kind: 'own',
    method: 'GET',
    path: 'usage',
    create({ config, decisions, now }) {
      const showUsage = createOwnUsage(config, decisions, now)
      return async incoming => {
        await readInput({}, incoming.request, incoming.url)
        refuseServiceToken(incoming.request)
        return await showUsage(incoming)
      }
    },
  },
]
