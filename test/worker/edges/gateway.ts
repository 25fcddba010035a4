/** The gateway as a Worker, from one of the configs that every edge is tested with. */
import type { Environment } from '../../../src/config/environment.ts'
import { type GatewayWorker, gateway } from '../../../src/edges/gateway/whole-worker.ts'
import { EDGE_CONFIGS, type EdgeConfigName } from '../../support/edge-configs.ts'

let worker: GatewayWorker | undefined

export default {
  fetch(request, env, ctx) {
    worker ??= gateway(EDGE_CONFIGS[env.EDGE_CONFIG])
    return worker.fetch(request, env, ctx)
  },
} satisfies ExportedHandler<Environment & { EDGE_CONFIG: EdgeConfigName }>
