/** Limits by name alone: no origin, no rules. */
import { defineConfig } from '../../../src/config/define.ts'

export default defineConfig({
  store: { deadline: '20s' },
  stats: { every: '1s' },
  units: { tokens: { estimate: 100 } },
  limits: {
    signups: [{ name: 'hour', by: ['address'], algorithm: 'sliding-window', limit: 3, period: '1h' }],
    mails: [
      { name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 10, period: '1d' },
      { name: 'all', algorithm: 'gcra', limit: 1000, period: '1s', burst: 1000 },
    ],
    drafts: [
      { name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 2 },
      { name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 10, period: '1d' },
    ],
    exports: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 2 }],
    llm: [
      { name: 'day', unit: 'tokens', by: ['team'], algorithm: 'fixed-window', limit: 1000, period: '300d' },
    ],
  },
})
