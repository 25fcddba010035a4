/** What a request presents as its credential, and which of it never reaches the origin. No I/O, and no secret is kept. */
import type { Credentials } from '../config/compile.ts'

/** Where credentials may stand, by header. */
export interface Presented {
  apiKey?: string
  bearer?: string
}

/** A header that came twice was joined with a comma, which is in no credential: it is refused by its form. */
export function presentedIn(headers: Headers): Presented {
  const apiKey = headers.get('x-api-key')
  const authorization = headers.get('authorization')
  const bearer = authorization === null ? null : /^Bearer\s+(.+)$/i.exec(authorization)?.[1]?.trim()
  return { ...(apiKey !== null && { apiKey: apiKey.trim() }), ...(bearer && { bearer }) }
}

/**
 * Takes every credential of ours out, also one that was not looked at because another came first.
 * @param used the header that the caller was recognized by, in lower case
 */
export function removeCredentials(
  headers: Headers,
  credentials: Credentials,
  used: string | undefined,
): void {
  const own = ownHeaders(credentials)
  for (const name of own) headers.delete(name)
  if (used !== undefined && !own.has(used)) headers.delete(used)
  const authorization = headers.get('authorization')
  if (authorization !== null && isOurs(authorization, credentials)) headers.delete('authorization')
  if (own.has(ACCESS_HEADER)) removeCookie(headers, ACCESS_COOKIE)
}

/** By settings, of which a config has one. */
const headersOfSettings = new WeakMap<Credentials, ReadonlySet<string>>()

/** Headers that hold nothing but credentials of ours. */
function ownHeaders(credentials: Credentials): ReadonlySet<string> {
  let own = headersOfSettings.get(credentials)
  if (!own) {
    const { opaqueKeys, jwt } = credentials
    const named = [opaqueKeys?.header, ...[...jwt.values()].map(({ header }) => header)]
    own = new Set(['x-api-key', ...named.filter(header => header !== undefined)])
    headersOfSettings.set(credentials, own)
  }
  return own
}

/** Cloudflare Access sends the same token in both. */
const ACCESS_HEADER = 'cf-access-jwt-assertion'
const ACCESS_COOKIE = 'CF_Authorization'

function removeCookie(headers: Headers, name: string): void {
  const cookies = headers.get('cookie')?.split(/;\s*/)
  const others = cookies?.filter(cookie => !cookie.trim().startsWith(`${name}=`))
  if (others?.length === cookies?.length) return
  if (others?.length) headers.set('cookie', others.join('; '))
  else headers.delete('cookie')
}

/** An origin's own token is left alone. Opaque keys look like any token: where they come as bearer tokens, all are ours. */
function isOurs(authorization: string, { keyPrefix, opaqueKeys, jwt }: Credentials): boolean {
  if (opaqueKeys && opaqueKeys.header === undefined && /^Bearer\b/i.test(authorization)) return true
  // At the beginning of a word: the letters may stand inside of something else.
  if (new RegExp(`(^|[\\s,"])${keyPrefix}_`).test(authorization)) return true
  const words = authorization.split(/[\s,"]+/)
  return [...jwt.values()].some(
    ({ header, issuer, issuerOf }) => header === undefined && words.some(word => issuerOf(word) === issuer),
  )
}
