import { defineConfig } from 'sluicegate'

export default defineConfig({
  // Where admitted requests go; the variable ORIGIN_URL overrides it.
  origin: 'https://api.example.com',
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
