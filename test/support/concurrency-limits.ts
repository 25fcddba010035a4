/** The limits of concurrency.config.ts: for an address, for an address whose requests count double, and for a consumer. */
export const LIMITS = {
  address: { limit: 5 },
  cost: { limit: 5, cost: 2 },
  key: { limit: 3 },
} as const

export const SHORT_TTL_MS = 2000
