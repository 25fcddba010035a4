/**
 * The client's address in a header that proxies append to. Only the addresses from the right up to the first one that
 * is not a trusted proxy count: a client can write anything to the left of it.
 */
import { canonicalAddress, isInRanges, type Ranges } from '../../config/address-ranges.ts'
import type { AddressSettings } from '../../config/compile-address.ts'
import { forwardedFor } from './forwarded.ts'

/** No deployment has more proxies. Entries further left are not read. */
const MAX_HOPS = 50

/**
 * Room for 50 hops with everything that Forwarded has beside the address. Node accepts no more by default; Cloudflare
 * accepts 128 KB.
 */
const MAX_HEADER_LENGTH = 16_384

/** Longer than an address with brackets, zone and port. */
const MAX_NODE_LENGTH = 128

/** One comma, so that the time is linear. */
const AT_END = /,[ \t]*$/

type ProxyHeader = Extract<AddressSettings['from'], 'x-forwarded-for' | 'forwarded'>

/**
 * Finds the client's address.
 *
 * @param peer the nearest hop; undefined if the platform does not report it
 * @returns undefined if no address is known
 */
export function addressBehindProxies(
  request: Request,
  name: ProxyHeader,
  { trustedProxies }: Pick<AddressSettings, 'trustedProxies'>,
  peer: string | undefined,
): string | undefined {
  // `get` joins several lines of a header with commas.
  return findClient(hopsFromRight(name, request.headers.get(name), peer), trustedProxies)
}

/** The first address that is not a trusted proxy, or the last one before an unreadable entry. */
function findClient(hops: Iterable<string | undefined>, trustedProxies: Ranges): string | undefined {
  let client: string | undefined
  let count = 0
  for (const hop of hops) {
    if (hop === undefined || ++count > MAX_HOPS) break
    client = hop
    if (!isInRanges(trustedProxies, hop)) break
  }
  return client
}

/** Addresses from the nearest hop to the one that the client claims. Undefined for text that is not an address. */
function* hopsFromRight(
  name: ProxyHeader,
  header: string | null,
  peer: string | undefined,
): Generator<string | undefined> {
  if (peer !== undefined) yield canonicalAddress(peer)
  if (header === null) return
  // If the header is cut off, the `?` makes the entry at the cut invalid, because no address starts with it.
  const text = header.length > MAX_HEADER_LENGTH ? `?${header.slice(-MAX_HEADER_LENGTH)}` : header
  // A comma at the end is followed by no hop. An empty entry further left can be a hop without an address.
  for (const node of name === 'forwarded'
    ? forwardedFor(text)
    : text.replace(AT_END, '').split(',').reverse()) {
    yield addressOfNode(node)
  }
}

/** `192.0.2.1`, `192.0.2.1:4711`, `[2001:db8::1]:4711`, `2001:db8::1`; not `unknown` or `_hidden` (RFC 7239, section 6). */
export function addressOfNode(node: string | undefined): string | undefined {
  if (node === undefined || node.length > MAX_NODE_LENGTH) return undefined
  // Not trim(): it removes more than the whitespace of HTTP.
  const text = /^[ \t]*([^ \t]+)[ \t]*$/.exec(node)?.[1] ?? ''
  const [, ipv6, ipv4] = /^(?:\[([^[\]:]*:[^[\]]*)\]|([\d.]+))(?::(?:\d{1,5}|_[\w.-]+))?$/.exec(text) ?? []
  return canonicalAddress(ipv6 ?? ipv4 ?? text)
}
