/** What the API replies to a request without a sufficient service token. */
import { looksLikeServiceToken, readServiceToken } from '../../credentials/service-token.ts'
import { hasAnyOf, type Scope } from '../../scopes.ts'
import { ApiError } from './problems.ts'

const CHALLENGE = 'Bearer realm="sluice"'

/** The bearer token of a request. */
export const bearerOf = ({ headers }: Request): string | undefined =>
  /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1]

/**
 * The environment of a token.
 * @throws ApiError for a request without a token, and for a text that cannot be one
 */
export function environmentOf(token: string | undefined): string | undefined {
  if (!token) throw unauthenticated('Send a service token: Authorization: Bearer slt_….', CHALLENGE)
  const form = readServiceToken(token)
  if (form) return form.environment
  throw unauthenticated(
    looksLikeServiceToken(token)
      ? 'This is not a service token of this deployment. Check that it was copied whole.'
      : 'This is not a service token (slt_…). API keys are only for GET usage.',
  )
}

/** @throws ApiError for a service token where the credential of a caller is expected, so that it is not taken for a guess */
export function refuseServiceToken(request: Request): void {
  if (readServiceToken(bearerOf(request) ?? ''))
    throw unauthenticated("This is a service token. GET usage needs the caller's own API key.")
}

export const unknownToken = (): ApiError =>
  unauthenticated('This token never existed, has expired, or was revoked. Use another one.')

/** @param waitMs when to try again */
export const tooManyTokens = (waitMs: number): ApiError =>
  new ApiError('too-many-guesses', 'Too many invalid tokens were sent from this address. Wait.', {
    headers: { 'retry-after': String(Math.max(1, Math.ceil(waitMs / 1000))) },
  })

/** @param what needs any one of the scopes; none: any token has enough @throws ApiError */
export function mustHaveAny(
  token: { scopes: readonly string[] },
  needed: readonly Scope[],
  what?: string,
): void {
  if (!hasAnyOf(token.scopes, needed)) throw scopeError(needed, what)
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
