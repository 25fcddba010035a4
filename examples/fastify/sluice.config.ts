import { defineConfig } from 'sluicegate'

export default defineConfig({
  plans: ['free', 'pro'],
  credentials: { accept: ['api-key', 'anonymous'] },
  rules: [
    {
      name: 'address',
      by: 'address',
      algorithm: 'gcra',
      limit: 5,
      period: '1m',
      burst: 5,
      match: { authenticated: false },
    },
    {
      name: 'consumer',
      by: 'consumer',
      algorithm: 'sliding-window',
      limit: 100,
      period: '1m',
      plans: { pro: { limit: 1000 } },
    },
  ],
})
