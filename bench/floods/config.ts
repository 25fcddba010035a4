/**
 * The config of the flooded Worker, for all checkouts. It checks the signatures of keys; all other settings have their defaults. The limits are fixed windows of a minute, so
 * that the exact number of requests that may reach the origin is known.
 */
import type { ConfigInput } from '../../src/config/check/schema.ts'

/** Requests a minute. */
export const LIMITS = {
  ...{ consumer: 100, address: 200, guesses: 20 },
  /** For floods of several callers, so that each of them sends more than its limit. */
  each: { consumer: 50, address: 20 },
}

export default {
  origin: 'https://origin.invalid',
  credentials: { accept: ['api-key', 'opaque-key'], apiKeys: { signature: 'check' }, opaqueKeys: {} },
  routes: [
    { name: 'flooded', match: { path: '/flooded' } },
    // One request spends a consumer's whole limit.
    { name: 'spending', match: { path: '/spending' }, cost: LIMITS.consumer },
    { name: 'anonymous', match: { path: '/anonymous' }, accept: ['anonymous'] },
    { name: 'several', match: { path: '/several' } },
    { name: 'several-anonymous', match: { path: '/several-anonymous' }, accept: ['anonymous'] },
    { name: 'innocent', match: { path: '/innocent' } },
  ],
  rules: [
    {
      ...{ name: 'consumer-minute', by: 'consumer', algorithm: 'fixed-window', period: '1m' },
      limit: LIMITS.consumer,
      match: { routes: ['flooded', 'spending'] },
    },
    {
      ...{ name: 'address-minute', by: 'address', algorithm: 'fixed-window', period: '1m' },
      limit: LIMITS.address,
      match: { routes: ['flooded', 'spending', 'anonymous'] },
    },
    {
      ...{ name: 'each-consumer-minute', by: 'consumer', algorithm: 'fixed-window', period: '1m' },
      limit: LIMITS.each.consumer,
      match: { routes: ['several'] },
    },
    {
      ...{ name: 'each-address-minute', by: 'address', algorithm: 'fixed-window', period: '1m' },
      limit: LIMITS.each.address,
      match: { routes: ['several-anonymous'] },
    },
    {
      ...{ name: 'guesses', by: 'address', algorithm: 'fixed-window', period: '1m' },
      on: 'auth-failure',
      limit: LIMITS.guesses,
    },
    {
      ...{ name: 'innocent-minute', by: 'consumer', algorithm: 'fixed-window', period: '1m' },
      limit: 1e6,
      match: { routes: ['innocent'] },
    },
  ],
} satisfies ConfigInput
