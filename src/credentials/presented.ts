/** What a request presents as its credential, and which of it never reaches the origin. No I/O, and no secret is kept. */
import type { Credentials } from '../config/compile.ts'

/**
 * Servers take header lines of 8 KB (nginx) to 16 KB (Node) and tokens have one or two: a longer one is no token, and
 * would cost its decoding and hashing before the signature could say so.
 */
export const MAX_TOKEN_LENGTH = 8192

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

/**
 * Takes every credential of ours out, also one that was not looked at because another came first.
 * @param used the header that the caller was recognized by, in lower case
 */
export function removeCredentials(
  headers: Headers,
  credentials: Credentials,
  used: string | undefined,
): void {
  const { opaqueKeys, jwt } = credentials
  const own = [...jwt.values()].map(({ header }) => header)
  for (const name of ['x-api-key', opaqueKeys?.header, used, ...own]) if (name) headers.delete(name)
  if (isOurs(headers.get('authorization') ?? '', credentials)) headers.delete('authorization')
}

/** The parts of a header that may be a credential each, where several lines were joined. */
export function wordsOf(header: string): string[] {
  return header.split(/[\s,"]+/)
}

/** An origin's own token is left alone. */
function isOurs(authorization: string, { keyPrefix, jwt }: Credentials): boolean {
  // At the beginning of a word: the letters may stand inside of something else.
  if (new RegExp(`(^|[\\s,"])${keyPrefix}_`).test(authorization)) return true
  const words = wordsOf(authorization)
  return [...jwt.values()].some(
    ({ header, issuer, issuerOf }) => header === undefined && words.some(word => issuerOf(word) === issuer),
  )
}
