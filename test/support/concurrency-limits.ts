/** What concurrency.config.ts admits at once: an address, an address whose requests count double, and a consumer. */
export const LIMITS = {
  address: { limit: 5 },
  cost: { limit: 5, cost: 2 },
  key: { limit: 3 },
} as const

export const SHORT_TTL_MS = 2000
