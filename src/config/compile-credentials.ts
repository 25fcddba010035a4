/** Credentials, from what the user wrote to what a request is asked for. Pure. */
import type { ConfigInput, CredentialsInput } from './check/schema.ts'
import { type CredentialMethod, IDENTIFY } from './compile-route.ts'
import { milliseconds } from './duration.ts'
import type { JwtIssuer, JwtMethod } from './jwt-method.ts'

export interface Credentials {
  /** In the order in which they are looked for, where the route says nothing else. */
  accept: readonly CredentialMethod[]
  /** What API keys begin with, without the underscore and the environment. */
  keyPrefix: string
  /** Header in lower case; absent: X-API-Key and bearer tokens. */
  opaqueKeys?: { header?: string; rememberForMs: number }
  /** By name, with the code that verifies its tokens. */
  jwt: ReadonlyMap<CredentialMethod, Issuer>
  /** Keys are taken from subprotocols of WebSockets too. */
  webSocketKeys: boolean
  /** Handed on to the origin. */
  forward: boolean
  /** Which keys are accepted while the store cannot verify them. */
  onStoreFailure: NonNullable<CredentialsInput['onStoreFailure']>
  seenForMs: number
}

export interface Issuer extends JwtIssuer {
  createVerifier: JwtMethod['createVerifier']
  issuerOf: JwtMethod['issuerOf']
}

/** The credentials there can be, in the order in which they are looked for when nothing else is said. */
export function methodsOf({
  credentials = {},
  hooks = {},
}: Pick<ConfigInput, 'credentials' | 'hooks'>): CredentialMethod[] {
  const tokens = Object.keys(credentials.jwt ?? {})
  return [
    'api-key',
    ...tokens,
    ...(credentials.opaqueKeys ? ['opaque-key'] : []),
    ...(hooks.identify ? [IDENTIFY] : []),
  ]
}

export function compileCredentials(config: ConfigInput): Credentials {
  const {
    accept,
    apiKeys,
    opaqueKeys,
    jwt = {},
    webSocketKeys,
    forward,
    onStoreFailure,
    seenFor,
  } = config.credentials ?? {}
  return {
    accept: accept ?? methodsOf(config),
    keyPrefix: apiKeys?.prefix ?? 'slk',
    ...(opaqueKeys && {
      opaqueKeys: {
        ...(opaqueKeys.header && { header: opaqueKeys.header.toLowerCase() }),
        rememberForMs: milliseconds(opaqueKeys.rememberFor ?? '10m'),
      },
    }),
    jwt: new Map(
      Object.entries(jwt).map(([name, { compile, createVerifier, issuerOf }]) => [
        name,
        { ...compile(name), createVerifier, issuerOf },
      ]),
    ),
    webSocketKeys: webSocketKeys ?? false,
    forward: forward ?? false,
    onStoreFailure: onStoreFailure ?? 'recent',
    seenForMs: milliseconds(seenFor ?? '10m'),
  }
}
