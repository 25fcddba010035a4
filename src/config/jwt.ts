/**
 * `jwt({ … })` in a config: tokens of one issuer as a credential. It brings the code for them along, so that a Worker whose
 * config has none does not carry it (a sixth of its size).
 */
import type { GenericSchema } from 'valibot'
import { createJwtVerifier, issuerOf, type JwtIssuer, type JwtVerifier } from '../credentials/jwt.ts'
import { compileJwt, type JwtInput, jwtSchema, mistakesOfJwt } from './jwt-schema.ts'

export type { JwtInput }

export interface JwtMethod {
  input: JwtInput
  schema: GenericSchema<JwtInput>
  compile: typeof compileJwt
  mistakes: typeof mistakesOfJwt
  createVerifier(issuer: JwtIssuer, options: { secret?: string | undefined }): JwtVerifier
  issuerOf: typeof issuerOf
}

export function jwt(input: JwtInput): JwtMethod {
  return {
    input,
    schema: jwtSchema,
    compile: compileJwt,
    mistakes: mistakesOfJwt,
    createVerifier: createJwtVerifier,
    issuerOf,
  }
}
