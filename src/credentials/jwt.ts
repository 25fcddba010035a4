/**
 * `jwt({ … })` in a config: accepts the tokens of one issuer. It brings the code that verifies them, so a Worker
 * without such an issuer does not carry that code (8 KiB).
 */
import type { JwtInput } from '../config/check/jwt-schema.ts'
import { compileJwt } from '../config/compile-jwt.ts'
import type { JwtMethod } from '../config/jwt-method.ts'
import { createJwtVerifier, issuerOf } from './jwt-verifier.ts'

export type { JwtInput, JwtMethod }

/**
 * Accepts JSON Web Tokens of one issuer, under a name in `credentials.jwt`. Mistakes in the input are reported with those of the
 * config (ConfigError).
 */
export function jwt(input: JwtInput): JwtMethod {
  return { input, compile: name => compileJwt(name, input), createVerifier: createJwtVerifier, issuerOf }
}
