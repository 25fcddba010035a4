/**
 * Addresses and ranges of them as they stand in a config: for proxies that are trusted, and for lists of who is let in
 * or kept out. One address has one form here: IPv4-mapped IPv6 is IPv4, and a zone (`%eth0`) is left away.
 */
import ipaddr from 'ipaddr.js'

export type Address = ipaddr.IPv4 | ipaddr.IPv6

/** Parsed once; an address is compared with each in turn, which is fine for some hundreds. */
export type Ranges = readonly { network: Address; prefix: number }[]

/** @returns undefined for what is not exactly one address, without port, brackets or spaces */
export function parseAddress(text: string): Address | undefined {
  // A zone names an interface of this machine, as in 'fe80::1%br-lan', and only IPv6 has one.
  const [, address = '', zone] = /^([^%]*)(%[\w.:~-]+)?$/.exec(text) ?? []
  const isIPv6 = address.includes(':')
  if (zone !== undefined && !isIPv6) return undefined
  // ipaddr.js also takes '127.1', '0177.0.0.1' and '0x7f000001', which other readers take for other addresses or for
  // none, and '::192.0.2.1' for what only '::ffff:192.0.2.1' is.
  const tail = address.slice(address.lastIndexOf(':') + 1)
  const isDotted = !isIPv6 || tail.includes('.')
  if (isDotted && (!ipaddr.IPv4.isValidFourPartDecimal(tail) || address === `::${tail}`)) return undefined
  return ipaddr.isValid(address) ? ipaddr.process(address) : undefined
}

/** @param list as the schema let it through */
export function compileRanges(list: readonly string[]): Ranges {
  return list.map(text => parseRange(text)!)
}

/** `::/0` is all of IPv6 and nothing of IPv4. An address that is not known is in no range. */
export function isInRanges(ranges: Ranges, address: string | undefined): boolean {
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
