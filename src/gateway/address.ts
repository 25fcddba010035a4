/** The client's address, as an identity to count by. */
import ipaddr from 'ipaddr.js'

/** All callers whose address is not known are counted as one. */
export const UNKNOWN_ADDRESS = 'unknown'

/** The address Cloudflare's edge saw, as text; it overwrites what the client sends under this name. */
export function clientAddress(request: Request): string | undefined {
  return request.headers.get('cf-connecting-ip') ?? undefined
}

/**
 * One spelling per caller: IPv4-mapped IPv6 is IPv4, and an IPv6 address stands for its /64, the least that a
 * subscriber is given (RFC 6177), or every caller would have 2^64 budgets.
 */
export function addressIdentity(address: string | undefined): string {
  if (!address || !ipaddr.isValid(address)) return UNKNOWN_ADDRESS
  const parsed = ipaddr.process(address)
  if (parsed.kind() === 'ipv4') return parsed.toString()
  const network = (parsed as ipaddr.IPv6).parts.slice(0, 4).map(part => part.toString(16))
  return `${network.join(':')}::/64`
}
