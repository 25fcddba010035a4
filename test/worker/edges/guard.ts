/** A guard as a Worker, from one of the configs that every edge is tested with. */
import { servedGuard } from '../../support/counted-guard.ts'
import type { EdgeConfigName } from '../../support/edge-configs.ts'

let handle: ReturnType<typeof servedGuard> | undefined

export default {
  fetch(request, env, ctx) {
    handle ??= servedGuard(env.EDGE_CONFIG)
    return handle(request, env, ctx)
  },
} satisfies ExportedHandler<{ EDGE_CONFIG: EdgeConfigName }>
