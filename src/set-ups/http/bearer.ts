/** Checks the bearer token of a request for a path of the gateway itself: a secret that is set in the gateway. */
import { sha256 } from '../../sha256.ts'
import { problem } from './problem.ts'

/** Longer tokens are refused without hashing them. */
const MAX_TOKEN_LENGTH = 1024

/**
 * @param secret the value of the variable
 * @returns undefined if there is no secret; else a function that returns the refusal of a request without the right token
 */
export function createBearerCheck(secret: unknown): ((request: Request) => Response | undefined) | undefined {
  if (typeof secret !== 'string' || secret === '') return undefined
  const digest = sha256(secret)
  return ({ headers }) => {
    const token = /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1]
    if (token === undefined) return unauthorized('missing')
    if (token.length > MAX_TOKEN_LENGTH || !isEqual(sha256(token), digest)) return unauthorized('wrong')
    return undefined
  }
}

/** Compares digests in constant time, so that the duration reveals nothing about the secret. */
function isEqual(digest: string, other: string): boolean {
  let difference = digest.length ^ other.length
  for (let i = 0; i < digest.length; i++) difference |= digest.charCodeAt(i) ^ other.charCodeAt(i)
  return difference === 0
}

function unauthorized(what: 'missing' | 'wrong'): Response {
  const challenge = 'Bearer realm="sluice"'
  return problem({
    status: 401,
    title: 'Unauthorized',
    detail: {
      missing: 'The authorization header has no bearer token. Send Authorization: Bearer <secret>.',
      wrong: 'The bearer token is not valid. Send the secret that is set in the gateway.',
    }[what],
    headers: { 'www-authenticate': what === 'missing' ? challenge : `${challenge}, error="invalid_token"` },
  })
}
