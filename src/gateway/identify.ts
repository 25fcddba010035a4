/**
 * Who calls: the address, and the credential as presented. A key costs no I/O here: whether it is good is found out in the
 * same trip that counts the request. A token is verified with the issuer's keys, which an isolate remembers.
 */

import { isInRanges } from '../config/address-ranges.ts'
import type { Config } from '../config/compile.ts'
import type { Issuer } from '../config/compile-credentials.ts'
import { ANONYMOUS } from '../config/compile-route.ts'
import { apiKeyStart, consumerOfApiKey, sha256 } from '../credentials/api-key.ts'
import type { JwtVerifier } from '../credentials/jwt.ts'
import { isOpaqueKey, KeyMemory, whoseOpaqueKey } from '../credentials/opaque-key.ts'
import { MAX_TOKEN_LENGTH, type Presented, presentedIn, wordsOf } from '../credentials/presented.ts'
import type { Forbidden, Unauthenticated } from '../limiter/decide.ts'
import type { Who } from '../limiter/wire.ts'
import { consumerKey, credentialKey, UNKNOWN_CONSUMER } from '../store/keys.ts'
import { addressIdentity, clientAddress } from './address.ts'
import { cfOf } from './identity.ts'
import { acceptsAnonymous, type Matched } from './match.ts'

export interface Caller {
  /** Of the client, in its one spelling; absent when nobody knows. */
  address?: string
  /** As counted by. */
  addressIdentity: string
  /** Known before the store is asked: nobody may come like this. */
  refusal?: Unauthenticated | Forbidden
  /** Absent: anonymous. */
  credential?: Credential
}

export interface Credential {
  /** `api-key`, `opaque-key`, or the name of a JWT method. */
  method: string
  /**
   * Whose it claims to be, as it stands in keys of the store; true once the store has admitted the request. Of an opaque
   * key nobody has seen: UNKNOWN_CONSUMER.
   */
  consumer: string
  /** SHA-256 of what was presented. */
  digest: string
  /** What the store is asked about it. */
  who: Who
  /** The header it came in, in lower case. */
  header: string
  /** It is true already, whatever the store says: a signature vouches for it. */
  isVouched: boolean
  claims?: Readonly<Record<string, unknown>>
}

type Settings = Pick<Config, 'credentials' | 'environment' | 'address' | 'block' | 'plans'>

export type Identify = (request: Request, matched: Matched, peer?: string) => Promise<Caller>

export interface Identifier {
  /** Whoever is on a list of those that are kept out, whatever they show. */
  refuse(request: Request, peer?: string): Forbidden | undefined
  identify: Identify
  /** Remembers whose opaque key it was, or forgets it. */
  learn(caller: Caller, outcome: { status: string; consumer?: string }): void
}

type Found = Credential | Unauthenticated

const REASON = { invalid: 'malformed', expired: 'expired', unavailable: 'unverifiable' } as const

function verifierOf(issuer: Issuer, variables: Readonly<Record<string, unknown>>): JwtVerifier {
  const secret = 'secret' in issuer.keys ? variables[issuer.keys.secret] : undefined
  return issuer.createVerifier(issuer, { secret: typeof secret === 'string' ? secret : undefined })
}

/**
 * Makes one for an isolate: it remembers consumers and issuers' keys, as plain data.
 * @param variables of the environment, among them the secrets that issuers share
 * @throws ConfigError naming a secret that is missing or too short
 */
export function createIdentifier(
  config: Settings,
  variables: Readonly<Record<string, unknown>> = {},
): Identifier {
  const { credentials, environment, address, block, plans } = config
  const verifiers = new Map(
    [...credentials.jwt.values()].map(issuer => [issuer.name, verifierOf(issuer, variables)]),
  )
  const start = apiKeyStart(credentials.keyPrefix, environment)
  const memory = credentials.opaqueKeys && new KeyMemory(credentials.opaqueKeys)
  const takesOpaqueKeys = credentials.opaqueKeys !== undefined && credentials.opaqueKeys.header === undefined
  const isOurs = (text: string) => text.startsWith(`${credentials.keyPrefix}_`)

  async function apiKey({ apiKey, bearer }: Presented): Promise<Found | undefined> {
    const text = apiKey ?? bearer
    // A bearer token may be the origin's own affair, and X-API-Key may hold an opaque key. One of ours that is broken is
    // still ours.
    const canBeOthers = apiKey === undefined || takesOpaqueKeys
    if (text === undefined || (canBeOthers && !isOurs(text))) return undefined
    const consumer = consumerOfApiKey(text, start)
    if (consumer === undefined) return { kind: 'unauthenticated', reason: 'malformed' }
    const digest = await sha256(text)
    return {
      ...{ method: 'api-key', consumer, digest, isVouched: false },
      header: apiKey === undefined ? 'authorization' : 'x-api-key',
      who: {
        kind: 'key',
        consumerKey: consumerKey(consumer),
        credentialKey: credentialKey(consumer, digest),
      },
    }
  }

  async function opaqueKey({ apiKey, bearer }: Presented, headers: Headers): Promise<Found | undefined> {
    const own = credentials.opaqueKeys?.header
    const text = own === undefined ? (apiKey ?? bearer) : (headers.get(own) ?? undefined)
    // Where API keys come too, one of ours is for that method; in a header of its own it is no opaque key.
    if (text === undefined || (own === undefined && isOurs(text))) return undefined
    if (isOurs(text) || !isOpaqueKey(text)) return { kind: 'unauthenticated', reason: 'malformed' }
    const digest = await sha256(text)
    const consumer = memory?.consumerOf(digest)
    return {
      ...{ method: 'opaque-key', consumer: consumer ?? UNKNOWN_CONSUMER, digest, isVouched: false },
      header: own ?? (apiKey === undefined ? 'authorization' : 'x-api-key'),
      who: whoseOpaqueKey(digest, consumer),
    }
  }

  async function token(name: string, { bearer }: Presented, headers: Headers): Promise<Found | undefined> {
    const issuer = credentials.jwt.get(name)!
    const text = issuer.header === undefined ? bearer : (headers.get(issuer.header)?.trim() ?? undefined)
    if (text === undefined) return undefined
    // A token of another issuer is for another method.
    if (issuer.issuerOf(text) !== issuer.issuer) return undefined
    const verified = await verifiers.get(name)!.verify(text)
    if (verified.kind === 'refused') {
      return { kind: 'unauthenticated', reason: REASON[verified.reason], detail: verified.detail }
    }
    const { consumer, plan, claims } = verified
    return {
      ...{ method: name, consumer, digest: await sha256(text), isVouched: true, claims },
      header: issuer.header ?? 'authorization',
      who: {
        kind: 'token',
        consumerKey: consumerKey(consumer),
        ...(plan !== undefined && plans.includes(plan) && { plan }),
      },
    }
  }

  /** Where tokens are taken, one of nobody we know is a bad token, and not none; so are two, and one too long to read. */
  function isForeignToken(accept: readonly string[], { bearer }: Presented, headers: Headers): boolean {
    return accept.some(method => {
      const issuer = credentials.jwt.get(method)
      if (!issuer) return false
      return issuer.header === undefined
        ? wordsOf(bearer ?? '').some(
            word => word.length > MAX_TOKEN_LENGTH || issuer.issuerOf(word) !== undefined,
          )
        : headers.has(issuer.header)
    })
  }

  async function present(method: string, presented: Presented, headers: Headers): Promise<Found | undefined> {
    switch (method) {
      case 'api-key':
        return await apiKey(presented)
      case 'opaque-key':
        return await opaqueKey(presented, headers)
      case ANONYMOUS:
        return undefined
      default:
        return await token(method, presented, headers)
    }
  }

  return {
    refuse(request, peer) {
      const what = blockedBy(request, clientAddress(request, address, peer))
      return what && { kind: 'forbidden', what }
    },

    async identify(request, matched, peer) {
      const client = clientAddress(request, address, peer)
      const caller = {
        ...(client !== undefined && { address: client }),
        addressIdentity: addressIdentity(client, address.ipv6Prefix),
      }
      const what = blockedBy(request, client)
      if (what) return { ...caller, refusal: { kind: 'forbidden', what } }

      const presented = presentedIn(request.headers)
      for (const method of matched.accept) {
        const found = await present(method, presented, request.headers)
        if (!found) continue
        return 'kind' in found ? { ...caller, refusal: found } : { ...caller, credential: found }
      }
      // Ours, and of no kind that is taken here: it is never taken for none.
      const { apiKey, bearer } = presented
      if (apiKey !== undefined || (bearer !== undefined && isOurs(bearer))) {
        return { ...caller, refusal: { kind: 'unauthenticated', reason: 'not-accepted' } }
      }
      if (isForeignToken(matched.accept, presented, request.headers)) {
        return { ...caller, refusal: { kind: 'unauthenticated', reason: 'malformed' } }
      }
      if (acceptsAnonymous(matched)) return caller
      const reason = bearer ? 'malformed' : 'missing'
      return { ...caller, refusal: { kind: 'unauthenticated', reason, taken: taken(matched.accept) } }
    },

    learn({ credential }, { status, consumer }) {
      if (credential?.method !== 'opaque-key') return
      if (consumer !== undefined && status !== 'unknown-credential')
        memory?.remember(credential.digest, consumer)
      else if (status === 'unknown-credential') memory?.forget(credential.digest)
    },
  }

  function taken(accept: readonly string[]): string[] {
    const own = credentials.opaqueKeys?.header
    const texts = accept.map(method => {
      const issuer = credentials.jwt.get(method)
      if (issuer)
        return `a token, as ${issuer.header ?? 'Authorization: Bearer'}${issuer.header ? ':' : ''} <token>`
      if (method === 'opaque-key' && own) return `a key, as ${own}: <key>`
      return 'an API key, as Authorization: Bearer <key> or as X-API-Key: <key>'
    })
    return [...new Set(texts)]
  }

  function blockedBy(request: Request, client: string | undefined): Forbidden['what'] | undefined {
    if (isInRanges(block.addresses, client)) return 'address'
    const { country } = cfOf(request)
    return typeof country === 'string' && block.countries.has(country) ? 'country' : undefined
  }
}
