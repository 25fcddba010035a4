/** Compiles `credentials`: which credentials are accepted, and where they are read. Pure. */
import type { ConfigInput, CredentialsInput } from './check/schema.ts'
import { type CredentialMethod, IDENTIFY } from './compile-route.ts'
import { milliseconds } from './duration.ts'
import type { JwtIssuer, JwtMethod } from './jwt-method.ts'

export interface Credentials {
  /** Methods of routes without a list of their own, in the order in which they are tried. */
  accept: readonly CredentialMethod[]
  /** Prefix of API keys, without the underscore and the environment. */
  keyPrefix: string
  /** Which API keys are refused because of their signature. Absent: signatures are not checked. */
  signature?: 'check' | 'require'
  /** Absent: opaque keys are not accepted. `header` is in lower case; without it, keys are in `X-API-Key` or sent as bearer tokens. */
  opaqueKeys?: { header?: string; rememberForMs: number }
  /** Issuers by method name, with the code that verifies their tokens. */
  jwt: ReadonlyMap<CredentialMethod, Issuer>
  /** Whether keys are also read from WebSocket subprotocols. */
  webSocketKeys: boolean
  /** Whether the credential is passed on to the origin. */
  forward: boolean
  /** Which keys are accepted while the store cannot verify them. */
  onStoreFailure: NonNullable<CredentialsInput['onStoreFailure']>
  /** How long an admitted key stays accepted while the store cannot verify it. */
  seenForMs: number
  /** With `onStoreFailure: 'signed'`: how old a signed key can be to be accepted (ms). */
  signedForMs?: number
  /** The plan of such keys. Absent: the first one of the config. */
  signedPlan?: string
}

export interface Issuer extends JwtIssuer {
  createVerifier: JwtMethod['createVerifier']
  issuerOf: JwtMethod['issuerOf']
}

/** The credential methods that the config has, in the default order of `accept`. */
export function credentialMethodsOf({
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
    signedFor,
    signedPlan,
  } = config.credentials ?? {}
  const passesSigned = onStoreFailure === 'signed'
  const signature = apiKeys?.signature ?? (passesSigned && 'check')
  return {
    accept: accept ?? credentialMethodsOf(config),
    keyPrefix: apiKeys?.prefix ?? 'slk',
    ...(signature && { signature }),
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
    ...(passesSigned && { signedForMs: milliseconds(signedFor ?? '30d') }),
    ...(signedPlan && { signedPlan }),
  }
}
