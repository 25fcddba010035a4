/**
 * Finds the credential of a request among the kinds that its route accepts. Keys cost no I/O here: the store checks
 * them in the trip that counts the request. Tokens are verified with the issuer's keys, which the isolate caches.
 */
import type { CallerMode } from '../config/caller-mode.ts'
import type { Config } from '../config/compile.ts'
import { ANONYMOUS, type CredentialMethod, IDENTIFY } from '../config/compile-route.ts'
import type { Outcome } from '../script/evaluation.ts'
import { sha256 } from '../sha256.ts'
import { consumerKey, credentialKey } from '../store/keys.ts'
import { apiKeyStart, consumerOfApiKey, modeOfApiKey } from './api-key.ts'
import { type CallerExchange, CallerMemory, type RememberedCaller } from './caller-memory.ts'
import type { Credential, FindResult, RefusedCredential } from './credential.ts'
import { type CredentialHeaders, readCredentialHeaders } from './credential-headers.ts'
import type { createSignatureCheck } from './key-signature.ts'
import type { createOpaqueKeyFinder } from './opaque-key.ts'
import type { createTokenFinder } from './tokens.ts'

export interface CredentialFinder {
  /**
   * Finds the first accepted kind of credential that the request carries, and verifies it as far as that is possible
   * without the store. An invalid credential is refused; no other kind is tried, and the caller is not treated as
   * anonymous.
   *
   * @param accept the kinds that the route accepts, in order
   * @param identify the hook of the config, called if `accept` contains it
   * @returns undefined if the request has no credential
   */
  find(
    accept: readonly CredentialMethod[],
    headers: Headers,
    identify?: () => Promise<Credential | undefined>,
  ): Promise<Credential | RefusedCredential | undefined>
  /** Describes in words how to send an accepted credential, for callers that sent none. */
  describe(accept: readonly CredentialMethod[]): string[]
  /** Remembers the store's answer about a credential, or forgets the credential if the store does not know it. */
  remember(credential: Credential | undefined, outcome: Outcome): void
  /** Shares what the store answers about credentials with other processes. */
  shareWith(exchange: CallerExchange): void
  /** The store's recent answer about a credential. */
  recall(credential: Credential | undefined): RememberedCaller | undefined
  /**
   * Remembers what the store has found in the record of an opaque key.
   *
   * @param consumer undefined: it was known before
   * @returns the credential with it
   */
  useMode(credential: Credential, mode: CallerMode, consumer: string | undefined): Credential
}

type Settings = Pick<Config, 'credentials' | 'environment' | 'plans'>

/** Code that only some configs need. */
export interface FinderParts {
  /** With `credentials.signature`. */
  createSignatureCheck: typeof createSignatureCheck
  /** With `credentials.opaqueKeys`. */
  createOpaqueKeyFinder: typeof createOpaqueKeyFinder
  /** With `credentials.jwt`. */
  createTokenFinder: typeof createTokenFinder
}

const MALFORMED: RefusedCredential = { reason: 'malformed' }

/** The form of a token, for deployments without the code that reads tokens. */
const JWT = /^eyJ[\w-]+\.[\w-]+\.[\w-]*$/

/**
 * Creates the finder of an isolate. It remembers consumers and issuers' keys, as plain data.
 *
 * @param variables of the environment, including the secrets of issuers and of API keys
 * @param now ms since the epoch, for the age of signed keys and the ends of blocks
 * @throws ConfigError naming a secret that is missing or too short
 */
export function createCredentialFinder(
  config: Settings,
  variables: Readonly<Record<string, unknown>>,
  { createSignatureCheck, createOpaqueKeyFinder, createTokenFinder }: FinderParts,
  now = Date.now,
): CredentialFinder {
  const { credentials, environment } = config
  const { keyPrefix, opaqueKeys } = credentials
  const tokens = credentials.jwt.size > 0 ? createTokenFinder(config, variables) : undefined
  const start = apiKeyStart(keyPrefix, environment)
  const checkSignature = credentials.signature && createSignatureCheck(config, variables, now)
  const remembered = new CallerMemory(credentials, now)
  const lastModeOf = (credential: Credential) => remembered.recall(credential)?.mode
  const opaque = opaqueKeys && createOpaqueKeyFinder(opaqueKeys, keyPrefix, lastModeOf)
  /**
   * Opaque keys look like tokens for the origin. If they are sent as bearer tokens, every bearer token is treated as
   * an opaque key.
   */
  const areBearerTokensKeys = opaqueKeys !== undefined && opaqueKeys.header === undefined
  const hasKeyPrefix = (text: string) => text.startsWith(`${keyPrefix}_`)

  function findApiKey({ apiKey, bearer }: CredentialHeaders): FindResult | Promise<FindResult> {
    const text = apiKey ?? bearer
    // A bearer token may be meant for the origin, and X-API-Key may hold an opaque key. A text with the prefix is
    // always an API key, even if it is malformed.
    const mayBeOther = apiKey === undefined || areBearerTokensKeys
    if (text === undefined || (mayBeOther && !hasKeyPrefix(text))) return undefined
    const consumer = consumerOfApiKey(text, start)
    if (consumer === undefined) return MALFORMED
    const digest = sha256(text)
    const keys = { consumerKey: consumerKey(consumer), credentialKey: credentialKey(consumer, digest) }
    const credential: Credential = {
      ...{ method: 'api-key', consumer, digest, mode: modeOfApiKey(text), isVerified: false },
      header: apiKey === undefined ? 'authorization' : 'x-api-key',
      subject: { kind: 'key', ...keys },
    }
    const isKnown = !checkSignature || remembered.hasAdmitted(credential)
    return isKnown ? credential : checkSignature(credential, text)
  }

  function findByMethod(
    method: CredentialMethod,
    sent: CredentialHeaders,
    headers: Headers,
  ): FindResult | Promise<FindResult> {
    switch (method) {
      case 'api-key':
        return findApiKey(sent)
      case 'opaque-key':
        return opaque!.find(sent, headers)
      case ANONYMOUS:
        return undefined
      default:
        return tokens!.find(method, sent, headers)
    }
  }

  /** Refuses a credential that the route does not accept, so that its caller is not treated as anonymous. */
  function refuseNotAccepted(
    accept: readonly CredentialMethod[],
    sent: CredentialHeaders,
    headers: Headers,
  ): FindResult {
    const { apiKey, bearer } = sent
    const isKey =
      apiKey !== undefined ||
      (bearer !== undefined && (hasKeyPrefix(bearer) || areBearerTokensKeys)) ||
      (opaqueKeys?.header !== undefined && headers.has(opaqueKeys.header))
    if (isKey) return { reason: 'not-accepted' }
    // If the route accepts no tokens, a bearer token is meant for the origin.
    return tokens?.refuse(accept, sent, headers)
  }

  return {
    async find(accept, headers, identify) {
      const sent = readCredentialHeaders(headers)
      for (const method of accept) {
        const found = await (method === IDENTIFY ? identify?.() : findByMethod(method, sent, headers))
        if (found) return found
      }
      const { bearer } = sent
      const refused = refuseNotAccepted(accept, sent, headers)
      if (refused || bearer === undefined || accept.includes(ANONYMOUS)) return refused
      return JWT.test(bearer) ? { reason: 'not-accepted' } : MALFORMED
    },

    describe(accept) {
      // The credential of the hook is added later (nameHookCredential in src/set-ups/http/hooks.ts).
      const kinds = accept.filter(method => method !== ANONYMOUS && method !== IDENTIFY)
      const texts = kinds.map(method => {
        const token = tokens?.describe(method)
        if (token) return token
        if (method === 'opaque-key' && opaqueKeys?.header)
          return `an imported key, as ${opaqueKeys.header}: <key>`
        return 'an API key, as Authorization: Bearer <key> or as X-API-Key: <key>'
      })
      return [...new Set(texts)]
    },

    remember(credential, outcome) {
      if (!credential) return
      remembered.remember(credential, outcome)
      if (credential.method === 'opaque-key') opaque!.remember(credential, outcome)
    },

    shareWith: exchange => remembered.shareWith(exchange),
    recall: credential => credential && remembered.recall(credential),

    useMode: (credential, mode, consumer) => opaque!.useMode(credential, mode, consumer),
  }
}
