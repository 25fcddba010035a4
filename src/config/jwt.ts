/**
 * `jwt({ … })` in a config: tokens of one issuer as a credential. It brings the code for them along, so that a Worker whose
 * config has none does not carry it (8 KiB).
 */
import { createJwtVerifier, issuerOf, type JwtIssuer, type JwtVerifier } from '../credentials/jwt.ts'
import type { JwtInput } from './check/jwt-schema.ts'

export type { JwtInput }

export interface JwtMethod {
  input: JwtInput
  createVerifier(issuer: JwtIssuer, options: { secret?: string | undefined }): JwtVerifier
  issuerOf: typeof issuerOf
}

export function jwt(input: JwtInput): JwtMethod {
  return { input, createVerifier: createJwtVerifier, issuerOf }
}
