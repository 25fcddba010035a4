/** Tokens of the issuers in `credentials.jwt`: how they are found in a request and verified. */
import type { Config } from '../config/compile.ts'
import type { Issuer } from '../config/compile-credentials.ts'
import type { CredentialMethod } from '../config/compile-route.ts'
import type { JwtVerifier, RefusedToken, TokenRefusal } from '../config/jwt-method.ts'
import { sha256 } from '../sha256.ts'
import { consumerKey } from '../store/keys.ts'
import type { FindResult, RefusedCredential } from './credential.ts'
import type { CredentialHeaders } from './credential-headers.ts'

export interface Tokens {
  /** Finds and verifies the token of an issuer. @param name the method that is named after the issuer */
  find(name: CredentialMethod, sent: CredentialHeaders, headers: Headers): Promise<FindResult>
  /**
   * Refuses a text in a header in which one of these methods expects tokens, after none of them has found a token of its issuer.
   * @returns undefined if the request has no such text
   */
  refuse(
    methods: readonly CredentialMethod[],
    sent: CredentialHeaders,
    headers: Headers,
  ): RefusedCredential | undefined
  /** Describes in words how to send a token. @returns undefined if the method does not belong to an issuer */
  describe(method: CredentialMethod): string | undefined
}

/**
 * Creates the finder of tokens of an isolate.
 *
 * @param variables of the environment, including the secrets of issuers
 * @throws ConfigError naming a secret that is missing or too short
 */
export function createTokenFinder(
  { credentials: { jwt }, plans }: Pick<Config, 'credentials' | 'plans'>,
  variables: Readonly<Record<string, unknown>>,
): Tokens {
  const verifiers = new Map([...jwt.values()].map(issuer => [issuer.name, createVerifier(issuer, variables)]))

  return {
    async find(name, sent, headers) {
      const issuer = jwt.get(name)!
      const text = textFor(issuer, sent, headers)
      // Tokens of other issuers are left to other methods.
      if (text === undefined || issuer.issuerOf(text) !== issuer.issuer) return undefined
      const verified = await verifiers.get(name)!.verify(text)
      if (verified.kind === 'refused') return refusedFor(verified)
      const { consumer, plan, mode, claims } = verified
      const knownPlan = plan !== undefined && plans.includes(plan) ? { plan } : {}
      return {
        ...{ method: name, consumer, digest: sha256(signedPart(text)), mode, isVerified: true, claims },
        header: issuer.header ?? 'authorization',
        subject: { kind: 'token', consumerKey: consumerKey(consumer), ...knownPlan },
      }
    },

    refuse(methods, sent, headers) {
      const texts = methods.flatMap(method => {
        const issuer = jwt.get(method)
        const text = issuer && textFor(issuer, sent, headers)
        return text === undefined ? [] : [issuer!.issuerOf(text)]
      })
      if (texts.length === 0) return undefined
      const claimed = texts.find(name => name !== undefined)
      if (claimed === undefined) return { reason: 'malformed' }
      const isOfOther = [...jwt.values()].some(({ issuer }) => issuer === claimed)
      return isOfOther ? { reason: 'not-accepted' } : refusedFor({ reason: 'wrong-issuer' })
    },

    describe(method) {
      const issuer = jwt.get(method)
      return issuer && `a token, as ${issuer.header ? `${issuer.header}:` : 'Authorization: Bearer'} <token>`
    },
  }
}

/** One text for all causes before the signature is verified, so that a forged token does not show which issuers and keys exist. */
const UNVERIFIED =
  'The token is not accepted: its issuer, its key, its algorithm or its signature is wrong. Get a new one.'

const BAD_CLAIM = 'The token lacks a claim that this API needs, or the claim is not valid. Get a new one.'

const ADVICE: Partial<Record<TokenRefusal, string>> = {
  'wrong-issuer': UNVERIFIED,
  'wrong-algorithm': UNVERIFIED,
  'unknown-signing-key': UNVERIFIED,
  'bad-signature': UNVERIFIED,
  'wrong-audience': 'The token is for another audience. Get one for this API.',
  'not-yet-valid': 'The token is not valid yet. Try again later.',
  expired: 'The token has expired. Get a new one.',
  'bad-claim': BAD_CLAIM,
  'no-consumer': BAD_CLAIM,
}

function refusedFor({
  reason,
  detail,
}: Pick<RefusedToken, 'reason'> & { detail?: string }): RefusedCredential {
  const advice = ADVICE[reason]
  return { reason, ...(detail && { detail }), ...(advice && { advice }) }
}

function textFor({ header }: Issuer, { bearer }: CredentialHeaders, headers: Headers): string | undefined {
  return header === undefined ? bearer : headers.get(header)?.trim()
}

/**
 * What the signature of a verified token covers: its header and payload, as they are written (the JWS Signing Input, RFC 7515,
 * section 2). To change a character of it takes another signature. The signature itself has several valid spellings: the last
 * character of base64url has unused bits, and ECDSA accepts both `s` and `n - s`.
 */
function signedPart(token: string): string {
  return token.slice(0, token.lastIndexOf('.'))
}

function createVerifier(issuer: Issuer, variables: Readonly<Record<string, unknown>>): JwtVerifier {
  const secret = 'secret' in issuer.keys ? variables[issuer.keys.secret] : undefined
  return issuer.createVerifier(issuer, { secret: typeof secret === 'string' ? secret : undefined })
}
