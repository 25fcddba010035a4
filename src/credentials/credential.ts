/** What a request has shown to say who calls, recognized as one of the kinds that are taken. */
import type { CredentialMethod } from '../config/compile-route.ts'
import type { Subject } from '../script/evaluation.ts'

export interface Credential {
  method: CredentialMethod
  /**
   * Whose it claims to be, as it stands in keys of the store; true once the store has admitted the request. Of an opaque
   * key that this isolate has not seen: UNKNOWN_CONSUMER.
   */
  consumer: string
  /** SHA-256 of what was presented. */
  digest: string
  /** What the store is asked about it. */
  subject: Subject
  /** The header it came in, in lower case; absent: a hook of the config has named the consumer. */
  header?: string
  /** It is true already, whatever the store says: a signature vouches for it. */
  isVouched: boolean
  claims?: Readonly<Record<string, unknown>>
}

/** Refused by what the request shows, without the store. */
export interface RefusedCredential {
  reason: 'malformed' | 'not-accepted' | 'expired' | 'unverifiable'
  /** For the log, never for the caller. Holds nothing of the credential. */
  detail?: string
}

/** What a method finds in a request; undefined: nothing of its kind is shown. */
export type Found = Credential | RefusedCredential | undefined
