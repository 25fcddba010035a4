/** The config of the end-to-end tests. Its periods are long, so that no test depends on its speed. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  originDeadline: '10s',
  plans: ['free', 'pro'],
  // Generous, because a busy machine is slow and these tests send many requests at once. Other tests are about the deadline and
  // the bound on calls in flight.
  store: { deadline: '20s', maxInFlight: 1000 },
  routes: [{ name: 'log', match: { path: '/log/*' }, accept: ['api-key', 'anonymous'] }],
  rules: [
    { name: 'consumer', by: 'consumer', algorithm: 'gcra', limit: 200, period: '300d' },
    {
      name: 'few',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 2,
      period: '300d',
      match: { path: '/few' },
    },
    {
      name: 'queue',
      by: 'consumer',
      algorithm: 'leaky-bucket',
      limit: 10,
      period: '1s',
      queue: 4,
      match: { path: '/queue' },
    },
    {
      name: 'tried-out',
      by: 'consumer',
      algorithm: 'sliding-log',
      limit: 1,
      period: '300d',
      match: { path: '/tried-out' },
      mode: 'shadow',
    },
    {
      name: 'log',
      by: 'address',
      algorithm: 'gcra',
      limit: 5,
      period: '300d',
      match: { path: '/log/*' },
    },
  ],
})
