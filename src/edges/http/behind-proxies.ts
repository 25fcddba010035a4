/**
 * The client's address in a header that proxies append to: everything left of the first address that is not a trusted proxy is
 * ignored, as a client can write anything there.
 */
import { canonicalAddress, isInRanges, type Ranges } from '../../config/address-ranges.ts'
import type { AddressSettings } from '../../config/compile-address.ts'
import { forwardedFor } from './forwarded.ts'

/** No deployment has more proxies in front: entries further left are not read. */
const MAX_HOPS = 50

/** 50 hops fit with room for what Forwarded says beside them. Node takes no more by default; Cloudflare takes 128 KB. */
const MAX_HEADER_LENGTH = 16_384

/** An address with brackets, zone and port is much shorter, and trimming a long text would cost time. */
const MAX_NODE_LENGTH = 128

type ProxyHeader = Extract<AddressSettings['from'], 'x-forwarded-for' | 'forwarded'>

/** @param peer the nearest hop; undefined where the platform cannot know it */
export function addressBehindProxies(
  request: Request,
  name: ProxyHeader,
  { trustedProxies }: Pick<AddressSettings, 'trustedProxies'>,
  peer: string | undefined,
): string | undefined {
  // Several lines of a header are one, joined by commas.
  return outermost(hopsFromRight(name, request.headers.get(name), peer), trustedProxies)
}

/** The first address that is not a trusted proxy, or the last known one before a gap. */
function outermost(hops: Iterable<string | undefined>, trustedProxies: Ranges): string | undefined {
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
  name: ProxyHeader,
  header: string | null,
  peer: string | undefined,
): Generator<string | undefined> {
  if (peer !== undefined) yield canonicalAddress(peer)
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
  return canonicalAddress(ipv6 ?? ipv4 ?? text)
}
