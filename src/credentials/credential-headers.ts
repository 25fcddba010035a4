/**
 * Reads the credential headers of a request, and removes them before the request goes to the origin. No I/O, and no
 * secret is kept.
 */
import type { Credentials } from '../config/compile.ts'

/** The credentials of a request, by the header that they were sent in. */
export interface CredentialHeaders {
  apiKey?: string
  bearer?: string
}

/**
 * Reads `X-API-Key` and `Authorization: Bearer`. The values of a header that was sent twice are joined with a comma and a space. No
 * credential contains a space, so the result is refused as malformed.
 */
export function readCredentialHeaders(headers: Headers): CredentialHeaders {
  const apiKey = headers.get('x-api-key')
  const authorization = headers.get('authorization')
  const bearer = authorization === null ? null : /^Bearer\s+(\S.*)$/i.exec(authorization)?.[1]?.trim()
  return { ...(apiKey !== null && { apiKey: apiKey.trim() }), ...(bearer && { bearer }) }
}

/**
 * Removes the credentials for the gateway from headers that may also contain something for the origin: also those that were not checked
 * because another one came first. Headers with nothing but a credential are removed by their names (removed-headers.ts).
 *
 * @param used the header of the credential that identified the caller, in lower case
 */
export function removeCredentials(
  headers: Headers,
  credentials: Credentials,
  used: string | undefined,
): void {
  const authorization = headers.get('authorization')
  if (authorization !== null && (used === 'authorization' || isForGateway(authorization, credentials)))
    headers.delete('authorization')
  change(headers, 'sec-websocket-protocol', protocols => withoutKeys(protocols, credentials))
  const readsAccess = [...credentials.jwt.values()].some(({ header }) => header === ACCESS_HEADER)
  if (readsAccess) change(headers, 'cookie', withoutAccessCookie)
}

function change(headers: Headers, name: string, changed: (value: string) => string): void {
  const value = headers.get(name)
  if (value === null) return
  const rest = changed(value)
  if (rest === '') headers.delete(name)
  else if (rest !== value) headers.set(name, rest)
}

/** How a WebSocket subprotocol begins that contains a key (`credentials.webSocketKeys`). */
export const KEY_PROTOCOL = 'sluice-key.'

/** The other subprotocols. Clients also offer keys to gateways that do not read them there, and some without `sluice-key.`. */
function withoutKeys(protocols: string, { keyPrefix }: Credentials): string {
  const isKey = (name: string) => name.startsWith(KEY_PROTOCOL) || name.startsWith(`${keyPrefix}_`)
  const names = protocols.split(',').map(name => name.trim())
  return names.some(isKey) ? names.filter(name => !isKey(name)).join(', ') : protocols
}

/** Cloudflare Access sends the same token in both places. */
const ACCESS_HEADER = 'cf-access-jwt-assertion'
const ACCESS_COOKIE = /(^|[;,])\s*CF_Authorization=[^;,]*/g

/**
 * The other cookies. Workers join a second line of the header with a comma, and nothing tells it from a comma in a value. So commas stay as
 * they are: to read each as the end of a cookie would let anyone who chooses a part of a value add a cookie.
 */
function withoutAccessCookie(cookies: string): string {
  const rest = cookies.replace(ACCESS_COOKIE, '')
  return rest === cookies ? cookies : rest.replace(/^[;,]\s*/, '')
}

/**
 * Words that begin like a JWT (RFC 7515, section 7.1), whatever follows: some libraries ignore padding and other characters at the end of a
 * signature, so the origin might accept what the gateway refuses.
 */
const TOKENS = /(?<![\w.-])[\w-]+\.[\w-]+\.[\w-]*/g

/** A header with more tokens is removed unread, because each one has to be decoded to know its issuer. */
const MAX_TOKENS = 4

/**
 * Whether the header Authorization is meant for the gateway; a token for the origin is kept. Opaque keys cannot be
 * distinguished from such tokens, so where they are sent as bearer tokens, all bearer tokens are removed.
 */
function isForGateway(authorization: string, { keyPrefix, opaqueKeys, jwt }: Credentials): boolean {
  if (opaqueKeys && opaqueKeys.header === undefined && /^Bearer\b/i.test(authorization)) return true
  // The prefix counts only at the start of a word, because other texts may contain the same letters.
  if (authorization.split(/[\s,"]/).some(word => word.startsWith(`${keyPrefix}_`))) return true
  const issuers = [...jwt.values()].filter(({ header }) => header === undefined)
  if (issuers.length === 0) return false
  const tokens = authorization.match(TOKENS) ?? []
  if (tokens.length > MAX_TOKENS) return true
  // All issuers usually read tokens with the same function, so each token is decoded once.
  const readers = new Set(issuers.map(({ issuerOf }) => issuerOf))
  const named = new Set([...readers].flatMap(issuerOf => tokens.map(token => issuerOf(token))))
  return issuers.some(({ issuer }) => named.has(issuer))
}
