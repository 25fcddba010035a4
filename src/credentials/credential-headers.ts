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
 * Removes every credential for the gateway, including those that were not checked because another one came first.
 *
 * @param used the header of the credential that identified the caller, in lower case
 */
export function removeCredentials(
  headers: Headers,
  credentials: Credentials,
  used: string | undefined,
): void {
  const own = findOwnHeaders(credentials)
  for (const name of own) headers.delete(name)
  if (used !== undefined && !own.has(used)) headers.delete(used)
  const authorization = headers.get('authorization')
  if (authorization !== null && isForGateway(authorization, credentials)) headers.delete('authorization')
  if (own.has(ACCESS_HEADER)) removeCookie(headers, ACCESS_COOKIE)
}

/** Cached: a config has one object of settings. */
const ownHeaders = new WeakMap<Credentials, ReadonlySet<string>>()

/** Headers that contain nothing but credentials for the gateway. */
function findOwnHeaders(credentials: Credentials): ReadonlySet<string> {
  let own = ownHeaders.get(credentials)
  if (!own) {
    const { opaqueKeys, jwt } = credentials
    const named = [opaqueKeys?.header, ...[...jwt.values()].map(({ header }) => header)]
    own = new Set(['x-api-key', ...named.filter(header => header !== undefined)])
    ownHeaders.set(credentials, own)
  }
  return own
}

/** Cloudflare Access sends the same token in both places. */
const ACCESS_HEADER = 'cf-access-jwt-assertion'
const ACCESS_COOKIE = 'CF_Authorization'

function removeCookie(headers: Headers, name: string): void {
  const cookies = headers.get('cookie')?.split(/;\s*/)
  const others = cookies?.filter(cookie => !cookie.trim().startsWith(`${name}=`))
  if (others?.length === cookies?.length) return
  if (others?.length) headers.set('cookie', others.join('; '))
  else headers.delete('cookie')
}

/** Words with the shape of a JWT (RFC 7515, section 7.1). */
const TOKENS = /(?<![^\s,"])[\w-]+\.[\w-]+\.[\w-]*(?![^\s,"])/g

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
