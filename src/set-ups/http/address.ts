/** Reads the client's address on each platform, and the identity that rules count it by. */
import {
  addressText,
  canonicalAddress,
  isIPv4,
  isIPv4Text,
  networkOf,
  parseAddress,
} from '../../config/address-ranges.ts'
import { type AddressSettings, compileAddress } from '../../config/compile-address.ts'
import type { addressBehindProxies } from './behind-proxies.ts'

/** A part that a Worker carries only if a header of proxies has the address. */
export interface AddressParts {
  addressBehindProxies: typeof addressBehindProxies
}

/** All callers with an unknown address are counted together. */
const UNKNOWN_ADDRESS = 'unknown'

const ON_CLOUDFLARE = compileAddress(undefined)

/**
 * The client's address in canonical form: IPv4-mapped IPv6 as IPv4, IPv6 as in RFC 5952, without port and zone.
 *
 * @param peer the other end of the connection; with `trustedWorkers`, the address that such a Worker reports.
 * Undefined if the platform does not report it. Empty if the address is unknown (the client is gone, for example);
 * then no header is trusted either
 * @returns undefined if the address is unknown
 */
export function clientAddress(
  request: Request,
  settings: AddressSettings,
  peer: string | undefined,
  { addressBehindProxies }: AddressParts,
): string | undefined {
  const { from, trustedWorkers } = settings
  switch (from) {
    case 'cloudflare':
      return canonicalAddress(request.headers.get('cf-connecting-ip') ?? (trustedWorkers ? peer : undefined))
    case 'peer':
      return canonicalAddress(peer)
    case 'x-forwarded-for':
    case 'forwarded':
      return addressBehindProxies(request, from, settings, peer)
  }
}

/**
 * The identity of an address: an IPv4 address itself, or the network of an IPv6 address. A subscriber gets at least a
 * /64 (RFC 6177), so single addresses would give each caller 2^64 budgets.
 */
export function addressIdentity(address: string | undefined, ipv6Prefix = ON_CLOUDFLARE.ipv6Prefix): string {
  if (address === undefined) return UNKNOWN_ADDRESS
  if (isIPv4Text(address)) return address
  const parsed = parseAddress(address)
  if (!parsed) return UNKNOWN_ADDRESS
  if (isIPv4(parsed)) return addressText(parsed)
  const groups = networkOf(parsed, ipv6Prefix).slice(0, Math.ceil(ipv6Prefix / 16))
  const network = groups.map(group => group.toString(16)).join(':')
  return `${network}${groups.length < 8 ? '::' : ''}/${ipv6Prefix}`
}
