/**
 * Keys that were not made here: text that says nothing by itself. The store knows by their SHA-256 whose they are; an
 * isolate that has seen one remembers it for a while, so that the next decision names all keys of the store beforehand.
 * Whether a key is still good is asked every time.
 */
import type { Credentials } from '../config/compile.ts'
import { Lru } from '../lru.ts'
import type { Outcome, Subject } from '../script/evaluation.ts'
import { sha256 } from '../sha256.ts'
import { consumerKey, credentialKey, pointerKey, UNKNOWN_CONSUMER } from '../store/keys.ts'
import type { Credential, Found } from './credential.ts'
import type { Presented } from './presented.ts'

/** Some 200 bytes each; up to twice as many are kept. */
const MOST_REMEMBERED = 10_000

/** Shorter ones can be guessed, and longer ones are something else. */
const LENGTHS = { min: 16, max: 512 }

/** Whether it can be a key at all: visible ASCII of a sensible length. */
export function isOpaqueKey(text: string): boolean {
  return text.length >= LENGTHS.min && text.length <= LENGTHS.max && /^[!-~]+$/.test(text)
}

/** Consumers by digest of their keys. Plain data, so it may outlive the request. */
export class KeyMemory {
  readonly #consumers: Lru<string>

  constructor({ rememberForMs }: { rememberForMs: number }) {
    this.#consumers = new Lru({ size: MOST_REMEMBERED, maxAgeMs: rememberForMs })
  }

  consumerOf(digest: string): string | undefined {
    return this.#consumers.get(digest)
  }

  /** When a key comes to belong to another consumer, the isolate learns of it by one request that is refused. */
  remember(digest: string, consumer: string): void {
    this.#consumers.set(digest, consumer)
  }

  forget(digest: string): void {
    this.#consumers.delete(digest)
  }
}

/** @param consumer undefined: the store has to find out */
export function subjectOfOpaqueKey(digest: string, consumer: string | undefined): Subject {
  const name = consumer ?? UNKNOWN_CONSUMER
  const keys = { consumerKey: consumerKey(name), credentialKey: credentialKey(name, digest) }
  return consumer === undefined
    ? { kind: 'pointer', ...keys, pointerKey: pointerKey(digest) }
    : { kind: 'key', ...keys }
}

export interface OpaqueKeys {
  find(presented: Presented, headers: Headers): Found
  /** Remembers whose a key is, as the store has said, or forgets it. */
  learn(credential: Credential, outcome: Outcome): void
}

/** One for an isolate. */
export function createOpaqueKeys(
  settings: NonNullable<Credentials['opaqueKeys']>,
  keyPrefix: string,
): OpaqueKeys {
  const memory = new KeyMemory(settings)
  const { header } = settings
  const isApiKey = (text: string) => text.startsWith(`${keyPrefix}_`)

  return {
    find({ apiKey, bearer }, headers) {
      const text = header === undefined ? (apiKey ?? bearer) : (headers.get(header) ?? undefined)
      // Where API keys come too, one of ours is for that method; in a header of its own it is not an opaque key.
      if (text === undefined || (header === undefined && isApiKey(text))) return undefined
      if (isApiKey(text) || !isOpaqueKey(text)) return { reason: 'malformed' }
      const digest = sha256(text)
      const consumer = memory.consumerOf(digest)
      return {
        ...{ method: 'opaque-key', consumer: consumer ?? UNKNOWN_CONSUMER, digest, isVouched: false },
        header: header ?? (apiKey === undefined ? 'authorization' : 'x-api-key'),
        subject: subjectOfOpaqueKey(digest, consumer),
      }
    },

    learn({ digest }, { status, consumer }) {
      if (status === 'unknown-credential') memory.forget(digest)
      else if (consumer !== undefined) memory.remember(digest, consumer)
    },
  }
}
