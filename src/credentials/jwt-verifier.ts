/**
 * JSON Web Tokens that others issue: is one good, and whose is it? jose does the cryptography; here stands what it is
 * to be asked (RFC 8725): algorithms, issuer and audience are always named, `exp` is always required, and whatever a
 * token says of where its key is (`jwk`, `jku`, `x5u`) is never looked at. A refused token is a value, never an error.
 */
import {
  type CryptoKey,
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  decodeProtectedHeader,
  errors,
  type JWTHeaderParameters,
  type JWTPayload,
  jwtVerify,
} from 'jose'
import { ConfigError } from '../config/config-error.ts'
import { isConsumerName } from '../config/forms.ts'
import type { JwtIssuer, JwtVerifier, RefusedToken, VerifiedToken } from '../config/jwt-method.ts'
import { escaped } from '../store/escape.ts'

/**
 * Servers take header lines of 8 KB (nginx) to 16 KB (Node) and tokens have one or two: a longer one is not a token, and
 * would cost its decoding and hashing before the signature could say so.
 */
const MAX_TOKEN_LENGTH = 8192

export interface JwtVerifierOptions {
  /** Of an issuer with a secret: the value of its variable. */
  secret?: string | undefined
  fetch?: typeof fetch
  /** ms */
  now?: () => number
}

/**
 * Make one per isolate and issuer: it remembers the issuer's keys.
 * @throws ConfigError naming the variable, never its value, when the secret is missing or too short
 */
export function createJwtVerifier(
  issuer: JwtIssuer,
  { secret, fetch, now = Date.now }: JwtVerifierOptions,
): JwtVerifier {
  const keys =
    'jwks' in issuer.keys
      ? remoteKeys(issuer.keys.jwks, { fetch, now })
      : secretKeys(checkedSecret(issuer.keys.secret, issuer.algorithms, secret))
  const expected = {
    algorithms: [...issuer.algorithms],
    issuer: issuer.issuer,
    audience: [...issuer.audience],
    requiredClaims: ['exp'],
    clockTolerance: issuer.clockToleranceSeconds,
  }
  return {
    async verify(token) {
      if (token.length > MAX_TOKEN_LENGTH)
        return refused('invalid', `longer than ${MAX_TOKEN_LENGTH} characters`)
      try {
        const { payload } = await jwtVerify(token, keys, { ...expected, currentDate: new Date(now()) })
        return await readClaims(payload, issuer)
      } catch (error) {
        return refusal(error)
      }
    },
  }
}

/** Whose token it is, once it is known to be good. */
export async function readClaims(
  claims: JWTPayload,
  issuer: JwtIssuer,
): Promise<VerifiedToken | RefusedToken> {
  const name = issuer.consumerClaims.find(name => textOf(claims[name]) !== undefined)
  if (name === undefined) return refused('invalid', `no consumer in ${issuer.consumerClaims.join(', ')}`)
  const claim = textOf(claims[name])!
  if (issuer.sharesConsumers && !isConsumerName(claim))
    return refused('invalid', `${name} is not a consumer name`)
  const consumer = issuer.sharesConsumers ? claim : jwtConsumer(issuer.name, claim)
  const plan = planOf(claims, issuer)
  return { kind: 'verified', consumer, ...(plan !== undefined && { plan }), claims }
}

/** Numbers beyond 2^53 were rounded when the token was parsed: two consumers would become one. */
function textOf(claim: unknown): string | undefined {
  if (typeof claim === 'string') return claim || undefined
  return Number.isSafeInteger(claim) ? String(claim) : undefined
}

function planOf(claims: JWTPayload, { planClaim, plans }: JwtIssuer): string | undefined {
  const plan = planClaim === undefined ? undefined : textOf(claims[planClaim])
  return plan !== undefined && Object.hasOwn(plans, plan) ? plans[plan] : plan
}

/**
 * The consumer that a claim of an issuer stands for: `auth0~alice%40example.com`. No name of a consumer of API keys has
 * a `~`, and no escaped claim, so no issuer can name another's.
 */
export function jwtConsumer(name: string, claim: string): string {
  return `${name}~${escaped(claim)}`
}

/**
 * Who issued the token by its own word, which only chooses the issuer that verifies it. Undefined: no JWT by its form,
 * or one that names no consumer.
 */
export function issuerOf(token: string): string | undefined {
  if (token.length > MAX_TOKEN_LENGTH) return undefined
  // The signature may be missing: an unsigned token (`none`) is a JWT too, and its issuer is to refuse it.
  if (!/^[\w-]+\.[\w-]+\.[\w-]*$/.test(token)) return undefined
  try {
    decodeProtectedHeader(token)
    const { iss } = decodeJwt(token)
    return typeof iss === 'string' ? iss : undefined
  } catch {
    return undefined
  }
}

/** Finds the key for a token whose algorithm is one of the issuer's; what the signature is worth is not known yet. */
type Keys = (header: JWTHeaderParameters) => Promise<CryptoKey>

/** Imported once for each algorithm. */
function secretKeys(secret: string): Keys {
  const bytes = new TextEncoder().encode(secret)
  const imported: Record<string, CryptoKey> = {}
  return async ({ alg }) => {
    const algorithm = { name: 'HMAC', hash: `SHA-${alg.slice(2)}` }
    imported[alg] ??= await crypto.subtle.importKey('raw', bytes, algorithm, false, ['verify'])
    return imported[alg]
  }
}

/** RFC 7518, section 3.2: a secret is at least as long as the hash. A shorter one can be guessed offline. */
function checkedSecret(variable: string, algorithms: readonly string[], secret: string | undefined): string {
  if (!secret) {
    const message = `is missing. Set it in the environment, or for a deployment: npx wrangler secret put ${variable}`
    throw new ConfigError([{ path: variable, message }])
  }
  const longest = [...algorithms].sort().at(-1)!
  const least = Number(longest.slice(2)) / 8
  if (new TextEncoder().encode(secret).length < least) {
    const message = `is too short for ${longest}: use at least ${least} random bytes (RFC 7518, section 3.2).`
    throw new ConfigError([{ path: variable, message }])
  }
  return secret
}

const FETCH_TIMEOUT_MS = 3000
/** After that they are fetched again, so that what the issuer withdrew is noticed. */
const REFRESH_MS = 10 * 60e3
/** Stale if error: for so long keys go on being used that cannot be fetched again. */
const MAX_AGE_MS = 60 * 60e3
/** An unknown key may be a new one, but anybody can make up names of keys. */
const UNKNOWN_KEY_COOL_DOWN_MS = 30e3
const FAILURE_COOL_DOWN_MS = 5e3
/** Requests that fetch at the same time for what may be nothing. */
const FEW_FETCHES = 8

/**
 * The key set at a URL. jose fetches it, reads it and remembers the keys it imported; when to fetch is decided here,
 * because jose forgets keys that it cannot fetch again and does not cool down after a failure. (So neither of its own
 * two reasons to fetch is ever given.)
 *
 * In workerd no request may wait for the I/O of another, and a request that is cancelled takes its fetch with it. So
 * requests share plain data and imported keys only: where there is a WebSocketPair jose drops a pending fetch instead of
 * joining it (isCloudflareWorkers in its jwks/remote.js), each request that needs the keys fetches them itself, and a
 * fetch counts as ended when its time is over, whether or not it said so. test/credentials/jwt-workerd.test.ts
 */
function remoteKeys(
  url: string,
  { fetch, now }: { fetch: typeof globalThis.fetch | undefined; now: () => number },
): Keys {
  const remote = createRemoteJWKSet(new URL(url), {
    timeoutDuration: FETCH_TIMEOUT_MS,
    cacheMaxAge: Infinity,
    cooldownDuration: Infinity,
    ...(fetch && { [customFetch]: (url: string, init: RequestInit) => fetch(url, init) }),
  })
  let fetchedAt = -Infinity
  let failedAt = -Infinity
  let failure = 'not fetched yet'
  /** Beginnings of fetches that have not ended, as far as is known. */
  let inFlight: number[] = []

  const areKnown = () => now() < fetchedAt + MAX_AGE_MS

  async function refresh(mostAtOnce: number): Promise<void> {
    const begun = now()
    inFlight = inFlight.filter(other => begun < other + FETCH_TIMEOUT_MS)
    if (begun < failedAt + FAILURE_COOL_DOWN_MS || inFlight.length >= mostAtOnce) return
    inFlight.push(begun)
    try {
      await remote.reload()
      fetchedAt = Math.max(fetchedAt, begun)
    } catch (error) {
      failedAt = now()
      failure = `${codeOf(error)}: ${error instanceof errors.JOSEError ? error.message : 'no reply'}`
    } finally {
      const own = inFlight.indexOf(begun)
      if (own >= 0) inFlight.splice(own, 1)
    }
  }

  return async header => {
    if (now() >= fetchedAt + REFRESH_MS) {
      // With keys at hand one request asks for new ones and the others do not wait. Without, each needs them.
      await refresh(areKnown() ? 1 : failedAt > fetchedAt ? FEW_FETCHES : Infinity)
    }
    if (!areKnown()) throw new KeysUnavailable(failure)
    try {
      return await remote(header)
    } catch (error) {
      const isUnknown = error instanceof errors.JWKSNoMatchingKey
      if (!isUnknown || now() < fetchedAt + UNKNOWN_KEY_COOL_DOWN_MS) throw error
      await refresh(FEW_FETCHES)
      return await remote(header)
    }
  }
}

/** Says why in its message. */
class KeysUnavailable extends Error {}

function refusal(error: unknown): RefusedToken {
  if (error instanceof KeysUnavailable) return refused('unavailable', error.message)
  // jose looks at exp last, once signature, issuer and audience were good.
  if (error instanceof errors.JWTExpired) return refused('expired', codeOf(error))
  // Not the message: it can quote the token's header.
  const claim = error instanceof errors.JWTClaimValidationFailed ? ` (${error.claim} ${error.reason})` : ''
  return refused('invalid', codeOf(error) + claim)
}

function refused(reason: RefusedToken['reason'], detail: string): RefusedToken {
  return { kind: 'refused', reason, detail }
}

function codeOf(error: unknown): string {
  if (error instanceof errors.JOSEError) return error.code
  return error instanceof Error ? error.name : 'unknown'
}
