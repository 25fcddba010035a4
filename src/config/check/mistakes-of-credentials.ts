/** Finds mistakes in credentials that the schema cannot find: settings that conflict, and the arguments of `jwt({ … })`. */
import * as v from 'valibot'
import { compileJwt } from '../compile-jwt.ts'
import { ANONYMOUS, IDENTIFY } from '../compile-route.ts'
import type { Mistake } from '../config-error.ts'
import type { JwtMethod } from '../jwt-method.ts'
import { didYouMean } from './did-you-mean.ts'
import { type JwtInput, jwtSchema, mistakesOfJwt } from './jwt-schema.ts'
import { mistakeOf } from './mistake.ts'
import type { CredentialsInput } from './schema.ts'

const RESERVED_NAMES = ['api-key', 'opaque-key', IDENTIFY, ANONYMOUS]

export function mistakesOfCredentials(credentials: CredentialsInput, plans: readonly string[]): Mistake[] {
  return [...mistakesOfSignedPlan(credentials, plans), ...mistakesOfIssuers(credentials, plans)]
}

function mistakesOfSignedPlan({ signedPlan }: CredentialsInput, plans: readonly string[]): Mistake[] {
  if (signedPlan === undefined || plans.includes(signedPlan)) return []
  const hint = didYouMean(signedPlan, plans) || ' Add it there.'
  const message = `'${signedPlan}' is not in plans (${plans.join(', ')}).${hint}`
  return [{ path: 'credentials.signedPlan', message }]
}

function mistakesOfIssuers({ jwt = {} }: CredentialsInput, plans: readonly string[]): Mistake[] {
  const entries = Object.entries(jwt)
  const own = entries.map(([name, method]) => mistakesOfMethod(name, method, plans))
  // Only valid issuers can be compared with each other.
  if (own.some(mistakes => mistakes.length > 0)) return own.flat()
  const issuers = entries.map(([name, { input }]) => compileJwt(name, input))
  return issuers.flatMap(({ name, issuer, header }, i) => {
    const twin = issuers.findIndex(other => other.issuer === issuer && other.header === header)
    if (twin === i) return []
    const message = `has the same issuer and header as ${issuers[twin]!.name}, so their tokens cannot be distinguished. Keep one of them.`
    return [{ path: `credentials.jwt.${name}`, message }]
  })
}

function mistakesOfMethod(name: string, method: JwtMethod, plans: readonly string[]): Mistake[] {
  const path = `credentials.jwt.${name}`
  if (RESERVED_NAMES.includes(name)) {
    return [{ path, message: `'${name}' is a reserved name. Choose another one, such as 'auth0'.` }]
  }
  const wrong = mistakesOfShape(path, method.input)
  if (wrong.length > 0) return wrong
  return mistakesOfJwt(name, method.input, plans).map(([key, message]) => ({
    path: `${path}.${key}`,
    message,
  }))
}

/** The schema reports only one unknown key at a time, so the check is repeated without that key. */
function mistakesOfShape(path: string, input: JwtInput): Mistake[] {
  const parsed = v.safeParse(v.object({ [path]: jwtSchema }), { [path]: input })
  if (parsed.success) return []
  const mistakes = parsed.issues.map(mistakeOf)
  const unknown = parsed.issues.find(
    ({ type, expected, path: at }) => type === 'strict_object' && expected === 'never' && at?.length === 2,
  )
  if (!unknown) return mistakes
  const { [unknown.path![1]!.key as keyof JwtInput]: _, ...others } = input
  const rest = mistakesOfShape(path, others as JwtInput)
  return [...mistakes, ...rest.filter(other => !mistakes.some(({ path }) => path === other.path))]
}
