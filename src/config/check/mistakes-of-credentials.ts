/** What the schema of the config cannot see in credentials: what stands in `jwt({ … })`, and how they fit each other. */
import * as v from 'valibot'
import { compileJwt } from '../compile-jwt.ts'
import { ANONYMOUS } from '../compile-route.ts'
import type { Mistake } from '../config-error.ts'
import type { JwtMethod } from '../jwt-method.ts'
import { jwtSchema, mistakesOfJwt } from './jwt-schema.ts'
import { mistakeOf } from './mistake.ts'
import type { CredentialsInput } from './schema.ts'

const OWN = ['api-key', 'opaque-key', ANONYMOUS]

export function mistakesOfCredentials({ jwt = {} }: CredentialsInput, plans: readonly string[]): Mistake[] {
  const entries = Object.entries(jwt)
  const own = entries.map(([name, method]) => mistakesOfMethod(name, method, plans))
  // They cannot be compared before each is right.
  if (own.some(mistakes => mistakes.length > 0)) return own.flat()
  const issuers = entries.map(([name, { input }]) => compileJwt(name, input))
  return issuers.flatMap(({ name, issuer, header }, i) => {
    const twin = issuers.findIndex(other => other.issuer === issuer && other.header === header)
    if (twin === i) return []
    const message = `has the issuer and the header of ${issuers[twin]!.name}: their tokens could not be told apart. Keep one.`
    return [{ path: `credentials.jwt.${name}`, message }]
  })
}

function mistakesOfMethod(name: string, method: JwtMethod, plans: readonly string[]): Mistake[] {
  const path = `credentials.jwt.${name}`
  if (OWN.includes(name)) {
    return [{ path, message: `'${name}' is a name of ours. Give the method another one, as in 'auth0'.` }]
  }
  const parsed = v.safeParse(v.object({ [path]: jwtSchema }), { [path]: method.input })
  if (!parsed.success) return parsed.issues.map(mistakeOf)
  return mistakesOfJwt(name, method.input, plans).map(([key, message]) => ({
    path: `${path}.${key}`,
    message,
  }))
}
