/**
 * A credential method for the tokens of one issuer: what a config holds of it, and what verifies its tokens. Only types:
 * the code is in src/credentials/jwt.ts, and comes along where a config uses it.
 */
import type { JwtInput } from './check/jwt-schema.ts'

/** What `jwt({ … })` makes. */
export interface JwtMethod {
  input: JwtInput
  /** @param name of the method in the config */
  compile(name: string): JwtIssuer
  createVerifier(issuer: JwtIssuer, options: { secret?: string | undefined }): JwtVerifier
  /** Who issued a token by its own word, which is not verified; undefined where it is no JWT or names no issuer. */
  issuerOf(token: string): string | undefined
}

/** One way to come with a token, as compiled from the config (compile-jwt.ts). */
export interface JwtIssuer {
  /** Of the method in the config. */
  name: string
  issuer: string
  audience: readonly string[]
  /** All of one family: a public key is never taken for a secret. */
  algorithms: readonly string[]
  clockToleranceSeconds: number
  /** In lower case. Carries the bare token; absent: `Authorization: Bearer`. */
  header?: string
  /** The URL of a key set, or the name of the variable that holds the secret. */
  keys: { jwks: string } | { secret: string }
  /** The first that holds something says who the consumer is. */
  consumerClaims: readonly string[]
  planClaim?: string
  /** From values of the plan claim to plans of the config. */
  plans: Readonly<Record<string, string>>
  /** Consumers are those of API keys, and not the issuer's own. */
  sharesConsumers: boolean
}

export interface JwtVerifier {
  /** Never throws. */
  verify(token: string): Promise<VerifiedToken | RefusedToken>
}

export interface VerifiedToken {
  kind: 'verified'
  consumer: string
  /** As the issuer says, or as `plans` has it: any text, to be looked up among the plans of the config. */
  plan?: string
  claims: Readonly<Record<string, unknown>>
}

export interface RefusedToken {
  kind: 'refused'
  /**
   * `expired`: all else about it was good. `unavailable`: the issuer's keys could not be fetched, and none are
   * remembered; nothing is known of the token.
   */
  reason: 'invalid' | 'expired' | 'unavailable'
  /** For the log: codes and names of claims, nothing that the token says. */
  detail: string
}
