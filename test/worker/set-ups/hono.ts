/** Middleware of a Hono app as a Worker, from one of the configs that every set-up is tested with. */
import { Hono } from 'hono'
import { sluice } from '../../../src/set-ups/hono/middleware.ts'
import { RECEIVED_PATH } from '../../support/counted-guard.ts'
import { SET_UP_CONFIGS, type SetUpConfigName } from '../../support/set-up-configs.ts'

let count = 0
let app: Hono | undefined

function createApp(config: SetUpConfigName): Hono {
  const created = new Hono()
  created.get(RECEIVED_PATH, c => c.json(count))
  created.use(sluice(SET_UP_CONFIGS[config]))
  created.all('*', c => {
    count += 1
    return c.json({ hello: c.get('sluice')?.consumer ?? null })
  })
  return created
}

export default {
  fetch(request, env, ctx) {
    app ??= createApp(env.SET_UP_CONFIG)
    return app.fetch(request, env, ctx)
  },
} satisfies ExportedHandler<{ SET_UP_CONFIG: SetUpConfigName }>
