/**
 * Addresses and ranges of them as they stand in a config: for proxies that are trusted, and for lists of who is let in
 * or kept out. One address has one form here: IPv4-mapped IPv6 is IPv4, and a zone (`%eth0`) is left away.
 *
 * Parsed here and not by a package: ipaddr.js takes texts that other readers refuse, and weighs 3.8 kB gzip in the Worker;
 * smaller ones, such as @chainsafe/is-ip, read '1:2:3:4::5:6:192.0.2.1' as an address, which has too many groups.
 */

/** In groups of 16 bits: two of IPv4, eight of IPv6. */
export type Address = readonly number[]

/** Parsed once; an address is compared with each in turn, which is fine for some hundreds. */
export type Ranges = readonly { network: Address; prefix: number }[]

/** Without leading zeros, which some readers take for octal numbers. */
const OCTET = '(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)'
const DOTTED = new RegExp(`^${OCTET}\\.${OCTET}\\.${OCTET}\\.${OCTET}$`)

/** Such an address is in its one spelling, so it need not be taken apart. */
export const isIPv4Text = (text: string): boolean => DOTTED.test(text)

const GROUP = /^[\da-f]{1,4}$/i

/** `::ffff:0:0/96` */
const IPV4_MAPPED = [0, 0, 0, 0, 0, 0xffff]

/** Two groups or more, which `::` can stand for. */
const ZEROS = /\b0(?::0)+\b/g

export const isIPv4 = (address: Address): boolean => address.length === 2

/** @returns undefined for what is not exactly one address, without port, brackets or spaces */
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
  // A zone names an interface of this machine, as in 'fe80::1%br-lan', and only IPv6 has one.
  const address = text.includes('%') ? text.replace(/%[\w.:~-]+$/, '') : text
  const [head, tail, more] = withoutDots(address)?.split('::') ?? []
  if (head === undefined || more !== undefined) return undefined
  const before = groupsOf(head)
  const after = groupsOf(tail ?? '')
  const missing = 8 - before.length - after.length
  // '::' stands for one group at least.
  if (tail === undefined ? missing !== 0 : missing < 1) return undefined
  const groups = [...before, ...Array<number>(missing).fill(0), ...after]
  if (groups.some(Number.isNaN)) return undefined
  return IPV4_MAPPED.every((group, i) => groups[i] === group) ? groups.slice(6) : groups
}

/** The last 32 bits can be written as IPv4: '64:ff9b::192.0.2.1' is '64:ff9b::c000:201'. */
function withoutDots(address: string): string | undefined {
  if (!address.includes('.')) return address
  const at = address.lastIndexOf(':') + 1
  const dotted = address.slice(at)
  const groups = parseIPv4(dotted)
  // Some readers take '::192.0.2.1' for what only '::ffff:192.0.2.1' is.
  return groups && address !== `::${dotted}` ? address.slice(0, at) + hexOf(groups) : undefined
}

/** NaN for what is not a group. */
function groupsOf(text: string): number[] {
  return text === ''
    ? []
    : text.split(':').map(group => (GROUP.test(group) ? Number.parseInt(group, 16) : Number.NaN))
}

const hexOf = (groups: Address) => groups.map(group => group.toString(16)).join(':')

/** The one spelling of an address: for IPv6 that of RFC 5952. Keys of the store contain it. */
export function addressText(address: Address): string {
  if (isIPv4(address)) {
    const [first = 0, last = 0] = address
    return `${first >> 8}.${first & 0xff}.${last >> 8}.${last & 0xff}`
  }
  const text = hexOf(address)
  // The first of those that are equally long.
  let longest: { 0: string; index: number } = { 0: '', index: 0 }
  for (const zeros of text.matchAll(ZEROS)) if (zeros[0].length > longest[0].length) longest = zeros
  if (longest[0] === '') return text
  const tail = text.slice(longest.index + longest[0].length)
  return `${text.slice(0, longest.index).replace(/:$/, '')}::${tail.replace(/^:/, '')}`
}

/** An address in its one spelling; undefined for what is not one. */
export function canonicalAddress(text: string | undefined): string | undefined {
  // IPv4 has one spelling.
  if (text === undefined || isIPv4Text(text)) return text
  const parsed = parseAddress(text)
  return parsed && addressText(parsed)
}

/** The address with all bits after the prefix set to 0. */
export function networkOf(address: Address, prefix: number): Address {
  return address.map((group, i) => group & maskOf(i, prefix))
}

/** Of the group at this place. */
const maskOf = (i: number, prefix: number) => 0xffff << Math.min(Math.max(16 * (i + 1) - prefix, 0), 16)

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
    ({ network, prefix }) =>
      network.length === parsed.length &&
      network.every((group, i) => ((group ^ parsed[i]!) & maskOf(i, prefix)) === 0),
  )
}

/** @returns undefined for what is neither an address nor a range */
export function parseRange(text: string): Ranges[number] | undefined {
  const [, address = '', length] = /^([^/%]*)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? []
  const network = parseAddress(address)
  if (!network) return undefined
  // The IPv4-mapped are the last 32 bits of ::ffff:0:0/96.
  const folded = isIPv4(network) && address.includes(':') ? 96 : 0
  const width = 16 * network.length
  const prefix = length === undefined ? width : Number(length) - folded
  return prefix >= 0 && prefix <= width ? { network, prefix } : undefined
}
