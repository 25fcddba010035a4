import { defineConfig } from 'sluicegate'

/**
 * The one file to edit. `npm run check` names every mistake in it; `npm start` picks up changes as you save. Every rule that matches a
 * request is decided in the same trip, and if one refuses, none of them is charged.
 */
export default defineConfig({
  // Where admitted requests go. `npm start` puts a demo origin here unless you give it --origin.
  origin: 'https://api.example.com',

  // What an API key can have as its plan. The first is the default.
  plans: ['free', 'pro'],

  // While Redis does not answer, each isolate counts by itself. Or 'open': everything passes; or 'closed': nothing does.
  onStoreFailure: 'local',

  rules: [
    { name: 'consumer-second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
    {
      name: 'consumer-minute',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 120,
      period: '1m',
      plans: { pro: { limit: 1200 } },
    },
    // Test keys at an address spend nothing of live ones.
    { name: 'address-minute', by: ['address', 'mode'], algorithm: 'fixed-window', limit: 600, period: '1m' },
  ],
})
