/**
 * The config of Workers with leases. Windows are longer than any test, and nothing is admitted while the store fails, so the store has
 * counted everything that the origin receives. The deadline is long, so that no units are lost by a late reply on a busy machine.
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
