/**
 * The config for tests of requests in flight. The first part of the path chooses a rule, the last part the behavior of the
 * origin. With a ttl of an hour, no unit becomes free by expiry.
 */
import { defineConfig } from '../../src/config/define.ts'
import type { Duration } from '../../src/config/duration.ts'
import { LIMITS, SHORT_TTL_MS } from './concurrency-limits.ts'

const concurrency = { algorithm: 'concurrency', onStoreFailure: 'closed' } as const
const SHORT_TTL = `${SHORT_TTL_MS}ms` as const

/** @param ttl the ttl of the rules under this path */
const rulesUnder = (path: string, ttl: Duration) =>
  (['address', 'cost', 'key'] as const).map(name => ({
    ...{ ...concurrency, ...LIMITS[name], ttl },
    name: `${path}-${name}`,
    by: name === 'key' ? ('consumer' as const) : ('address' as const),
    match: { path: `/${path}/${name}/*` },
  }))

/** A rule that admits one request at a time. */
const single = (name: string, ttl: Duration) =>
  ({ ...concurrency, name, by: 'address', limit: 1, ttl, match: { path: `/${name}/*` } }) as const

const paced = { by: 'address', algorithm: 'gcra', limit: 1e6, period: '1h' } as const

export default defineConfig({
  origin: 'https://origin.invalid',
  originDeadline: '1s',
  credentials: { accept: ['api-key', 'opaque-key', 'anonymous'], opaqueKeys: { rememberFor: '1d' } },
  store: { breaker: { retryAfter: '100ms' } },
  stats: { keep: false },
  rules: [
    ...rulesUnder('hour', '1h'),
    ...rulesUnder('short', SHORT_TTL),
    single('single', '1h'),
    single('second', '1s'),
    { ...concurrency, name: 'many', by: 'address', limit: 64, ttl: '1h', match: { path: '/many/*' } },
    { ...paced, name: 'with', match: { path: '/with/*' } },
    { ...concurrency, name: 'with-rule', by: 'address', limit: 64, match: { path: '/with/*' } },
    { ...paced, name: 'without', match: { path: '/without/*' } },
  ],
})
