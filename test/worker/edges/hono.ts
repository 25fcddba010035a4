/** Middleware of a Hono app as a Worker, from one of the configs that every edge is tested with. */
import { Hono } from 'hono'
import { sluice } from '../../../src/edges/hono/middleware.ts'
import { RECEIVED_PATH } from '../../support/counted-guard.ts'
import { EDGE_CONFIGS, type EdgeConfigName } from '../../support/edge-configs.ts'

let count = 0
let app: Hono | undefined

function createApp(config: EdgeConfigName): Hono {
  const created = new Hono()
  created.get(RECEIVED_PATH, c => c.json(count))
  created.use(sluice(EDGE_CONFIGS[config]))
  created.all('*', c => {
    count += 1
    return c.json({ hello: c.get('sluice')?.consumer ?? null })
  })
  return created
}

export default {
  fetch(request, env, ctx) {
    app ??= createApp(env.EDGE_CONFIG)
    return app.fetch(request, env, ctx)
  },
} satisfies ExportedHandler<{ EDGE_CONFIG: EdgeConfigName }>
