/** The gateway as a Worker, from one of the configs that every set-up is tested with. */
import type { Environment } from '../../../src/config/environment.ts'
import { type GatewayWorker, gateway } from '../../../src/set-ups/gateway/whole-worker.ts'
import { SET_UP_CONFIGS, type SetUpConfigName } from '../../support/set-up-configs.ts'

let worker: GatewayWorker | undefined

export default {
  fetch(request, env, ctx) {
    worker ??= gateway(SET_UP_CONFIGS[env.SET_UP_CONFIG])
    return worker.fetch(request, env, ctx)
  },
} satisfies ExportedHandler<Environment & { SET_UP_CONFIG: SetUpConfigName }>
