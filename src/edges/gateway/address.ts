/**
 * The client's address on each platform, and as an identity to count by. In a header that proxies append to, everything left of
 * the first address that is not a trusted proxy is ignored: a client can write anything there.
 */
import { addressText, isInRanges, isIPv4, networkOf, parseAddress } from '../../config/address-ranges.ts'
import { type AddressSettings, compileAddress } from '../../config/compile-address.ts'
import { forwardedFor } from './forwarded.ts'

/** All callers with an unknown address are counted together. */
const UNKNOWN_ADDRESS = 'unknown'

/** No deployment has more proxies in front: entries further left are not read. */
const MAX_HOPS = 50

/** 50 hops fit with room for what Forwarded says beside them. Node takes no more by default; Cloudflare takes 128 KB. */
const MAX_HEADER_LENGTH = 16_384

/** An address with brackets, zone and port is much shorter, and trimming a long text would cost time. */
const MAX_NODE_LENGTH = 128

const ON_CLOUDFLARE = compileAddress(undefined)

/**
 * The client's address in its one spelling: IPv4-mapped IPv6 as IPv4, IPv6 by RFC 5952, without port and zone.
 * @param peer the other end of the connection; undefined where the platform cannot know it. An empty text, as when the client is
 * gone, means that the address is unknown: then no header is trusted either
 */
export function clientAddress(
  request: Request,
  settings: AddressSettings = ON_CLOUDFLARE,
  peer?: string,
): string | undefined {
  switch (settings.from) {
    case 'cloudflare':
      return canonical(request.headers.get('cf-connecting-ip') ?? undefined)
    case 'peer':
      return canonical(peer)
    case 'x-forwarded-for':
    case 'forwarded': {
      // Several lines of a header are one, joined by commas.
      const header = request.headers.get(settings.from)
      return outermost(hopsFromRight(settings.from, header, peer), settings)
    }
  }
}

/**
 * The identity of an address: an IPv4 address itself, and the network of an IPv6 address. A subscriber gets at least a /64
 * (RFC 6177), so every caller would have 2^64 budgets otherwise.
 */
export function addressIdentity(address: string | undefined, ipv6Prefix = ON_CLOUDFLARE.ipv6Prefix): string {
  const parsed = address === undefined ? undefined : parseAddress(address)
  if (!parsed) return UNKNOWN_ADDRESS
  if (isIPv4(parsed)) return addressText(parsed)
  const groups = networkOf(parsed, ipv6Prefix).slice(0, Math.ceil(ipv6Prefix / 16))
  const network = groups.map(group => group.toString(16)).join(':')
  return `${network}${groups.length < 8 ? '::' : ''}/${ipv6Prefix}`
}

function canonical(address: string | undefined): string | undefined {
  const parsed = address === undefined ? undefined : parseAddress(address)
  return parsed && addressText(parsed)
}

/** The first address that is not a trusted proxy, or the last known one before a gap. */
function outermost(
  hops: Iterable<string | undefined>,
  { trustedProxies }: AddressSettings,
): string | undefined {
  let client: string | undefined
  let count = 0
  for (const hop of hops) {
    if (hop === undefined || ++count > MAX_HOPS) break
    client = hop
    if (!isInRanges(trustedProxies, hop)) break
  }
  return client
}

/** From the nearest hop to the one that the client claims; undefined for text that is not an address. */
function* hopsFromRight(
  name: 'x-forwarded-for' | 'forwarded',
  header: string | null,
  peer: string | undefined,
): Generator<string | undefined> {
  if (peer !== undefined) yield canonical(peer)
  if (header === null) return
  // Where the header is cut off, a character that no address begins with makes the cut entry invalid.
  const text = header.length > MAX_HEADER_LENGTH ? `?${header.slice(-MAX_HEADER_LENGTH)}` : header
  for (const node of name === 'forwarded' ? forwardedFor(text) : text.split(',').reverse()) {
    yield addressOfNode(node)
  }
}

/** `192.0.2.1`, `192.0.2.1:4711`, `[2001:db8::1]:4711`, `2001:db8::1`; not `unknown` or `_hidden` (RFC 7239, section 6). */
function addressOfNode(node: string | undefined): string | undefined {
  if (node === undefined || node.length > MAX_NODE_LENGTH) return undefined
  // Not trim(), which removes more than the whitespace of HTTP.
  const text = node.replace(/^[ \t]+|[ \t]+$/g, '')
  const [, ipv6, ipv4] = /^(?:\[([^[\]]*:[^[\]]*)\]|([\d.]+))(?::(?:\d{1,5}|_[\w.-]+))?$/.exec(text) ?? []
  return canonical(ipv6 ?? ipv4 ?? text)
}
