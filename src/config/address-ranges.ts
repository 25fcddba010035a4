/**
 * IP addresses and ranges of the config: trusted proxies, and the allow and block lists. Each address has exactly one
 * parsed form: IPv4-mapped IPv6 becomes IPv4, and a zone (`%eth0`) is dropped.
 *
 * No package is used: ipaddr.js accepts texts that other parsers reject, and adds 3.8 kB gzip to the Worker. Smaller ones, such as
 * @chainsafe/is-ip, accept '1:2:3:4::5:6:192.0.2.1', which has too many groups.
 */

/** Groups of 16 bits: two for IPv4, eight for IPv6. */
export type Address = readonly number[]

/** Parsed ranges. An address is compared with each of them in turn, which is fast enough for a few hundred. */
export type Ranges = readonly { network: Address; prefix: number }[]

/** No leading zeros, because some parsers read them as octal numbers. */
const OCTET = '(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)'
const DOTTED = new RegExp(`^${OCTET}\\.${OCTET}\\.${OCTET}\\.${OCTET}$`)

/** Whether a text is an IPv4 address. IPv4 has only one spelling, so the text needs no further parsing. */
export const isIPv4Text = (text: string): boolean => DOTTED.test(text)

const GROUP = /^[\da-f]{1,4}$/i

/** `::ffff:0:0/96` */
const IPV4_MAPPED = [0, 0, 0, 0, 0, 0xffff]

/** Two or more groups of zeros, which `::` can replace. */
const ZEROS = /\b0(?::0)+\b/g

export const isIPv4 = (address: Address): boolean => address.length === 2

/** @returns undefined unless the text is exactly one address, without port, brackets and spaces */
export function parseAddress(text: string): Address | undefined {
  return text.includes(':') ? parseIPv6(text) : parseIPv4(text)
}

function parseIPv4(text: string): Address | undefined {
  const octets = DOTTED.exec(text)
  if (!octets) return undefined
  const [, a, b, c, d] = octets
  return [Number(a) * 256 + Number(b), Number(c) * 256 + Number(d)]
}

function parseIPv6(text: string): Address | undefined {
  // Only IPv6 has a zone. It names a network interface of this machine, as in 'fe80::1%br-lan'.
  const address = text.includes('%') ? text.replace(/%[\w.:~-]+$/, '') : text
  const [head, tail, more] = withoutDots(address)?.split('::') ?? []
  if (head === undefined || more !== undefined) return undefined
  const before = groupsOf(head)
  const after = groupsOf(tail ?? '')
  const missing = 8 - before.length - after.length
  // '::' replaces at least one group.
  if (tail === undefined ? missing !== 0 : missing < 1) return undefined
  const groups = [...before, ...Array<number>(missing).fill(0), ...after]
  if (groups.some(Number.isNaN)) return undefined
  return IPV4_MAPPED.every((group, i) => groups[i] === group) ? groups.slice(6) : groups
}

/** Rewrites the last 32 bits if they are written as IPv4: '64:ff9b::192.0.2.1' becomes '64:ff9b::c000:201'. */
function withoutDots(address: string): string | undefined {
  if (!address.includes('.')) return address
  const at = address.lastIndexOf(':') + 1
  const dotted = address.slice(at)
  const groups = parseIPv4(dotted)
  // '::192.0.2.1' is rejected, because some parsers confuse it with '::ffff:192.0.2.1'.
  return groups && address !== `::${dotted}` ? address.slice(0, at) + hexOf(groups) : undefined
}

/** The groups as numbers, NaN for an invalid group. */
function groupsOf(text: string): number[] {
  return text === ''
    ? []
    : text.split(':').map(group => (GROUP.test(group) ? Number.parseInt(group, 16) : Number.NaN))
}

const hexOf = (groups: Address) => groups.map(group => group.toString(16)).join(':')

/** The canonical text of an address, for IPv6 that of RFC 5952. Keys of the store contain it. */
export function addressText(address: Address): string {
  if (isIPv4(address)) {
    const [first = 0, last = 0] = address
    return `${first >> 8}.${first & 0xff}.${last >> 8}.${last & 0xff}`
  }
  const text = hexOf(address)
  // Of equally long runs of zeros, RFC 5952 replaces the first.
  let longest: { 0: string; index: number } = { 0: '', index: 0 }
  for (const zeros of text.matchAll(ZEROS)) if (zeros[0].length > longest[0].length) longest = zeros
  if (longest[0] === '') return text
  const tail = text.slice(longest.index + longest[0].length)
  return `${text.slice(0, longest.index).replace(/:$/, '')}::${tail.replace(/^:/, '')}`
}

/** The canonical text of an address. @returns undefined if the text is not an address */
export function canonicalAddress(text: string | undefined): string | undefined {
  if (text === undefined || isIPv4Text(text)) return text
  const parsed = parseAddress(text)
  return parsed && addressText(parsed)
}

/** The address with all bits after the prefix set to 0. */
export function networkOf(address: Address, prefix: number): Address {
  return address.map((group, i) => group & maskOf(i, prefix))
}

/** The bits of the i-th group that belong to the prefix. */
const maskOf = (i: number, prefix: number) => 0xffff << Math.min(Math.max(16 * (i + 1) - prefix, 0), 16)

/** @param list ranges that the schema has accepted */
export function compileRanges(list: readonly string[]): Ranges {
  return list.map(text => parseRange(text)!)
}

/** Whether an address is in one of the ranges. `::/0` contains all of IPv6 and no IPv4. An unknown address is in no range. */
export function isInRanges(ranges: Ranges, address: string | undefined): boolean {
  if (ranges.length === 0) return false
  const parsed = address === undefined ? undefined : parseAddress(address)
  if (!parsed) return false
  return ranges.some(
    ({ network, prefix }) =>
      network.length === parsed.length &&
      network.every((group, i) => ((group ^ parsed[i]!) & maskOf(i, prefix)) === 0),
  )
}

/** @returns undefined if the text is neither an address nor a range */
export function parseRange(text: string): Ranges[number] | undefined {
  const [, address = '', length] = /^([^/%]*)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? []
  const network = parseAddress(address)
  if (!network) return undefined
  // An IPv4-mapped address was parsed as IPv4. Its written prefix includes the 96 bits of ::ffff:0:0/96.
  const mappedBits = isIPv4(network) && address.includes(':') ? 96 : 0
  const width = 16 * network.length
  const prefix = length === undefined ? width : Number(length) - mappedBits
  return prefix >= 0 && prefix <= width ? { network, prefix } : undefined
}
