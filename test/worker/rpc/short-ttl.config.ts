import { defineConfig } from '../../../src/config/define.ts'

export default defineConfig({
  store: { deadline: '20s' },
  limits: {
    jobs: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 1, ttl: '1s' }],
    marks: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 10, period: '300d' }],
  },
})
