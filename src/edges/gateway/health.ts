/** GET /_sluice/health: is the Worker live, and does the store answer? */
import type { Clock } from '../../clock.ts'
import { GatewayError } from '../../errors.ts'
import type { Store } from '../../store/store.ts'

export interface Health {
  live: true
  ready: boolean
  store: { ok: boolean; latencyMs: number; error?: string }
}

/** How long an answer is reused, so that health checks cannot load the store. */
const FRESH_MS = 1000

/** Remembers its last answer: plain data, so it may outlive the request that asked. */
export function healthCheck(store: Store, { now }: Clock): () => Promise<Response> {
  let last: { at: number; health: Health } | undefined
  return async () => {
    if (!last || now() - last.at > FRESH_MS) {
      // Until it answers, other requests get the previous answer. The first request has none to get, and waits.
      if (last) last.at = now()
      last = { health: await examine(store, now), at: now() }
    }
    const { health } = last
    return Response.json(health, {
      status: health.ready ? 200 : 503,
      headers: { 'cache-control': 'no-store' },
    })
  }
}

async function examine(store: Store, now: Clock['now']): Promise<Health> {
  const startedAt = now()
  try {
    await store.ping()
    return { live: true, ready: true, store: { ok: true, latencyMs: now() - startedAt } }
  } catch (error) {
    const code = error instanceof GatewayError ? error.code : 'ERR_INTERNAL'
    return { live: true, ready: false, store: { ok: false, latencyMs: now() - startedAt, error: code } }
  }
}
