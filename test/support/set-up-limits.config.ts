/** The limits that every set-up is tested with. */
import type { ConfigInput } from '../../src/config/check/schema.ts'

export default {
  plans: ['free', 'pro'],
  // Longer than in production, because test machines are busy.
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  stats: { keep: false },
  routes: [
    { name: 'open', match: { path: '/open/*' }, accept: ['anonymous'] },
    { name: 'free', match: { path: '/free' }, accept: ['anonymous'], limits: false },
    { name: 'reports', match: { path: '/reports/*' }, cost: 2 },
  ],
  rules: [
    {
      name: 'hour',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 4,
      period: '1d',
      plans: { pro: { limit: 6 } },
    },
    {
      name: 'even',
      by: 'consumer',
      algorithm: 'gcra',
      limit: 2,
      period: '1h',
      burst: 2,
      match: { methods: ['POST'] },
    },
    {
      name: 'address',
      by: 'address',
      algorithm: 'sliding-window',
      limit: 3,
      period: '1d',
      match: { authenticated: false },
    },
    { name: 'shadow', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '1d', mode: 'shadow' },
  ],
  block: { addresses: ['192.0.2.66'] },
  cors: { origins: ['https://app.example.com'] },
} satisfies ConfigInput
