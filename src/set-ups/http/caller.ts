/** The caller of a request, as far as the request identifies it. */
import type { Credential } from '../../credentials/credential.ts'
import { UNKNOWN_CONSUMER } from '../../store/keys.ts'
import type { EarlyRefusal } from './ruling.ts'

export interface Caller {
  /** The client's address in canonical form; absent if unknown. */
  address?: string
  /** The identity that rules with `by: 'address'` count. */
  addressIdentity: string
  /** Set if the request is refused without asking the store. */
  refusal?: EarlyRefusal
  /** Absent for anonymous callers. */
  credential?: Credential
  /** With a refusal that counts as a guess: the credential as it would be, if it were valid. */
  guess?: Credential
  /** The plan that a hook of the config names for an anonymous caller. */
  plan?: string
}

/** Names the caller: its consumer, else its credential if only the store knows the consumer, else its address. */
export function callerKey({ credential, addressIdentity }: Caller): string {
  if (!credential) return addressIdentity
  return credential.consumer === UNKNOWN_CONSUMER ? credential.digest : credential.consumer
}
