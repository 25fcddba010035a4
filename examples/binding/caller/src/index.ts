/** A Worker that asks for limits through service bindings. It knows nothing of Redis. */
import type { Limits } from '../../limits/src/index.ts'

/** As `npm run types` generates it. */
interface Env {
  /** Every limit, by name. */
  LIMITS: Service<typeof Limits>
  /** One limit, as a replacement for Cloudflare's rate limiting binding. Its type fits where code expects `RateLimit`. */
  SIGNUPS: Service<typeof Limits>
}

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url)
    const address = request.headers.get('cf-connecting-ip') ?? 'unknown'
    if (pathname === '/signup') {
      const { success } = await env.SIGNUPS.limit({ key: address })
      return success
        ? new Response('Welcome.')
        : new Response('Too many sign-ups from here.', { status: 429 })
    }
    // The unit is free again when this block is left, or this request ends.
    using units = await env.LIMITS.acquire('exports', { account: '42' }, { timeoutMs: 5000 })
    if (!(await units.allowed)) return new Response('Two exports are running.', { status: 429 })
    return new Response('Exported.')
  },
} satisfies ExportedHandler<Env>
