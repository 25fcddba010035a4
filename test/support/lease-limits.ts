/** The limits of leases.config.ts for an address, by the path of the request. Their windows are longer than the tests. */
export const LEASE_LIMITS = { used: 3000, spared: 100_000, killed: 100_000 } as const
