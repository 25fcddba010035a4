/**
 * Verifies JSON Web Tokens of an issuer, and reads consumer and plan from them. jose does the cryptography. This file
 * sets the checks (RFC 8725): algorithms, issuer and audience are always given, `exp` is always required, and
 * keys that the token itself contains or links to (`jwk`, `jku`, `x5u`) are ignored. A refused token is a return value, not
 * an error.
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
import { latestOf } from '../clock.ts'
import { type CallerMode, isCallerMode } from '../config/caller-mode.ts'
import { ConfigError } from '../config/config-error.ts'
import { isConsumerName } from '../config/forms.ts'
import type { JwtIssuer, JwtVerifier, RefusedToken, VerifiedToken } from '../config/jwt-method.ts'
import { escaped } from '../store/escape.ts'

/**
 * Servers accept header lines of 8 KB (nginx) to 16 KB (Node), and a token is one or two KB long. A longer text is refused
 * before it is decoded and hashed.
 */
const MAX_TOKEN_LENGTH = 8192

export interface JwtVerifierOptions {
  /** The value of the issuer's secret variable, for issuers with a secret. */
  secret?: string | undefined
  fetch?: typeof fetch
  /** The time in ms since the epoch. */
  now?: () => number
}

/**
 * Creates the verifier of one issuer in an isolate. It caches the issuer's keys.
 *
 * @throws ConfigError naming the variable, never its value, if the secret is missing or too short
 */
export function createJwtVerifier(
  issuer: JwtIssuer,
  { secret, fetch, now = Date.now }: JwtVerifierOptions,
): JwtVerifier {
  const keys =
    'jwks' in issuer.keys
      ? createRemoteKeys(issuer.keys.jwks, { fetch, now })
      : createSecretKeys(checkSecret(issuer.keys.secret, issuer.algorithms, secret))
  const expected = { algorithms: [...issuer.algorithms], ...expectedClaims(issuer) }
  return {
    async verify(token) {
      if (token.length > MAX_TOKEN_LENGTH)
        return refuse('malformed', `longer than ${MAX_TOKEN_LENGTH} characters`)
      try {
        const { payload } = await jwtVerify(token, keys, { ...expected, currentDate: new Date(now()) })
        return await readClaims(payload, issuer)
      } catch (error) {
        return refuseFor(error)
      }
    },
  }
}

/** What jose checks the claims of a token against. */
export function expectedClaims({ issuer, audience, clockToleranceSeconds: clockTolerance }: JwtIssuer) {
  return { issuer, audience: [...audience], requiredClaims: ['exp'], clockTolerance }
}

/** Reads consumer and plan from the claims of a verified token. Refuses a token without a consumer. */
export async function readClaims(
  claims: JWTPayload,
  issuer: JwtIssuer,
): Promise<VerifiedToken | RefusedToken> {
  const name = issuer.consumerClaims.find(name => claimText(claims[name]) !== undefined)
  if (name === undefined) return refuse('no-consumer', `no consumer in ${issuer.consumerClaims.join(', ')}`)
  const claim = claimText(claims[name])!
  if (issuer.sharesConsumers && !isConsumerName(claim))
    return refuse('no-consumer', `${name} is not a consumer name`)
  const consumer = issuer.sharesConsumers ? claim : jwtConsumer(issuer.name, claim)
  const plan = planOf(claims, issuer)
  const mode = modeOf(claims, issuer)
  if (!mode) return refuse('bad-claim', `${issuer.modeClaim} is neither live nor test`)
  return { kind: 'verified', consumer, mode, ...(plan !== undefined && { plan }), claims }
}

/** A claim as text. @returns undefined also for numbers beyond 2^53: parsing rounds them, so two consumers could become one */
function claimText(claim: unknown): string | undefined {
  if (typeof claim === 'string') return claim || undefined
  return Number.isSafeInteger(claim) ? String(claim) : undefined
}

function planOf(claims: JWTPayload, { planClaim, plans }: JwtIssuer): string | undefined {
  const plan = planClaim === undefined ? undefined : claimText(claims[planClaim])
  return plan !== undefined && Object.hasOwn(plans, plan) ? plans[plan] : plan
}

/** @returns undefined for a value that is not a mode: it must not spend a live budget */
function modeOf(claims: JWTPayload, { modeClaim, modes }: JwtIssuer): CallerMode | undefined {
  const claim = modeClaim === undefined ? undefined : claims[modeClaim]
  if (claim === undefined) return 'live'
  const text = typeof claim === 'boolean' ? String(claim) : (claimText(claim) ?? '')
  const mode = Object.hasOwn(modes, text) ? modes[text] : text
  return isCallerMode(mode) ? mode : undefined
}

/**
 * Names the consumer of a claim: `auth0~alice%40example.com`. Neither consumers of API keys nor escaped claims
 * contain a `~`, so no issuer can name the consumer of another one.
 */
export function jwtConsumer(name: string, claim: string): string {
  return `${name}~${escaped(claim)}`
}

/**
 * Reads the issuer that a token claims, which only selects the issuer that verifies it.
 *
 * @returns undefined if the text is not a JWT or has no issuer
 */
export function issuerOf(token: string): string | undefined {
  if (token.length > MAX_TOKEN_LENGTH) return undefined
  // The signature may be missing: an unsigned token (`none`) is a JWT too, and its issuer must refuse it.
  if (!/^[\w-]+\.[\w-]+\.[\w-]*$/.test(token)) return undefined
  try {
    decodeProtectedHeader(token)
    const { iss } = decodeJwt(token)
    return typeof iss === 'string' ? iss : undefined
  } catch {
    return undefined
  }
}

/** Finds the key for a token. Its algorithm is one of the issuer's; the signature is not verified yet. */
type KeyFinder = (header: JWTHeaderParameters) => Promise<CryptoKey>

/** Imports the secret once for each algorithm. */
function createSecretKeys(secret: string): KeyFinder {
  const bytes = new TextEncoder().encode(secret)
  const imported: Record<string, CryptoKey> = {}
  return async ({ alg }) => {
    const algorithm = { name: 'HMAC', hash: `SHA-${alg.slice(2)}` }
    imported[alg] ??= await crypto.subtle.importKey('raw', bytes, algorithm, false, ['verify'])
    return imported[alg]
  }
}

/** A secret must be at least as long as the hash (RFC 7518, section 3.2): a shorter one can be guessed offline. */
function checkSecret(variable: string, algorithms: readonly string[], secret: string | undefined): string {
  if (!secret) {
    const message = `is missing. Set it in the environment, or for a deployment: npx wrangler secret put ${variable}`
    throw new ConfigError([{ path: variable, message }])
  }
  const strongest = [...algorithms].sort().at(-1)!
  const minBytes = Number(strongest.slice(2)) / 8
  if (new TextEncoder().encode(secret).length < minBytes) {
    const message = `is too short for ${strongest}: use at least ${minBytes} random bytes (RFC 7518, section 3.2).`
    throw new ConfigError([{ path: variable, message }])
  }
  return secret
}

const FETCH_TIMEOUT_MS = 3000
/** Cached keys are fetched again after this time, so that keys the issuer has withdrawn stop working. */
const REFRESH_MS = 10 * 60e3
/** Cached keys are used for this long if they cannot be fetched again (stale-if-error). */
const MAX_AGE_MS = 60 * 60e3
/** For this long after a fetch, an unknown key id causes no other one. It may belong to a new key, but clients can also make ids up. */
const UNKNOWN_KEY_COOL_DOWN_MS = 30e3
const FAILURE_COOL_DOWN_MS = 5e3
/** Concurrent fetches that may be in vain: after a failure, or for an unknown key id. */
const MAX_SPECULATIVE_FETCHES = 8

/**
 * The key set at a URL. jose fetches and parses it and caches the imported keys. This function decides when to fetch,
 * because jose drops keys that it cannot fetch again and has no cool-down after a failure. The durations passed to
 * jose keep it from fetching by itself.
 *
 * In workerd no request may wait for the I/O of another, and a cancelled request takes its fetch with it. So requests
 * share only plain data and imported keys. Where there is a WebSocketPair, jose drops a pending fetch instead of
 * joining it (isCloudflareWorkers in its jwks/remote.js). Each request that needs the keys fetches them itself, and a
 * fetch counts as ended once its timeout has passed, even if it did not report its end. Tested in
 * test/credentials/jwt-workerd.test.ts.
 */
function createRemoteKeys(
  url: string,
  { fetch, now: clock }: { fetch: typeof globalThis.fetch | undefined; now: () => number },
): KeyFinder {
  const remote = createRemoteJWKSet(new URL(url), {
    timeoutDuration: FETCH_TIMEOUT_MS,
    cacheMaxAge: Infinity,
    cooldownDuration: Infinity,
    ...(fetch && { [customFetch]: (url: string, init: RequestInit) => fetch(url, init) }),
  })
  let fetchedAt = -Infinity
  let failedAt = -Infinity
  let failure = 'not fetched yet'
  /** Start times of fetches that have not ended, as far as is known. */
  let inFlight: number[] = []
  // After the clock was set back, cached keys would be used for longer, and a cool-down would last longer.
  const now = latestOf(clock, () => {
    fetchedAt = failedAt = -Infinity
    inFlight = []
  })

  const hasUsableKeys = () => now() < fetchedAt + MAX_AGE_MS

  async function refresh(maxAtOnce: number): Promise<void> {
    const startedAt = now()
    inFlight = inFlight.filter(other => startedAt < other + FETCH_TIMEOUT_MS)
    if (startedAt < failedAt + FAILURE_COOL_DOWN_MS || inFlight.length >= maxAtOnce) return
    inFlight.push(startedAt)
    try {
      await remote.reload()
      fetchedAt = Math.max(fetchedAt, Math.min(startedAt, now()))
    } catch (error) {
      failedAt = now()
      failure = `${codeOf(error)}: ${error instanceof errors.JOSEError ? error.message : 'no reply'}`
    } finally {
      const own = inFlight.indexOf(startedAt)
      if (own >= 0) inFlight.splice(own, 1)
    }
  }

  return async header => {
    if (now() >= fetchedAt + REFRESH_MS) {
      // With cached keys, one request fetches new ones and the others do not wait. Without, each request needs them.
      await refresh(hasUsableKeys() ? 1 : failedAt > fetchedAt ? MAX_SPECULATIVE_FETCHES : Infinity)
    }
    if (!hasUsableKeys()) throw new KeysUnavailable(failure)
    try {
      return await remote(header)
    } catch (error) {
      const isUnknown = error instanceof errors.JWKSNoMatchingKey
      if (!isUnknown || now() < fetchedAt + UNKNOWN_KEY_COOL_DOWN_MS) throw error
      await refresh(MAX_SPECULATIVE_FETCHES)
      return await remote(header)
    }
  }
}

/** The message has the cause. */
class KeysUnavailable extends Error {}

/** @param error of jose, which checks the claims only after the signature was valid */
export function refuseFor(error: unknown): RefusedToken {
  if (error instanceof KeysUnavailable) return refuse('unverifiable', error.message)
  // The message is left out, because it can quote the header of the token.
  if (error instanceof errors.JWTClaimValidationFailed)
    return refuse(reasonOfClaim(error), `${codeOf(error)} (${error.claim} ${error.reason})`)
  return refuse(REASONS.get(codeOf(error)) ?? 'malformed', codeOf(error))
}

function reasonOfClaim({ claim, reason }: errors.JWTClaimValidationFailed): RefusedToken['reason'] {
  if (claim === 'aud') return 'wrong-audience'
  if (claim === 'iss') return 'wrong-issuer'
  return claim === 'nbf' && reason === 'check_failed' ? 'not-yet-valid' : 'bad-claim'
}

const REASONS: ReadonlyMap<string, RefusedToken['reason']> = new Map([
  [errors.JWTExpired.code, 'expired'],
  [errors.JOSEAlgNotAllowed.code, 'wrong-algorithm'],
  [errors.JWKSNoMatchingKey.code, 'unknown-signing-key'],
  [errors.JWKSMultipleMatchingKeys.code, 'unknown-signing-key'],
  [errors.JWSSignatureVerificationFailed.code, 'bad-signature'],
])

export function refuse(reason: RefusedToken['reason'], detail: string): RefusedToken {
  return { kind: 'refused', reason, detail }
}

function codeOf(error: unknown): string {
  if (error instanceof errors.JOSEError) return error.code
  return error instanceof Error ? error.name : 'unknown'
}
