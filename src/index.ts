/** The Worker's entry: reads the environment, builds the app once per isolate, exports fetch. Nothing else. */
import type { Hono } from 'hono/tiny'
import userConfig from '../sluice.config.ts'
import { algorithms, parts, shedding } from './built/worker.generated.ts'
import { compileConfig } from './config/compile.ts'
import { type Environment, withEnvironment } from './config/environment.ts'
import { createApp } from './edges/gateway/app.ts'
import { problem } from './edges/gateway/problem.ts'
import { upstashStore } from './store/upstash.ts'

// It was checked before this was built (wrangler.toml), so the Worker need not carry what checks it. Limits by name are not decided
// here, and the Worker does not carry the algorithms that only they use.
const { limits: _, ...gatewayConfig } = userConfig
const config = compileConfig(gatewayConfig, algorithms, shedding)

let app: Hono | undefined

export default {
  fetch(request, env, ctx) {
    try {
      app ??= build(env)
    } catch (error) {
      console.error((error as Error).message)
      return misconfigured()
    }
    return app.fetch(request, env, ctx)
  },
} satisfies ExportedHandler<Environment>

function build(env: Environment): Hono {
  const { url, token, ...settings } = withEnvironment(config, env)
  const store = upstashStore({
    url,
    token,
    deadlineMs: config.storeDeadlineMs,
    keyLocking: config.keyLocking,
    cluster: config.cluster,
    environment: settings.environment,
  })
  const { SLUICE_ANALYTICS: analytics, ...variables } = env
  return createApp(settings, store, parts, { variables, ...(analytics && { reporting: { analytics } }) })
}

function misconfigured(): Response {
  return problem({
    status: 503,
    title: 'Service Unavailable',
    detail: 'The gateway is not configured: its log says what is missing.',
  })
}
