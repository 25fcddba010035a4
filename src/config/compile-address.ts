/** Compiles `address`: where the client's address is read. Pure. */
import { compileRanges, type Ranges } from './address-ranges.ts'
import type { AddressInput } from './check/address-schema.ts'

export interface AddressSettings {
  from: NonNullable<AddressInput['from']>
  /** Empty unless `from` is a header to which proxies append. */
  trustedProxies: Ranges
  /** Workers whose `Sluice-Client-IP` is trusted. Absent: none. */
  trustedWorkers?: readonly string[] | undefined
  ipv6Prefix: number
}

export function compileAddress(input: AddressInput | undefined): AddressSettings {
  return {
    from: input?.from ?? 'cloudflare',
    trustedProxies: compileRanges(input?.trustedProxies ?? []),
    trustedWorkers: input?.trustedWorkers,
    ipv6Prefix: input?.ipv6Prefix ?? 64,
  }
}
