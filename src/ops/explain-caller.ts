/** The request and the caller that are to be explained, made of what the command was given. No store is asked. */
import { decodeJwt, type JWTPayload } from 'jose'
import type { Config } from '../config/compile.ts'
import { IDENTIFY } from '../config/compile-route.ts'
import { isConsumerName } from '../config/forms.ts'
import { CF_PARTS, type CfPart } from '../config/identity-parts.ts'
import type { JwtIssuer, RefusedToken, VerifiedToken } from '../config/jwt-method.ts'
import type { Credential } from '../credentials/credential.ts'
import { readClaims } from '../credentials/jwt-verifier.ts'
import { subjectOfOpaqueKey } from '../credentials/opaque-key.ts'
import { ALL_PARTS } from '../edges/http/all-parts.ts'
import type { Caller } from '../edges/http/caller.ts'
import { createIdentifier } from '../edges/http/identify.ts'
import type { Matched } from '../edges/http/match.ts'
import { consumerKey } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import { consumerName } from './names.ts'

/** With what Cloudflare would report: `country`, `asn`. */
export interface Asked extends Partial<Record<CfPart, string>> {
  method: string
  /** With a query if need be. */
  path: string
  host?: string
  headers?: readonly (readonly [name: string, value: string])[]
  address?: string
  /** How it comes; at most one of these. */
  key?: string
  token?: string
  consumer?: string
}

/** Stands in the place of a digest that is not known: of the key that a consumer would have. */
export const ANY_KEY = '<sha256 of the key>'

/** @throws AdminError for what can be no request */
export function requestOf(config: Config, asked: Asked): { request: Request; peer?: string } {
  const { method, path, host = 'gateway.example', address, key } = asked
  const headers = new Headers()
  const url = `https://${host}${path.startsWith('/') ? path : `/${path}`}`
  if (!URL.canParse(url))
    throw new AdminError(
      'usage',
      'The path or the host is not valid. Use a path such as /reports/7 and a host such as api.example.com.',
    )
  try {
    for (const [name, value] of asked.headers ?? []) headers.append(name, value)
    if (key !== undefined) present(headers, config, key)
    if (asked.token !== undefined) presentToken(headers, config, asked.token)
    if (address !== undefined) nameAddress(headers, config, address)
    const request = new Request(url, { method, headers })
    return {
      // On Cloudflare a request has a `cf` of its own, which cannot be assigned.
      request: Object.defineProperty(request, 'cf', { value: cfOf(asked) }),
      ...(config.address.from === 'peer' && { peer: address ?? '' }),
    }
  } catch (error) {
    if (error instanceof AdminError) throw error
    // The text of the error may quote the header, which may be the key.
    throw new AdminError(
      'usage',
      "The method or a header is not valid. Use a method such as GET and a header such as 'x-tenant: a'.",
    )
  }
}

/** As Cloudflare reports it: some of it as numbers. */
function cfOf(asked: Asked): Partial<Record<CfPart, string | number>> {
  const given = CF_PARTS.flatMap(({ part, example }) => {
    const text = asked[part]
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

function present(headers: Headers, { credentials }: Config, key: string): void {
  const isOurs = key.startsWith(`${credentials.keyPrefix}_`)
  const own = isOurs ? undefined : credentials.opaqueKeys?.header
  if (own) headers.set(own, key)
  else headers.set('authorization', `Bearer ${key}`)
}

function presentToken(headers: Headers, { credentials }: Config, token: string): void {
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

function nameAddress(headers: Headers, { address: { from } }: Config, address: string): void {
  if (from === 'cloudflare') headers.set('cf-connecting-ip', address)
  if (from === 'x-forwarded-for') headers.set(from, address)
  if (from === 'forwarded') headers.set(from, `for="${address.includes(':') ? `[${address}]` : address}"`)
}

/** As the gateway finds it. Signatures of tokens are not verified here: their claims are taken as true. */
export async function callerOf(
  config: Config,
  asked: Asked,
  matched: Matched,
  { request, peer }: { request: Request; peer?: string },
): Promise<Caller> {
  const caller = await createIdentifier(believing(config), ALL_PARTS).identify(request, matched, peer)
  if (asked.consumer === undefined || caller.refusal?.kind === 'forbidden') return caller
  const { refusal: _, ...anonymous } = caller
  const credential = await credentialOf(await consumerName(asked.consumer), config, matched)
  return credential
    ? { ...anonymous, credential }
    : { ...anonymous, refusal: { kind: 'unauthenticated', reason: 'not-accepted', accepted: [] } }
}

/** All but the signature, which takes the issuer's keys. */
async function believed(claims: JWTPayload, issuer: JwtIssuer): Promise<VerifiedToken | RefusedToken> {
  const { exp, nbf } = claims
  const [now, tolerance] = [Date.now() / 1e3, issuer.clockToleranceSeconds]
  if (typeof exp !== 'number') return { kind: 'refused', reason: 'invalid', detail: 'no exp' }
  if (exp <= now - tolerance) return { kind: 'refused', reason: 'expired', detail: 'exp' }
  const isEarly = typeof nbf === 'number' && nbf > now + tolerance
  const isMeant = [claims.aud].flat().some(audience => audience && issuer.audience.includes(audience))
  if (isEarly || !isMeant) return { kind: 'refused', reason: 'invalid', detail: isEarly ? 'nbf' : 'aud' }
  return await readClaims(claims, issuer)
}

/** With issuers that look at no signature. */
function believing({ credentials, ...config }: Config): Config {
  const issuers = [...credentials.jwt].map(([name, issuer]) => {
    const verifier = { verify: (token: string) => believed(claimsOf(token), issuer) }
    return [name, { ...issuer, createVerifier: () => verifier }] as const
  })
  return { ...config, credentials: { ...credentials, jwt: new Map(issuers) } }
}

/** One that the consumer could have, by the first way to come that is taken here. */
async function credentialOf(
  consumer: string,
  { credentials }: Config,
  { settings: { accept } }: Matched,
): Promise<Credential | undefined> {
  const ofTokens = !isConsumerName(consumer)
  const method = accept.find(name => {
    const issuer = credentials.jwt.get(name)
    if (issuer) return ofTokens ? consumer.startsWith(`${name}~`) : issuer.sharesConsumers
    if (name === IDENTIFY) return consumer.startsWith(`${name}~`)
    return name === 'api-key' ? !ofTokens : name === 'opaque-key'
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
