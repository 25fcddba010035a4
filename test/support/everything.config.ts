/**
 * A config that uses most parts of the Worker, to test its size (bench/size.ts). shedding.config.ts adds load shedding, hooks, API keys in
 * WebSocket subprotocols, and `X-RateLimit` headers.
 */
import { defineConfig } from '../../src/config/define.ts'
import { jwt } from '../../src/credentials/jwt.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  environment: 'test',
  plans: ['free', 'pro'],
  store: { cluster: true },
  address: { from: 'x-forwarded-for', trustedProxies: ['127.0.0.0/8', '::1'] },
  allow: { addresses: ['192.0.2.1'], consumers: ['friend'] },
  block: { addresses: ['198.51.100.0/24'], countries: ['T1'] },
  cors: { origins: ['https://app.example.com'] },
  credentials: {
    opaqueKeys: {},
    jwt: {
      internal: jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'internal', audience: 'api' }),
      access: jwt({ access: 'https://team.cloudflareaccess.com', audience: 'api' }),
    },
    accept: ['api-key', 'internal', 'access', 'opaque-key', 'anonymous'],
  },
  routes: [{ name: 'reports', match: { path: '/reports/*', methods: ['GET'] }, cost: 2 }],
  rules: [
    { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 1000, period: '1s' },
    { name: 'queue', by: 'consumer', algorithm: 'leaky-bucket', limit: 1000, period: '1s', queue: 10 },
    {
      name: 'day',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 100_000,
      period: 'day',
      timeZone: 'Europe/Berlin',
      plans: { pro: { limit: 200_000 } },
    },
    { name: 'window', by: 'address', algorithm: 'sliding-window', limit: 100_000, period: '1h' },
    { name: 'log', by: 'address', algorithm: 'sliding-log', limit: 1000, period: '1s', mode: 'shadow' },
    { name: 'tokens', by: ['consumer', 'route'], algorithm: 'token-bucket', limit: 5000, period: '1m' },
    { name: 'countries', by: 'country', algorithm: 'gcra', limit: 100_000, period: '1s', enforce: 0.5 },
    { name: 'in-flight', by: 'consumer', algorithm: 'concurrency', limit: 1000 },
    { name: 'guesses', by: 'address', algorithm: 'gcra', limit: 10, period: '1m', on: 'auth-failure' },
  ],
})
