/**
 * Addresses and ranges of them as they stand in a config: for proxies that are trusted, and for lists of who is let in
 * or kept out. One address has one form here: IPv4-mapped IPv6 is IPv4, and a zone (`%eth0`) is left away.
 */
import ipaddr from 'ipaddr.js'

export type Address = ipaddr.IPv4 | ipaddr.IPv6

/** Parsed once; an address is compared with each in turn, which is fine for some hundreds. */
export type Ranges = readonly { network: Address; prefix: number }[]

/** IPv4, without leading zeros, which some readers take for octal numbers. */
const DOTTED = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/

/** @returns undefined for what is not exactly one address, without port, brackets or spaces */
export function parseAddress(text: string): Address | undefined {
  const octets = DOTTED.exec(text)?.slice(1).map(Number)
  if (octets) return octets.every(octet => octet <= 255) ? new ipaddr.IPv4(octets) : undefined
  // A zone names an interface of this machine, as in 'fe80::1%br-lan', and only IPv6 has one.
  const [, address = ''] = /^([^%]*)(?:%[\w.:~-]+)?$/.exec(text) ?? []
  if (!address.includes(':')) return undefined
  // ipaddr.js also takes '::0x7f000001', which other readers take for another address or for none, and '::192.0.2.1' for
  // what only '::ffff:192.0.2.1' is.
  const tail = address.slice(address.lastIndexOf(':') + 1)
  if (tail.includes('.') && (!ipaddr.IPv4.isValidFourPartDecimal(tail) || address === `::${tail}`))
    return undefined
  return ipaddr.isValid(address) ? ipaddr.process(address) : undefined
}

/** @param list as the schema let it through */
export function compileRanges(list: readonly string[]): Ranges {
  return list.map(text => parseRange(text)!)
}

/** `::/0` is all of IPv6 and nothing of IPv4. An address that is not known is in no range. */
export function isInRanges(ranges: Ranges, address: string | undefined): boolean {
  if (ranges.length === 0) return false
  const parsed = address === undefined ? undefined : parseAddress(address)
  if (!parsed) return false
  return ranges.some(
    ({ network, prefix }) => network.kind() === parsed.kind() && parsed.match(network, prefix),
  )
}

/** @returns undefined for what is neither an address nor a range */
export function parseRange(text: string): Ranges[number] | undefined {
  const [, address = '', length] = /^([^/%]*)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? []
  const network = parseAddress(address)
  if (!network) return undefined
  // The IPv4-mapped are the last 32 bits of ::ffff:0:0/96.
  const folded = network.kind() === 'ipv4' && address.includes(':') ? 96 : 0
  const width = network.kind() === 'ipv4' ? 32 : 128
  const prefix = length === undefined ? width : Number(length) - folded
  return prefix >= 0 && prefix <= width ? { network, prefix } : undefined
}
