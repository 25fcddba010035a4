/**
 * The config of the Worker for callers with leases in the anomaly suite. It has no rules on requests in flight and no fleet usage, because
 * they would prevent leases.
 */
import { defineConfig } from '../../src/config/define.ts'
import { COSTLY, LIMIT, SOAK_LEASE_LIMIT, SOAK_LEASE_MS, SOAK_LEASE_PERIOD_MS, STORE } from './modes.ts'
import { inEachMode, leasedInEachMode } from './rules.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  originDeadline: '5s',
  credentials: { accept: ['api-key', 'anonymous'] },
  store: STORE,
  routes: [{ name: 'costly', match: { path: '/leased/:mode/:algorithm/:caller/costly' }, cost: COSTLY }],
  rules: [
    ...inEachMode('', '', LIMIT, '300d'),
    ...leasedInEachMode,
    ...inEachMode('soak-', '/soak', SOAK_LEASE_LIMIT, `${SOAK_LEASE_PERIOD_MS}ms`).map(rule => ({
      ...rule,
      lease: { for: `${SOAK_LEASE_MS}ms` as const },
    })),
  ],
})
