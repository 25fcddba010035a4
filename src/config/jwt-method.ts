/**
 * The types of a credential method for the tokens of one issuer. The code is in src/credentials/jwt.ts, which a Worker contains only if
 * its config uses it.
 */
import type { CallerMode } from './caller-mode.ts'
import type { JwtInput } from './check/jwt-schema.ts'

/** The result of `jwt({ … })`. */
export interface JwtMethod {
  input: JwtInput
  /** @param name the name of the method in the config */
  compile(name: string): JwtIssuer
  createVerifier(issuer: JwtIssuer, options: { secret?: string | undefined }): JwtVerifier
  /** The issuer that a token claims, without verification. Undefined: the text is not a JWT, or has no issuer. */
  issuerOf(token: string): string | undefined
}

/** An issuer of tokens, as compiled from the config (compile-jwt.ts). */
export interface JwtIssuer {
  /** Name of the method in the config. */
  name: string
  issuer: string
  audience: readonly string[]
  /** Either all with public keys or all with a secret, so that a public key is never used as a secret. */
  algorithms: readonly string[]
  clockToleranceSeconds: number
  /** Header that carries the bare token, in lower case. Absent: `Authorization: Bearer`. */
  header?: string
  /** The URL of a key set, or the name of the variable that holds the secret. */
  keys: { jwks: string } | { secret: string }
  /** The first of these claims that is not empty names the consumer. */
  consumerClaims: readonly string[]
  planClaim?: string
  /** Maps values of the plan claim to plans of the config. */
  plans: Readonly<Record<string, string>>
  modeClaim?: string
  /** Maps values of the mode claim to modes. */
  modes: Readonly<Record<string, CallerMode>>
  /** Whether a token and an API key with the same consumer name belong to one consumer. False: the issuer has its own consumers. */
  sharesConsumers: boolean
}

export interface JwtVerifier {
  /** Never throws. */
  verify(token: string): Promise<VerifiedToken | RefusedToken>
}

export interface VerifiedToken {
  kind: 'verified'
  consumer: string
  /** The value of the plan claim, mapped by `plans`. It may not be a plan of the config. */
  plan?: string
  mode: CallerMode
  claims: Readonly<Record<string, unknown>>
}

/**
 * Why a token was refused. From `wrong-audience` on, its signature is valid.
 *
 * - `malformed`: the text is not a JWT that Sluice can read.
 * - `wrong-issuer`: no issuer that the route accepts has issued it.
 * - `wrong-algorithm`: the config does not accept the algorithm of its signature.
 * - `unknown-signing-key`: the issuer publishes no key with its key id.
 * - `bad-signature`: the key that it names has not signed it; also of API keys with a wrong signature.
 * - `unverifiable`: the issuer's keys could not be fetched, and none are cached.
 * - `bad-claim`: `exp`, `nbf` or `iat` is missing or is not a time, or its mode is neither live nor test.
 * - `no-consumer`: it has no claim that names a consumer.
 */
export type TokenRefusal =
  | 'malformed'
  | 'wrong-issuer'
  | 'wrong-algorithm'
  | 'unknown-signing-key'
  | 'bad-signature'
  | 'unverifiable'
  | 'wrong-audience'
  | 'not-yet-valid'
  | 'expired'
  | 'bad-claim'
  | 'no-consumer'

export interface RefusedToken {
  kind: 'refused'
  reason: TokenRefusal
  /** For the log: codes and names of claims, no values of the token. */
  detail: string
}
