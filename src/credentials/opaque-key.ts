/**
 * Opaque keys: keys that were made elsewhere and imported. Their text does not name a consumer; the store finds the
 * consumer by their SHA-256. An isolate remembers the consumer of each key for a while, so that the next decision can
 * name in advance all keys of the store that it needs. The store still checks the key itself every time.
 */
import type { Credentials } from '../config/compile.ts'
import { Lru } from '../lru.ts'
import type { Outcome, Subject } from '../script/evaluation.ts'
import { sha256 } from '../sha256.ts'
import { consumerKey, credentialKey, pointerKey, UNKNOWN_CONSUMER } from '../store/keys.ts'
import type { Credential, FindResult } from './credential.ts'
import type { CredentialHeaders } from './credential-headers.ts'

/** About 200 bytes each; up to twice as many are kept. */
const MAX_REMEMBERED = 10_000

/** In characters. Shorter texts can be guessed, and longer ones are not keys. */
const LENGTHS = { min: 16, max: 512 }

/** Whether a text has the form of an opaque key: 16 to 512 characters of visible ASCII. */
export function isOpaqueKey(text: string): boolean {
  return text.length >= LENGTHS.min && text.length <= LENGTHS.max && /^[!-~]+$/.test(text)
}

/** Consumers by the digest of their keys. Plain data, so it may outlive a request. */
export class KeyMemory {
  readonly #consumers: Lru<string>

  constructor({ rememberForMs }: { rememberForMs: number }) {
    this.#consumers = new Lru({ size: MAX_REMEMBERED, maxAgeMs: rememberForMs })
  }

  consumerOf(digest: string): string | undefined {
    return this.#consumers.get(digest)
  }

  /** If a key moves to another consumer, one request is refused before the isolate notices. */
  remember(digest: string, consumer: string): void {
    this.#consumers.set(digest, consumer)
  }

  forget(digest: string): void {
    this.#consumers.delete(digest)
  }
}

/**
 * The keys that the store checks for an opaque key.
 *
 * @param consumer undefined: the store has to look it up
 */
export function subjectOfOpaqueKey(digest: string, consumer: string | undefined): Subject {
  const name = consumer ?? UNKNOWN_CONSUMER
  const keys = { consumerKey: consumerKey(name), credentialKey: credentialKey(name, digest) }
  return consumer === undefined
    ? { kind: 'pointer', ...keys, pointerKey: pointerKey(digest) }
    : { kind: 'key', ...keys }
}

export interface OpaqueKeys {
  find(sent: CredentialHeaders, headers: Headers): FindResult
  /** Remembers the consumer that the store has found for a key, or forgets the key if the store does not know it. */
  remember(credential: Credential, outcome: Outcome): void
}

/** Creates the finder of opaque keys of an isolate. It remembers the consumer of each key. */
export function createOpaqueKeyFinder(
  settings: NonNullable<Credentials['opaqueKeys']>,
  keyPrefix: string,
): OpaqueKeys {
  const memory = new KeyMemory(settings)
  const { header } = settings
  const isApiKey = (text: string) => text.startsWith(`${keyPrefix}_`)

  return {
    find({ apiKey, bearer }, headers) {
      const text = header === undefined ? (apiKey ?? bearer) : (headers.get(header) ?? undefined)
      // A text with the prefix of API keys is left to the method `api-key`. In the header of opaque keys, it is malformed.
      if (text === undefined || (header === undefined && isApiKey(text))) return undefined
      if (isApiKey(text) || !isOpaqueKey(text)) return { reason: 'malformed' }
      const digest = sha256(text)
      const consumer = memory.consumerOf(digest)
      return {
        ...{ method: 'opaque-key', consumer: consumer ?? UNKNOWN_CONSUMER, digest, isVerified: false },
        header: header ?? (apiKey === undefined ? 'authorization' : 'x-api-key'),
        subject: subjectOfOpaqueKey(digest, consumer),
      }
    },

    remember({ digest }, { status, consumer }) {
      if (status === 'unknown-credential') memory.forget(digest)
      else if (consumer !== undefined) memory.remember(digest, consumer)
    },
  }
}
