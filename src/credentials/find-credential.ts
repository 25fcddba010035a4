/**
 * What a request shows to say who calls, of the kinds that are taken where it goes. A key costs no I/O here: whether it is
 * good is found out in the same trip that counts the request. A token is verified with the issuer's keys, which an isolate
 * remembers.
 */
import type { Config } from '../config/compile.ts'
import type { Issuer } from '../config/compile-credentials.ts'
import { ANONYMOUS, type CredentialMethod, IDENTIFY } from '../config/compile-route.ts'
import type { JwtVerifier } from '../config/jwt-method.ts'
import type { Outcome } from '../script/evaluation.ts'
import { sha256 } from '../sha256.ts'
import { consumerKey, credentialKey } from '../store/keys.ts'
import { apiKeyStart, consumerOfApiKey } from './api-key.ts'
import type { Credential, Found, RefusedCredential } from './credential.ts'
import type { createOpaqueKeys } from './opaque-key.ts'
import { type Presented, presentedIn } from './presented.ts'
import { type Seen, SeenCredentials } from './seen.ts'

export interface CredentialFinder {
  /**
   * The first of the kinds taken here that is shown: good as far as one can tell without the store, or a refusal. What is
   * shown and bad is never passed over for the next kind, or for none.
   * @param identify by code of the config, where `accept` has it
   * @returns undefined when nothing is shown
   */
  find(
    accept: readonly CredentialMethod[],
    headers: Headers,
    identify?: () => Promise<Credential | undefined>,
  ): Promise<Credential | RefusedCredential | undefined>
  /** In words, for who shows nothing where something is asked for. */
  describe(accept: readonly CredentialMethod[]): string[]
  /** Remembers what the store has said of it, or forgets it. */
  learn(credential: Credential | undefined, outcome: Outcome): void
  /** What the store has said of it not long ago. */
  recall(credential: Credential | undefined): Seen | undefined
}

type Settings = Pick<Config, 'credentials' | 'environment' | 'plans'>

/** What only some configs need. */
export interface FinderParts {
  createOpaqueKeys: typeof createOpaqueKeys
}

const MALFORMED: RefusedCredential = { reason: 'malformed' }
const REASON = { invalid: 'malformed', expired: 'expired', unavailable: 'unverifiable' } as const

/**
 * Makes one for an isolate: it remembers consumers and issuers' keys, as plain data.
 * @param variables of the environment, among them the secrets that issuers share
 * @throws ConfigError naming a secret that is missing or too short
 */
export function createCredentialFinder(
  { credentials, environment, plans }: Settings,
  variables: Readonly<Record<string, unknown>>,
  { createOpaqueKeys }: FinderParts,
): CredentialFinder {
  const { keyPrefix, opaqueKeys, jwt } = credentials
  const verifiers = new Map([...jwt.values()].map(issuer => [issuer.name, verifierOf(issuer, variables)]))
  const start = apiKeyStart(keyPrefix, environment)
  const opaque = opaqueKeys && createOpaqueKeys(opaqueKeys, keyPrefix)
  const seen = new SeenCredentials(credentials)
  /** Then an opaque key cannot be told from a token of the origin's: all bearer tokens are ours. */
  const takesBearer = opaqueKeys !== undefined && opaqueKeys.header === undefined
  const isOurs = (text: string) => text.startsWith(`${keyPrefix}_`)

  function apiKey({ apiKey, bearer }: Presented): Found {
    const text = apiKey ?? bearer
    // A bearer token may be the origin's own affair, and X-API-Key may hold an opaque key. One of ours that is broken is
    // still ours.
    const canBeOthers = apiKey === undefined || takesBearer
    if (text === undefined || (canBeOthers && !isOurs(text))) return undefined
    const consumer = consumerOfApiKey(text, start)
    if (consumer === undefined) return MALFORMED
    const digest = sha256(text)
    const keys = { consumerKey: consumerKey(consumer), credentialKey: credentialKey(consumer, digest) }
    return {
      ...{ method: 'api-key', consumer, digest, isVouched: false },
      header: apiKey === undefined ? 'authorization' : 'x-api-key',
      subject: { kind: 'key', ...keys },
    }
  }

  async function token(name: CredentialMethod, { bearer }: Presented, headers: Headers): Promise<Found> {
    const issuer = jwt.get(name)!
    const text = issuer.header === undefined ? bearer : (headers.get(issuer.header)?.trim() ?? undefined)
    // A token of another issuer is for another method.
    if (text === undefined || issuer.issuerOf(text) !== issuer.issuer) return undefined
    const verified = await verifiers.get(name)!.verify(text)
    if (verified.kind === 'refused') {
      return { reason: REASON[verified.reason], detail: verified.detail }
    }
    const { consumer, plan, claims } = verified
    const own = plan !== undefined && plans.includes(plan) ? { plan } : {}
    return {
      ...{ method: name, consumer, digest: sha256(text), isVouched: true, claims },
      header: issuer.header ?? 'authorization',
      subject: { kind: 'token', consumerKey: consumerKey(consumer), ...own },
    }
  }

  async function present(method: CredentialMethod, presented: Presented, headers: Headers): Promise<Found> {
    switch (method) {
      case 'api-key':
        return apiKey(presented)
      case 'opaque-key':
        return opaque!.find(presented, headers)
      case ANONYMOUS:
        return undefined
      default:
        return await token(method, presented, headers)
    }
  }

  /** Shown, and of no kind that is taken here: it is never taken for none. */
  function inVain(accept: readonly CredentialMethod[], presented: Presented, headers: Headers): Found {
    const { apiKey, bearer } = presented
    const isKey =
      apiKey !== undefined ||
      (bearer !== undefined && (isOurs(bearer) || takesBearer)) ||
      (opaqueKeys?.header !== undefined && headers.has(opaqueKeys.header))
    if (isKey) return { reason: 'not-accepted' }
    // Where tokens are taken, one of an unknown issuer is a bad one. Elsewhere a bearer token is the origin's own affair.
    const isToken = accept.some(method => {
      const issuer = jwt.get(method)
      return issuer && (issuer.header === undefined ? bearer !== undefined : headers.has(issuer.header))
    })
    return isToken ? MALFORMED : undefined
  }

  return {
    async find(accept, headers, identify) {
      const presented = presentedIn(headers)
      for (const method of accept) {
        const found = await (method === IDENTIFY ? identify?.() : present(method, presented, headers))
        if (found) return found
      }
      const { bearer } = presented
      const vain = inVain(accept, presented, headers)
      return vain ?? (bearer !== undefined && !accept.includes(ANONYMOUS) ? MALFORMED : undefined)
    },

    describe(accept) {
      // What a hook knows a caller by, it says itself.
      const kinds = accept.filter(method => method !== ANONYMOUS && method !== IDENTIFY)
      const texts = kinds.map(method => {
        const issuer = jwt.get(method)
        if (issuer)
          return `a token, as ${issuer.header ? `${issuer.header}:` : 'Authorization: Bearer'} <token>`
        if (method === 'opaque-key' && opaqueKeys?.header)
          return `an imported key, as ${opaqueKeys.header}: <key>`
        return 'an API key, as Authorization: Bearer <key> or as X-API-Key: <key>'
      })
      return [...new Set(texts)]
    },

    learn(credential, outcome) {
      if (!credential) return
      seen.learn(credential, outcome)
      if (credential.method === 'opaque-key') opaque!.learn(credential, outcome)
    },

    recall: credential => credential && seen.recall(credential),
  }
}

function verifierOf(issuer: Issuer, variables: Readonly<Record<string, unknown>>): JwtVerifier {
  const secret = 'secret' in issuer.keys ? variables[issuer.keys.secret] : undefined
  return issuer.createVerifier(issuer, { secret: typeof secret === 'string' ? secret : undefined })
}
