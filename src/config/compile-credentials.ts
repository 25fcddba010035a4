/** Credentials, from what the user wrote to what a request is asked for. Pure. */
import * as v from 'valibot'
import type { JwtIssuer } from '../credentials/jwt.ts'
import { ANONYMOUS, type CredentialMethod } from './compile-route.ts'
import { type Mistake, mistakeOf } from './config-error.ts'
import { parseDuration } from './duration.ts'
import type { JwtMethod } from './jwt.ts'
import type { ConfigInput, CredentialsInput } from './schema.ts'

export interface Credentials {
  /** In the order in which they are looked for, where the route says nothing else. */
  accept: readonly CredentialMethod[]
  /** What API keys begin with, without the underscore and the environment. */
  keyPrefix: string
  /** Header in lower case; absent: X-API-Key and bearer tokens. */
  opaqueKeys?: { header?: string; rememberForMs: number }
  /** By name, with the code that verifies its tokens. */
  jwt: ReadonlyMap<CredentialMethod, Issuer>
  /** Handed on to the origin. */
  forward: boolean
}

export interface Issuer extends JwtIssuer {
  createVerifier: JwtMethod['createVerifier']
  issuerOf: JwtMethod['issuerOf']
}

const OWN = ['api-key', 'opaque-key', ANONYMOUS]

/** The credentials there can be, in the order in which they are looked for when nothing else is said. */
export function methodsOf({ credentials = {} }: ConfigInput): CredentialMethod[] {
  const tokens = Object.keys(credentials.jwt ?? {})
  return ['api-key', ...tokens, ...(credentials.opaqueKeys ? ['opaque-key'] : [])]
}

export function compileCredentials(config: ConfigInput): Credentials {
  const { accept, apiKeys, opaqueKeys, jwt = {}, forward } = config.credentials ?? {}
  return {
    accept: accept ?? methodsOf(config),
    keyPrefix: apiKeys?.prefix ?? 'slk',
    ...(opaqueKeys && {
      opaqueKeys: {
        ...(opaqueKeys.header && { header: opaqueKeys.header.toLowerCase() }),
        rememberForMs: parseDuration(opaqueKeys.rememberFor ?? '10m')! / 1e3,
      },
    }),
    jwt: new Map(
      Object.entries(jwt).map(([name, { input, compile, createVerifier, issuerOf }]) => [
        name,
        { ...compile(name, input), createVerifier, issuerOf },
      ]),
    ),
    forward: forward ?? false,
  }
}

/** What the schema of the config cannot see: what stands in `jwt({ … })`, and how they fit each other. */
export function mistakesOfCredentials({ jwt = {} }: CredentialsInput, plans: readonly string[]): Mistake[] {
  const entries = Object.entries(jwt)
  const own = entries.map(([name, method]) => mistakesOfMethod(name, method, plans))
  // They cannot be compared before each is right.
  if (own.some(mistakes => mistakes.length > 0)) return own.flat()
  const issuers = entries.map(([name, { compile, input }]) => compile(name, input))
  return issuers.flatMap(({ name, issuer, header }, i) => {
    const twin = issuers.findIndex(other => other.issuer === issuer && other.header === header)
    if (twin === i) return []
    const message = `has the issuer and the header of ${issuers[twin]!.name}: nobody could tell their tokens apart. Keep one.`
    return [{ path: `credentials.jwt.${name}`, message }]
  })
}

function mistakesOfMethod(name: string, method: JwtMethod, plans: readonly string[]): Mistake[] {
  const path = `credentials.jwt.${name}`
  if (OWN.includes(name)) {
    return [{ path, message: `'${name}' is a name of ours. Give the method another one, as in 'auth0'.` }]
  }
  const parsed = v.safeParse(v.object({ [path]: method.schema }), { [path]: method.input })
  if (!parsed.success) return parsed.issues.map(mistakeOf)
  return method
    .mistakes(name, method.input, plans)
    .map(([key, message]) => ({ path: `${path}.${key}`, message }))
}
