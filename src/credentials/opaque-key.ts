/**
 * Opaque keys: keys that were made elsewhere and imported. Their text does not name a consumer; the store finds the
 * consumer by their SHA-256. An isolate remembers the consumer of each key for a while, so that the next decision can
 * name in advance all keys of the store that it needs. The store still checks the key itself every time.
 */
import type { CallerMode } from '../config/caller-mode.ts'
import type { Credentials } from '../config/compile.ts'
import { Lru } from '../lru.ts'
import type { Outcome, Subject } from '../script/evaluation.ts'
import { sha256 } from '../sha256.ts'
import { consumerKey, credentialKey, pointerKey, UNKNOWN_CONSUMER } from '../store/keys.ts'
import type { Credential, FindResult } from './credential.ts'
import type { CredentialHeaders } from './credential-headers.ts'

/** About 250 bytes each; up to twice as many are kept. */
const MAX_REMEMBERED = 10_000

/** In characters. Shorter texts can be guessed, and longer ones are not keys. */
const LENGTHS = { min: 16, max: 512 }

/** Whether a text has the form of an opaque key: 16 to 512 characters of visible ASCII. */
export function isOpaqueKey(text: string): boolean {
  return text.length >= LENGTHS.min && text.length <= LENGTHS.max && /^[!-~]+$/.test(text)
}

/** What the record of a key says for good. */
export interface KeyOwner {
  consumer: string
  mode: CallerMode
}

/** Owners by the digest of their keys. Plain data, so it may outlive a request. */
export class KeyMemory {
  readonly #owners: Lru<KeyOwner>

  constructor({ rememberForMs }: { rememberForMs: number }) {
    this.#owners = new Lru({ size: MAX_REMEMBERED, maxAgeMs: rememberForMs })
  }

  ownerOf(digest: string): KeyOwner | undefined {
    return this.#owners.get(digest)
  }

  /** If a key moves to another consumer, one request is refused before the isolate notices. */
  remember(digest: string, owner: KeyOwner): void {
    this.#owners.set(digest, owner)
  }

  forget(digest: string): void {
    this.#owners.delete(digest)
  }
}

/**
 * The keys that the store checks for an opaque key.
 *
 * @param consumer undefined: the store has to look it up
 * @param mode that the request is counted in. If it is another one, the store spends nothing
 */
export function subjectOfOpaqueKey(
  digest: string,
  consumer: string | undefined,
  mode: CallerMode = 'live',
): Subject {
  const name = consumer ?? UNKNOWN_CONSUMER
  const keys = { consumerKey: consumerKey(name), credentialKey: credentialKey(name, digest), mode }
  return consumer === undefined
    ? { kind: 'pointer', ...keys, pointerKey: pointerKey(digest) }
    : { kind: 'key', ...keys }
}

export interface OpaqueKeys {
  find(sent: CredentialHeaders, headers: Headers): FindResult
  /** Remembers what the store has found in the record of a key. @returns the credential with it */
  useMode(credential: Credential, mode: CallerMode, consumer: string | undefined): Credential
  /** Remembers the consumer that the store has found for a key, or forgets the key if the store does not know it. */
  remember(credential: Credential, outcome: Outcome): void
}

/**
 * Creates the finder of opaque keys of an isolate. It remembers the consumer and the mode of each key.
 *
 * @param lastModeOf the mode in which the store has last admitted a key, also after its consumer was forgotten. If the store does not
 *   answer, nothing else is known about the key
 */
export function createOpaqueKeyFinder(
  settings: NonNullable<Credentials['opaqueKeys']>,
  keyPrefix: string,
  lastModeOf: (credential: Credential) => CallerMode | undefined,
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
      const owner = memory.ownerOf(digest)
      const credential: Credential = {
        ...{ method: 'opaque-key', consumer: UNKNOWN_CONSUMER, digest, isVerified: false },
        header: header ?? (apiKey === undefined ? 'authorization' : 'x-api-key'),
        subject: subjectOfOpaqueKey(digest, undefined),
      }
      return inMode(credential, owner?.mode ?? lastModeOf(credential) ?? 'live', owner?.consumer)
    },

    useMode(credential, mode, consumer) {
      const known = inMode(credential, mode, consumer)
      memory.remember(known.digest, { consumer: known.consumer, mode })
      return known
    },

    remember({ digest, mode = 'live' }, { status, consumer, verdicts }) {
      // After too many guesses, the store does not say whether the mode is right.
      const isModeRight = status === 'admitted' || verdicts.some(({ rule }) => rule.on === 'request')
      if (status === 'unknown-credential') memory.forget(digest)
      else if (consumer !== undefined && isModeRight) memory.remember(digest, { consumer, mode })
    },
  }
}

function inMode(credential: Credential, mode: CallerMode, consumer: string | undefined): Credential {
  const owner = consumer ?? credential.consumer
  const known = owner === UNKNOWN_CONSUMER ? undefined : owner
  return { ...credential, mode, consumer: owner, subject: subjectOfOpaqueKey(credential.digest, known, mode) }
}
