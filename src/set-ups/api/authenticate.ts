/** What the API replies to a request without a sufficient service token. */
import { readServiceToken } from '../../credentials/service-token.ts'
import type { Scope } from '../../scopes.ts'
import { ApiError } from './problems.ts'
import { changeState, storeError } from './store-error.ts'
import type { TokenRefusal } from './token-check.ts'

const CHALLENGE = 'Bearer realm="sluice"'

/** The token of a request. @throws ApiError for a request without one, and for a text that cannot be one: without a trip */
export function readBearer({ headers }: Request): string {
  const token = /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1]
  if (token === undefined) throw refusalError({ ok: false, reason: 'missing' })
  if (!readServiceToken(token)) throw refusalError({ ok: false, reason: 'malformed' })
  return token
}

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

export function scopeError(needed: readonly Scope[]): ApiError {
  const scopes = needed.join(' or ')
  return new ApiError('forbidden', `This needs a token with the scope ${scopes}.`, {
    headers: { 'www-authenticate': `${CHALLENGE}, error="insufficient_scope", scope="${needed.join(' ')}"` },
    extra: { scope: scopes },
  })
}

const unauthenticated = (detail: string, challenge = `${CHALLENGE}, error="invalid_token"`) =>
  new ApiError('unauthenticated', detail, { headers: { 'www-authenticate': challenge } })
