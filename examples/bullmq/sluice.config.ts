import { defineConfig } from 'sluicegate'

export default defineConfig({
  environment: 'live',
  limits: {
    // A third party allows each account 10 calls a second and 5,000 a day.
    zendesk: [
      { name: 'account-second', by: ['account'], algorithm: 'sliding-log', limit: 10, period: '1s' },
      { name: 'account-day', by: ['account'], algorithm: 'fixed-window', limit: 5000, period: 'day' },
    ],
  },
})
