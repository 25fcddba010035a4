/** A guard, a Hono app and limits by name in one Worker. */
import { waitUntil } from 'cloudflare:workers'
import { Hono } from 'hono'
import { defineConfig } from '../../../src/config/define.ts'
import { guard } from '../../../src/set-ups/guard/guard.ts'
import { sluice } from '../../../src/set-ups/hono/middleware.ts'
import { createLimiter } from '../../../src/set-ups/limits/create-limiter.ts'

interface Env {
  UPSTREAM: string
  UPSTASH_REDIS_REST_URL: string
  UPSTASH_REDIS_REST_TOKEN: string
}

const config = defineConfig({
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  credentials: { accept: ['anonymous'] },
  rules: [{ name: 'at-once', by: ['address'], algorithm: 'concurrency', limit: 2, ttl: '60s' }],
  limits: { tasks: [{ name: 'at-once', algorithm: 'concurrency', limit: 2, ttl: '60s' }] },
})

const hono = new Hono()
hono.use(sluice(config))
hono.get('/hono', c => c.text('hello'))

/** `fetch` decodes the reply of the origin for the user's code, whatever content encoding the origin has used. */
const guarded = guard(config)((_: Request, env: Env, _ctx: ExecutionContext) => fetch(env.UPSTREAM))

let limiter: ReturnType<typeof createLimiter> | undefined

export default {
  async fetch(request, env, ctx) {
    const { pathname } = new URL(request.url)
    if (pathname === '/hono') return await hono.fetch(request, env, ctx)
    if (pathname !== '/task') return await guarded(request, env, ctx)
    limiter ??= createLimiter(config, { env, waitUntil })
    await using units = await limiter.acquire('tasks')
    return Response.json(units.allowed)
  },
} satisfies ExportedHandler<Env>
