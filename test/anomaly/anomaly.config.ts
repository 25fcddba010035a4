/** What the Worker of the anomaly suite runs with. */
import { defineConfig } from '../../src/config/define.ts'
import type { Duration } from '../../src/config/duration.ts'
import { LIMIT, MODES, SOAK_LIMIT, SOAK_PERIOD_MS, STORE } from './policy.ts'

/** In each mode one for consumers, and one for those without a key. */
const inEachMode = (name: string, path: string, limit: number, period: Duration) =>
  MODES.flatMap(mode =>
    (['consumer', 'address'] as const).map(by => ({
      name: `${name}${mode}-${by}`,
      by,
      algorithm: 'fixed-window' as const,
      limit,
      period,
      match: { path: `${path}/${mode}/*`, authenticated: by === 'consumer' },
      onStoreFailure: mode,
    })),
  )

export default defineConfig({
  origin: 'https://origin.invalid',
  // Only an origin that hangs is to reach it, also on a busy machine.
  originDeadline: '5s',
  credentials: { accept: ['api-key', 'anonymous'] },
  store: STORE,
  rules: [
    // Long, so that what is spent stays spent while a scenario runs.
    ...inEachMode('', '', LIMIT, '300d'),
    ...inEachMode('soak-', '/soak', SOAK_LIMIT, `${SOAK_PERIOD_MS}ms`),
    {
      name: 'held',
      by: 'address',
      algorithm: 'leaky-bucket',
      limit: 5,
      period: '1s',
      queue: 5,
      match: { path: '/held/*' },
    },
  ],
})
