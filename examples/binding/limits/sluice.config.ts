import { defineConfig } from 'sluicegate'

/** Limits by name alone: no origin, no rules. */
export default defineConfig({
  limits: {
    signups: [{ name: 'hour', by: ['address'], algorithm: 'sliding-window', limit: 5, period: '1h' }],
    exports: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 2 }],
  },
})
