/**
 * A config for tests of API keys in WebSocket subprotocols. Under /held, requests in flight are counted, so the gateway relays each
 * message.
 */
import { defineConfig } from '../../src/config/define.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  store: { deadline: '20s' },
  credentials: { webSocketKeys: true, opaqueKeys: {}, accept: ['api-key', 'opaque-key'] },
  rules: [
    { name: 'consumer', by: 'consumer', algorithm: 'fixed-window', limit: 1000, period: '300d' },
    { name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 10, match: { path: '/held' } },
  ],
})
