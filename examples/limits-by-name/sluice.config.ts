import { defineConfig } from 'sluicegate'

export default defineConfig({
  environment: 'live',
  limits: {
    // A third party allows 10 calls a second for all of us, and 5,000 a day for each account.
    zendesk: [
      { name: 'second', algorithm: 'sliding-log', limit: 10, period: '1s' },
      { name: 'account-day', by: ['account'], algorithm: 'fixed-window', limit: 5000, period: 'day' },
    ],
    exports: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 5 }],
  },
})
