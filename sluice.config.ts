import { defineConfig } from './src/config/define.ts'

/**
 * The one file to edit. `npx sluicegate check` says what is wrong with it; `npm start` picks up changes as you save.
 * Every rule that matches a request is decided in the same trip, and if one refuses, none of them is charged.
 */
export default defineConfig({
  // Where admitted requests go. `npm start` puts its demo origin here unless you give it --origin.
  origin: 'https://api.example.com',

  // What an API key can have as its plan. The first is the default.
  plans: ['free', 'pro'],

  // While Redis does not answer, each isolate counts by itself. Or 'open': everything passes; or 'closed': nothing does.
  onStoreFailure: 'local',

  rules: [
    // Per consumer, for all of its API keys together …
    { name: 'consumer-second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
    { name: 'consumer-minute', by: 'consumer', algorithm: 'fixed-window', limit: 120, period: '1m' },
    { name: 'consumer-hour', by: 'consumer', algorithm: 'fixed-window', limit: 240, period: '1h' },

    // … and again the address that the request comes from. Test keys there spend nothing of live ones.
    { name: 'address-second', by: ['address', 'mode'], algorithm: 'gcra', limit: 10, period: '1s' },
    { name: 'address-minute', by: ['address', 'mode'], algorithm: 'fixed-window', limit: 120, period: '1m' },
    { name: 'address-hour', by: ['address', 'mode'], algorithm: 'fixed-window', limit: 240, period: '1h' },
  ],
})
