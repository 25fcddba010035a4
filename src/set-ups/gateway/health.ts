/** GET /_sluice/health reports whether the Worker is live, and whether the store answers. */
import type { Clock } from '../../clock.ts'
import { GatewayError } from '../../errors.ts'
import type { Store } from '../../store/store.ts'

export interface Health {
  live: true
  ready: boolean
  store: { ok: boolean; latencyMs: number; error?: string }
}

/** How long a result is reused, so that health checks cannot load the store. */
const FRESH_MS = 1000

/** Creates the handler of /_sluice/health. It remembers its last result: plain data, so it may outlive a request. */
export function createHealthCheck(store: Store, { now }: Clock): () => Promise<Response> {
  let last: { at: number; health: Health } | undefined
  return async () => {
    if (!last || now() - last.at > FRESH_MS) {
      // Until the store answers, other requests get the previous result. The first request has none, so it waits.
      if (last) last.at = now()
      last = { health: await checkHealth(store, now), at: now() }
    }
    const { health } = last
    return Response.json(health, {
      status: health.ready ? 200 : 503,
      headers: { 'cache-control': 'no-store' },
    })
  }
}

async function checkHealth(store: Store, now: Clock['now']): Promise<Health> {
  const startedAt = now()
  try {
    await store.ping()
    return { live: true, ready: true, store: { ok: true, latencyMs: now() - startedAt } }
  } catch (error) {
    const code = error instanceof GatewayError ? error.code : 'ERR_INTERNAL'
    return { live: true, ready: false, store: { ok: false, latencyMs: now() - startedAt, error: code } }
  }
}
