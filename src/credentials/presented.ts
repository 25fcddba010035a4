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
  const bearer = /^Bearer\s+(.+)$/i.exec(headers.get('authorization') ?? '')?.[1]?.trim()
  return { ...(apiKey !== null && { apiKey: apiKey.trim() }), ...(bearer && { bearer }) }
}

/** Takes every credential of ours out, also one that was not looked at because another came first. */
export function removeCredentials(
  headers: Headers,
  credentials: Credentials,
  used: string | undefined,
): void {
  headers.delete('x-api-key')
  const { opaqueKeys, keyPrefix } = credentials
  if (opaqueKeys?.header) headers.delete(opaqueKeys.header)
  if (used && used !== 'authorization') headers.delete(used)
  // At the beginning of a word, so that an origin's own token that holds these letters is left alone.
  const ourKey = new RegExp(`(^|[\\s,"])${keyPrefix}_`)
  const authorization = headers.get('authorization') ?? ''
  if (used === 'authorization' || ourKey.test(authorization)) headers.delete('authorization')
}
