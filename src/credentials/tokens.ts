/** Tokens of the issuers in `credentials.jwt`: how they are found in a request and verified. */
import type { Config } from '../config/compile.ts'
import type { Issuer } from '../config/compile-credentials.ts'
import type { CredentialMethod } from '../config/compile-route.ts'
import type { JwtVerifier } from '../config/jwt-method.ts'
import { sha256 } from '../sha256.ts'
import { consumerKey } from '../store/keys.ts'
import type { FindResult } from './credential.ts'
import type { CredentialHeaders } from './credential-headers.ts'

const REFUSAL_REASONS = { invalid: 'malformed', expired: 'expired', unavailable: 'unverifiable' } as const

export interface Tokens {
  /** Finds and verifies the token of an issuer. @param name the method that is named after the issuer */
  find(name: CredentialMethod, sent: CredentialHeaders, headers: Headers): Promise<FindResult>
  /** Whether the request has a token in a header in which one of these methods expects tokens. */
  isSent(methods: readonly CredentialMethod[], sent: CredentialHeaders, headers: Headers): boolean
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
    async find(name, { bearer }, headers) {
      const issuer = jwt.get(name)!
      const text = issuer.header === undefined ? bearer : (headers.get(issuer.header)?.trim() ?? undefined)
      // Tokens of other issuers are left to other methods.
      if (text === undefined || issuer.issuerOf(text) !== issuer.issuer) return undefined
      const verified = await verifiers.get(name)!.verify(text)
      if (verified.kind === 'refused') {
        return { reason: REFUSAL_REASONS[verified.reason], detail: verified.detail }
      }
      const { consumer, plan, claims } = verified
      const knownPlan = plan !== undefined && plans.includes(plan) ? { plan } : {}
      return {
        ...{ method: name, consumer, digest: sha256(text), isVerified: true, claims },
        header: issuer.header ?? 'authorization',
        subject: { kind: 'token', consumerKey: consumerKey(consumer), ...knownPlan },
      }
    },

    isSent: (methods, { bearer }, headers) =>
      methods.some(method => {
        const issuer = jwt.get(method)
        return issuer && (issuer.header === undefined ? bearer !== undefined : headers.has(issuer.header))
      }),

    describe(method) {
      const issuer = jwt.get(method)
      return issuer && `a token, as ${issuer.header ? `${issuer.header}:` : 'Authorization: Bearer'} <token>`
    },
  }
}

function createVerifier(issuer: Issuer, variables: Readonly<Record<string, unknown>>): JwtVerifier {
  const secret = 'secret' in issuer.keys ? variables[issuer.keys.secret] : undefined
  return issuer.createVerifier(issuer, { secret: typeof secret === 'string' ? secret : undefined })
}
