/**
 * The config of the Workers that lease. Windows last longer than any test, and while the store fails nothing is admitted, so that what
 * the origin receives was spent. The deadline is long: a reply that a busy machine delivers late must not lose units.
 */
import { defineConfig } from '../../src/config/define.ts'
import { LEASE_LIMITS } from './lease-limits.ts'

const window = { by: 'address', algorithm: 'fixed-window', period: '300d', onStoreFailure: 'closed' } as const

export default defineConfig({
  origin: 'https://origin.invalid',
  credentials: { accept: ['anonymous'] },
  store: { deadline: '20s', breaker: false },
  stats: { keep: false },
  lease: { for: '1s' },
  rules: Object.entries(LEASE_LIMITS).map(([name, limit]) => ({
    ...{ ...window, name, limit },
    match: { path: `/${name}` },
  })),
})
