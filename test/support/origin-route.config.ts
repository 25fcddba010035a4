/** A config for a Worker on a route of a zone. */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'route',
  store: { deadline: '20s' },
  block: { addresses: ['192.0.2.66'] },
  rules: [
    { name: 'all', by: 'consumer', algorithm: 'fixed-window', limit: 1000, period: '300d' },
    {
      name: 'few',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 2,
      period: '300d',
      match: { path: '/few' },
    },
  ],
})
