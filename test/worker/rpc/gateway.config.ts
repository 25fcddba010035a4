/** The limits of config.ts in a config of the gateway. The rules of the gateway use parts of the Worker that the limits do not use. */
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import config from './all-limits.config.ts'

export default {
  ...config,
  origin: 'https://origin.invalid',
  routes: [{ name: 'reports', match: { path: '/reports/*' } }],
  rules: [{ name: 'tokens', by: 'consumer', algorithm: 'token-bucket', limit: 10, period: '1m' }],
  shedding: {
    classes: [{ name: 'critical', match: { routes: ['reports'] } }, { name: 'other' }],
    fleetUsage: { capacity: 10 },
  },
} satisfies ConfigInput
