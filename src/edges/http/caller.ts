/** Who makes a request, as far as the request says it. */
import type { Credential } from '../../credentials/credential.ts'
import { UNKNOWN_CONSUMER } from '../../store/keys.ts'
import type { Refusal } from './ruling.ts'

export interface Caller {
  /** Of the client, in its one spelling; absent when it is not known. */
  address?: string
  /** What rules `by: 'address'` count by. */
  addressIdentity: string
  /** The request is refused without asking the store. */
  refusal?: Refusal
  /** Absent: anonymous. */
  credential?: Credential
  /** Of an anonymous caller, where a hook of the config names one. */
  plan?: string
}

/** Names the caller: the consumer, else the credential where only the store knows whose it is, else the address. */
export function callerKey({ credential, addressIdentity }: Caller): string {
  if (!credential) return addressIdentity
  return credential.consumer === UNKNOWN_CONSUMER ? credential.digest : credential.consumer
}
