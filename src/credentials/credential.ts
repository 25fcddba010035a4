/** The credential of a request, after it was recognized as one of the accepted kinds. */
import type { CallerMode } from '../config/caller-mode.ts'
import type { CredentialMethod } from '../config/compile-route.ts'
import type { TokenRefusal } from '../config/jwt-method.ts'
import type { Subject } from '../script/evaluation.ts'

export interface Credential {
  method: CredentialMethod
  /**
   * The consumer, as it is written in keys of the store. It is verified once the store has admitted the request.
   * UNKNOWN_CONSUMER for an opaque key that this isolate does not know yet.
   */
  consumer: string
  /** SHA-256 of the credential in hex; of a token, without its signature, which has several valid spellings. */
  digest: string
  /** Absent: live. Of an opaque key that this isolate does not know yet, it is assumed, and the store checks it. */
  mode?: CallerMode
  /** The keys that the store checks for this credential. */
  subject: Subject
  /** The header that it was sent in, in lower case. Absent if a hook of the config has named the consumer. */
  header?: string
  /** The consumer is verified without the store: by the signature of a token, or by a hook of the config. */
  isVerified: boolean
  claims?: Readonly<Record<string, unknown>>
}

/** A credential that is refused without asking the store. */
export interface RefusedCredential {
  /** `unsigned`: the config requires signed keys, and this one has no signature, or one by an unknown secret. */
  reason: TokenRefusal | 'not-accepted' | 'unsigned'
  /** For the log, never for the caller. Contains nothing of the credential. */
  detail?: string
  /** For the caller, if the usual text for the reason does not fit. */
  advice?: string
  /** Set if it counts as a guess: the credential as it would be, if it were valid. */
  guess?: Credential
}

/** The result of looking for one kind of credential. Undefined: the request has none of this kind. */
export type FindResult = Credential | RefusedCredential | undefined
