/** The config of both gateways that meet hostile origins and clients. Its deadlines of the origin are short, because some origins never answer. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  originDeadline: '1500ms',
  idleDeadline: '1500ms',
  store: { deadline: '20s', maxInFlight: 1000 },
  refusals: { rememberFor: 0 },
  log: { perSecond: 1000 },
  rules: [
    { name: 'wide', by: 'consumer', algorithm: 'fixed-window', limit: 1e6, period: '300d' },
    {
      ...{ name: 'used-up', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d' },
      match: { path: '/used-up' },
    },
    {
      ...{ name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 100, ttl: '1h' },
      match: { path: '/held/*' },
    },
  ],
})
