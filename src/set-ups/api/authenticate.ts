/** What the API replies to a request without a sufficient service token. */
import { looksLikeServiceToken, readServiceToken } from '../../credentials/service-token.ts'
import type { Scope } from '../../scopes.ts'
import { ApiError } from './problems.ts'
import { changeState, storeError } from './store-error.ts'
import type { TokenRefusal } from './token-check.ts'

const CHALLENGE = 'Bearer realm="sluice"'

/** The token of a request. @throws ApiError for a request without one, and for a text that cannot be one: without a trip */
export function readBearer({ headers }: Request): string {
  const token = bearerOf(headers)
  if (token === undefined) throw refusalError({ ok: false, reason: 'missing' })
  if (readServiceToken(token)) return token
  if (!looksLikeServiceToken(token))
    throw unauthenticated('This is not a service token (slt_…). API keys are only for GET usage.')
  throw refusalError({ ok: false, reason: 'malformed' })
}

/** @throws ApiError for a service token where the credential of a caller is expected, so that it is not taken for a guess */
export function refuseServiceToken({ headers }: Request): void {
  if (readServiceToken(bearerOf(headers) ?? ''))
    throw unauthenticated("This is a service token. GET usage needs the caller's own API key.")
}

const bearerOf = (headers: Headers): string | undefined =>
  /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1]

export function refusalError({ reason, retryAfterMs = 1000, needed = [], failure }: TokenRefusal): ApiError {
  switch (reason) {
    case 'missing':
      return unauthenticated('Send a service token: Authorization: Bearer slt_….', CHALLENGE)
    case 'malformed':
      return unauthenticated(
        'This is not a service token of this deployment. Check that it was copied whole.',
      )
    case 'unknown':
      return unauthenticated('This token never existed, has expired, or was revoked. Use another one.')
    case 'scope':
      return scopeError(needed)
    case 'too-many':
      return new ApiError('too-many-guesses', 'Too many invalid tokens were sent from this address. Wait.', {
        headers: { 'retry-after': String(Math.max(1, Math.ceil(retryAfterMs / 1000))) },
      })
    case 'store':
      return storeError(failure ? changeState(failure.fate) : 'none', failure?.cause)
  }
}

/** @param what needs any one of the scopes */
export function scopeError(needed: readonly Scope[], what = 'This'): ApiError {
  const scopes = needed.join(' or ')
  return new ApiError('forbidden', `${what} needs a token with the scope ${scopes}.`, {
    headers: { 'www-authenticate': `${CHALLENGE}, error="insufficient_scope", scope="${needed.join(' ')}"` },
    extra: { scope: scopes },
  })
}

const unauthenticated = (detail: string, challenge = `${CHALLENGE}, error="invalid_token"`) =>
  new ApiError('unauthenticated', detail, { headers: { 'www-authenticate': challenge } })
