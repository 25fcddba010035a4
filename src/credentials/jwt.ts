/**
 * `jwt({ … })` in a config: tokens of one issuer as a credential. It brings the code for them along, so that a Worker whose
 * config has none does not carry it (8 KiB).
 */
import type { JwtInput } from '../config/check/jwt-schema.ts'
import { compileJwt } from '../config/compile-jwt.ts'
import type { JwtMethod } from '../config/jwt-method.ts'
import { createJwtVerifier, issuerOf } from './jwt-verifier.ts'

export type { JwtInput, JwtMethod }

export function jwt(input: JwtInput): JwtMethod {
  return { input, compile: name => compileJwt(name, input), createVerifier: createJwtVerifier, issuerOf }
}
