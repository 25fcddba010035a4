/** What leases.config.ts admits, by the path of the request: of one address, as long as the tests last. */
export const LEASE_LIMITS = { used: 3000, spared: 100_000, killed: 100_000 } as const
