/** Builds the request and the caller for `explain` from the arguments of the command. Does not use the store. */
import { decodeJwt, decodeProtectedHeader, type JWTPayload, UnsecuredJWT } from 'jose'
import { parseAddress } from '../config/address-ranges.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import type { Config } from '../config/compile.ts'
import { IDENTIFY } from '../config/compile-route.ts'
import { isConsumerName } from '../config/forms.ts'
import { CF_PARTS, type CfPart } from '../config/identity-parts.ts'
import type { JwtIssuer, RefusedToken, VerifiedToken } from '../config/jwt-method.ts'
import type { Credential } from '../credentials/credential.ts'
import type { FinderParts } from '../credentials/find-credential.ts'
import { expectedClaims, readClaims, refuse, refuseFor } from '../credentials/jwt-verifier.ts'
import { isSigned } from '../credentials/key-signature.ts'
import { subjectOfOpaqueKey } from '../credentials/opaque-key.ts'
import { ALL_PARTS } from '../set-ups/http/all-parts.ts'
import { type Caller, modeOf } from '../set-ups/http/caller.ts'
import { createIdentifier } from '../set-ups/http/identify.ts'
import type { Matched } from '../set-ups/http/match.ts'
import { readingsOf } from '../set-ups/http/path.ts'
import { consumerKey } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import { parseConsumerName } from './names.ts'

/** A request to explain, with the values that Cloudflare would report (`country`, `asn`). */
export interface RequestInput extends Partial<Record<CfPart, string>> {
  method: string
  /** May have a query. */
  path: string
  host?: string
  headers?: readonly (readonly [name: string, value: string])[]
  address?: string
  /** The credential: at most one of `key`, `token` and `consumer`. */
  key?: string
  token?: string
  consumer?: string
  /** The mode of the credential, if only the store knows it, or if only the consumer is given. Default: live. */
  mode?: CallerMode
}

/** The placeholder for the digest of a key, if only the consumer is given. */
export const ANY_KEY = '<sha256 of the key>'

/** @throws AdminError `usage` if the input is not a valid request */
export function requestOf(config: Config, input: RequestInput): { request: Request; peer?: string } {
  const { method, path, host = 'gateway.example', address, key } = input
  if (address !== undefined && !parseAddress(address))
    throw new AdminError(
      'usage',
      `--address: '${address.slice(0, 60)}' is not an address. Use an address such as 192.0.2.7 or 2001:db8::1.`,
    )
  if (input.country !== undefined && !/^[A-Z][A-Z0-9]$/.test(input.country))
    throw new AdminError(
      'usage',
      `--country: '${input.country.slice(0, 60)}' is not a country. Use its two capital letters (ISO 3166-1), such as AQ.`,
    )
  const headers = new Headers()
  const url = `https://${host}${path.startsWith('/') ? path : `/${path}`}`
  if (!URL.canParse(url))
    throw new AdminError(
      'usage',
      'The path or the host is not valid. Use a path such as /reports/7 and a host such as api.example.com.',
    )
  if (!readingsOf(new URL(url).pathname))
    throw new AdminError(
      'usage',
      'The path can be read in too many ways, so the gateway answers 400. Use a shorter path, or one in which %, ; and // are not nested.',
    )
  try {
    for (const [name, value] of input.headers ?? []) headers.append(name, value)
    if (key !== undefined) addKey(headers, config, key)
    if (input.token !== undefined) addToken(headers, config, input.token)
    if (address !== undefined) addAddress(headers, config, address)
    const request = new Request(url, { method, headers })
    return {
      // With defineProperty, because `cf` cannot be assigned on Cloudflare.
      request: Object.defineProperty(request, 'cf', { value: cfOf(input) }),
      ...(config.address.from === 'peer' && { peer: address ?? '' }),
    }
  } catch (error) {
    if (error instanceof AdminError) throw error
    // The original message is dropped: it may quote the header that contains the key.
    throw new AdminError(
      'usage',
      "The method or a header is not valid. Use a method such as GET and a header such as 'x-tenant: a'.",
    )
  }
}

/** The `cf` of the request. Cloudflare reports some values as numbers. */
function cfOf(input: RequestInput): Partial<Record<CfPart, string | number>> {
  const given = CF_PARTS.flatMap(({ part, example }) => {
    const text = input[part]
    if (text === undefined) return []
    return [[part, typeof example === 'number' ? numberFrom(text, part, example) : text] as const]
  })
  return Object.fromEntries(given)
}

function numberFrom(text: string, part: CfPart, example: number): number {
  if (!/^\d{1,10}$/.test(text))
    throw new AdminError('usage', `--${part} is not a number. Use a number such as ${example}.`)
  return Number(text)
}

function addKey(headers: Headers, { credentials }: Config, key: string): void {
  const isApiKey = key.startsWith(`${credentials.keyPrefix}_`)
  const header = isApiKey ? undefined : credentials.opaqueKeys?.header
  if (header) headers.set(header, key)
  else headers.set('authorization', `Bearer ${key}`)
}

function addToken(headers: Headers, { credentials }: Config, token: string): void {
  const { iss } = claimsOf(token)
  const header = [...credentials.jwt.values()].find(({ issuer }) => issuer === iss)?.header
  if (header) headers.set(header, token)
  else headers.set('authorization', `Bearer ${token}`)
}

function claimsOf(token: string): JWTPayload {
  try {
    return decodeJwt(token)
  } catch {
    throw new AdminError(
      'usage',
      '--token is not a JSON Web Token. Use the whole token: three parts with dots between them.',
    )
  }
}

function addAddress(headers: Headers, { address: { from } }: Config, address: string): void {
  if (from === 'cloudflare') headers.set('cf-connecting-ip', address)
  if (from === 'x-forwarded-for') headers.set(from, address)
  if (from === 'forwarded') headers.set(from, `for="${address.includes(':') ? `[${address}]` : address}"`)
}

/** The caller as the gateway identifies it, except that signatures of keys and tokens are not verified. */
export async function identifyCaller(
  config: Config,
  input: RequestInput,
  matched: Matched,
  { request, peer }: { request: Request; peer?: string },
): Promise<Caller> {
  const parts = { ...ALL_PARTS, createSignatureCheck }
  const identifier = createIdentifier(withoutSignatureChecks(config), parts)
  const caller = inMode(await identifier.identify(request, matched, peer), input)
  if (input.consumer === undefined || caller.refusal?.kind === 'forbidden') return caller
  const { refusal: _, ...anonymous } = caller
  const credential = await credentialOf(await parseConsumerName(input.consumer), config, matched)
  return credential
    ? { ...anonymous, credential: { ...credential, mode: input.mode ?? 'live' } }
    : { ...anonymous, refusal: { kind: 'unauthenticated', reason: 'not-accepted', accepted: [] } }
}

/** @throws AdminError `usage` if the credential itself says that it has another mode */
function inMode(caller: Caller, { mode }: RequestInput): Caller {
  const { credential } = caller
  if (!credential || mode === undefined || credential.mode === mode) return caller
  if (credential.method === 'opaque-key') return { ...caller, credential: { ...credential, mode } }
  throw new AdminError(
    'usage',
    `--mode: this credential has the mode ${modeOf(credential)}. Leave --mode out.`,
  )
}

/** Checks everything except the signature, for which the issuer's keys would be needed. */
async function verifyUnsigned(token: string, issuer: JwtIssuer): Promise<VerifiedToken | RefusedToken> {
  try {
    const { alg = '' } = decodeProtectedHeader(token)
    if (!issuer.algorithms.includes(alg)) return refuse('wrong-algorithm', 'alg')
    const unsigned = new UnsecuredJWT(decodeJwt(token)).encode()
    return await readClaims(UnsecuredJWT.decode(unsigned, expectedClaims(issuer)).payload, issuer)
  } catch (error) {
    return refuseFor(error)
  }
}

/** Checks whether a key has a signature, but not whether that is right, for which the secret would be needed. */
const createSignatureCheck: FinderParts['createSignatureCheck'] =
  ({ credentials: { signature } }) =>
  async (credential, key) =>
    signature === 'require' && !isSigned(key) ? { reason: 'unsigned' } : credential

/** The config with issuers that do not check signatures. */
function withoutSignatureChecks({ credentials, ...config }: Config): Config {
  const issuers = [...credentials.jwt].map(([name, issuer]) => {
    const verifier = { verify: (token: string) => verifyUnsigned(token, issuer) }
    return [name, { ...issuer, createVerifier: () => verifier }] as const
  })
  return { ...config, credentials: { ...credentials, jwt: new Map(issuers) } }
}

/** A credential that the consumer could have: of the first method that the route accepts and that fits the name. */
async function credentialOf(
  consumer: string,
  { credentials }: Config,
  { settings: { accept } }: Matched,
): Promise<Credential | undefined> {
  const isOfTokens = !isConsumerName(consumer)
  const method = accept.find(name => {
    const issuer = credentials.jwt.get(name)
    if (issuer) return isOfTokens ? consumer.startsWith(`${name}~`) : issuer.sharesConsumers
    if (name === IDENTIFY) return consumer.startsWith(`${name}~`)
    return name === 'api-key' ? !isOfTokens : name === 'opaque-key'
  })
  if (method === undefined) return undefined
  const subject =
    credentials.jwt.has(method) || method === IDENTIFY
      ? ({ kind: 'token', consumerKey: consumerKey(consumer) } as const)
      : subjectOfOpaqueKey(ANY_KEY, consumer)
  const isVerified = subject.kind === 'token'
  return {
    method,
    consumer,
    digest: ANY_KEY,
    subject,
    header: 'authorization',
    isVerified,
    ...(credentials.jwt.has(method) && { claims: {} }),
  }
}
