/**
 * The table of the request headers that a client cannot send to the origin. Origins, and the frameworks and servers that they run on,
 * trust them, because a proxy sets them. A client could otherwise choose its address, its user, or the path that an origin routes by.
 */
import type { Credentials } from '../../config/compile.ts'
import { foldHeaderName } from '../http/header-names.ts'

/**
 * Names in lower case, by what they would tell the origin. `*`, at the start or the end, stands for any characters. docs/security.md shows
 * this table (`npm run reference`).
 *
 * Not in it: names that many APIs give to headers of their own (X-User-Id), assertions with a signature that the origin can check, and what
 * Cloudflare's edge sets, if it is not the address.
 */
export const REMOVED_HEADERS = {
  caller: ['x-consumer-*', 'sluice-*', 'x-request-id'],
  address: [
    ...['forwarded', '*forwarded-*', 'x-forwarded', 'x-forward-for', 'x-original-for', 'x-original-ip'],
    ...['*client-ip', '*clientip', '*real-ip', '*connecting-ip', 'cf-connecting-ipv6', 'cf-pseudo-ipv4'],
    ...['*remote-addr', '*remote-ip', '*src-ip', 'proxy-ip', 'x-appengine-user-ip', 'x-azure-socketip'],
    ...['x-originating-ip', 'x-proxyuser-ip', 'x-nf-client-connection-ip', 'x-vercel-proxied-for'],
    ...['x-envoy-external-address', 'cloudfront-viewer-address', 'x-coming-from', 'coming-from'],
  ],
  url: [
    ...['x-original-url', 'x-original-uri', 'x-original-path', 'x-original-prefix', 'x-original-method'],
    ...['x-original-host', 'x-original-proto', 'x-original-scheme', 'x-original-port', 'x-rewrite-url'],
    ...['x-envoy-original-*', 'x-waws-unencoded-url', 'x-replaced-path', 'x-matched-path', 'x-middleware-*'],
    ...['x-now-route-matches', 'x-invoke-*', 'base-url', 'path-info', 'script-name', 'x-script-name'],
    ...['x-host', 'x-http-host-override', 'disguised-host', 'x-scheme', 'x-url-scheme', 'x-proxied-https'],
    ...['x-arr-ssl', 'front-end-https', 'wl-proxy-ssl'],
  ],
  user: [
    ...['*remote-user', 'x-remote-*', 'remote-name', 'remote-email', 'remote-groups', 'x-webauth-*'],
    ...['x-auth-request-*', 'x-authenticated-*', 'x-authentik-*', 'x-vouch-*', 'x-pomerium-claim-*'],
    ...['x-credential-*', 'x-anonymous-consumer', '*-userinfo', 'x-ms-client-principal*', '$ws*', 'shib-*'],
    ...['oidc-claim-*', 'tailscale-user-*'],
    ...[
      'x-goog-authenticated-user-*',
      'x-amzn-oidc-identity',
      'sm-user*',
      'iv-user',
      'iv-groups',
      'iv-creds',
    ],
  ],
  certificate: [
    ...['client-cert', 'client-cert-chain', 'x-client-cert*', 'x-client-verify', 'x-client-dn'],
    ...['*ssl-client-*', 'x-ssl-cert*', 'x-tls-client-*', 'x-amzn-mtls-*', 'x-arr-clientcert'],
    ...['wl-proxy-client-*', 'proxy-auth-cert', 'proxy-ssl-id'],
  ],
  settings: ['proxy', 'x-sendfile-type', 'x-accel-mapping'],
} as const satisfies Record<string, readonly string[]>

const names: readonly string[] = Object.values(REMOVED_HEADERS).flat()

/** One expression of the names whose pattern begins with a star, or not. With `.*` in place of stars, a long name would take 2 ms. */
const expressionOf = (beginsWithStar: boolean) =>
  names
    .filter(name => name.includes('*') && name.startsWith('*') === beginsWithStar)
    .map(name =>
      name
        .replace('$', '-')
        .replace(/([^*])$/, '$1$')
        .replaceAll('*', ''),
    )
    .join('|')

const exactNames = new Set(names)
const starts = new RegExp(`^(${expressionOf(false)})`)
const others = new RegExp(expressionOf(true))

const isInTable = (folded: string) => exactNames.has(folded) || starts.test(folded) || others.test(folded)

/** Hop-by-hop headers of RFC 9110, section 7.6.1, and older ones. */
const HOP_BY_HOP = new Set([
  ...['connection', 'keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade'],
])

export const isHopByHop = (name: string) => HOP_BY_HOP.has(name)

/** Headers that stay in their own spelling: what frames the body, and subprotocols, without keys (credential-headers.ts). */
const KEPT = new Set(['content-length', 'sec-websocket-protocol'])

interface KnownName {
  folded: string
  isRemoved: boolean
}

/** Names that were read before, because reading one takes longer than everything else that is done with it. */
const known = new Map<string, KnownName>()
const MAX_KNOWN = 1000
/** Clients choose names, so longer ones are not kept. In characters. */
const MAX_KNOWN_LENGTH = 64

function readName(name: string): KnownName {
  const before = known.get(name)
  if (before) return before
  const folded = foldHeaderName(name)
  // Servers that pass headers on as variables take another spelling for the name itself.
  const isSpelledOtherwise = name !== folded && KEPT.has(folded)
  const read = { folded, isRemoved: isSpelledOtherwise || isHopByHop(folded) || isInTable(folded) }
  if (name.length <= MAX_KNOWN_LENGTH) {
    if (known.size >= MAX_KNOWN) known.clear()
    known.set(name, read)
  }
  return read
}

/**
 * Whether a request header of the client is removed because of its name, in any spelling.
 *
 * @param name in lower case, as in `Headers`
 */
export function isRemovedName(name: string, credentials: Credentials): boolean {
  const { folded, isRemoved } = readName(name)
  const own = ownNamesOf(credentials).get(folded)
  return own === undefined ? isRemoved : !(credentials.forward && name === own)
}

const ownNames = new WeakMap<Credentials, ReadonlyMap<string, string>>()

/**
 * Headers that contain nothing but credentials for the gateway, by their folded names. `removeCredentials` treats headers that also contain
 * other things. Cached: a config has one object of settings.
 */
function ownNamesOf(credentials: Credentials): ReadonlyMap<string, string> {
  let own = ownNames.get(credentials)
  if (!own) {
    const { opaqueKeys, jwt } = credentials
    const named = ['x-api-key', opaqueKeys?.header, ...[...jwt.values()].map(({ header }) => header)]
    own = new Map(
      named.filter(header => header !== undefined).map(header => [foldHeaderName(header), header]),
    )
    ownNames.set(credentials, own)
  }
  return own
}
