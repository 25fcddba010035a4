/** A guard as a Worker, from one of the configs that every set-up is tested with. */
import { servedGuard } from '../../support/counted-guard.ts'
import type { SetUpConfigName } from '../../support/set-up-configs.ts'

let handle: ReturnType<typeof servedGuard> | undefined

export default {
  fetch(request, env, ctx) {
    handle ??= servedGuard(env.SET_UP_CONFIG)
    return handle(request, env, ctx)
  },
} satisfies ExportedHandler<{ SET_UP_CONFIG: SetUpConfigName }>
