/** The rules of the Workers in the anomaly suite. */
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Duration } from '../../src/config/duration.ts'
import {
  AT_ONCE,
  LEASE_ALGORITHMS,
  LEASE_LIMIT,
  LEASE_MS,
  leaseRuleName,
  MODES,
  SLOT_TTL_MS,
} from './modes.ts'

/** For each mode, a rule for consumers and a rule for callers without a key. */
export const inEachMode = (name: string, path: string, limit: number, period: Duration) =>
  MODES.flatMap(mode =>
    (['consumer', 'address'] as const).map(by => ({
      name: `${name}${mode}-${by}`,
      by,
      algorithm: 'fixed-window' as const,
      limit,
      period,
      match: { path: `${path}/${mode}/*`, authenticated: by === 'consumer' },
      onStoreFailure: mode,
    })),
  )

/** The same for requests in flight. No caller has more than one request at once, so none of these rules may refuse. */
export const inFlightInEachMode = MODES.flatMap(mode =>
  (['consumer', 'address'] as const).map(by => ({
    name: `in-flight-${mode}-${by}`,
    by,
    algorithm: 'concurrency' as const,
    limit: AT_ONCE,
    ttl: `${SLOT_TTL_MS}ms` as const,
    match: { path: `/${mode}/*`, authenticated: by === 'consumer' },
    onStoreFailure: mode,
  })),
)

/** For each mode and algorithm, a rule with a lease. */
export const leasedInEachMode = MODES.flatMap(mode =>
  Object.entries(LEASE_ALGORITHMS).map(
    ([algorithm, by]) =>
      ({
        ...{ name: leaseRuleName(mode, algorithm), by, algorithm, limit: LEASE_LIMIT, period: '300d' },
        match: { path: `/leased/${mode}/${algorithm}/*`, authenticated: by === 'consumer' },
        lease: { for: `${LEASE_MS}ms` },
        onStoreFailure: mode,
      }) as RuleInput,
  ),
)
