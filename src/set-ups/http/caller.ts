/** The caller of a request, as far as the request identifies it. */
import type { CallerMode } from '../../config/caller-mode.ts'
import type { Credential } from '../../credentials/credential.ts'
import { UNKNOWN_CONSUMER } from '../../store/keys.ts'
import type { EarlyRefusal, Ruling } from './ruling.ts'

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

/** The mode of a caller with this credential. A caller without one is live. */
export const modeOf = (credential: Credential | undefined): CallerMode => credential?.mode ?? 'live'

/** Names the caller: its consumer, else its credential if only the store knows the consumer, else its address. */
export function callerKey({ credential, addressIdentity }: Caller): string {
  if (!credential) return addressIdentity
  return credential.consumer === UNKNOWN_CONSUMER ? credential.digest : credential.consumer
}

/** Only a verified consumer: without the store, the consumer of a key is only claimed. */
export function verifiedConsumer(caller: Caller | undefined, ruling: Ruling | undefined): string | undefined {
  const credential = caller?.credential
  const { plan, consumer } = (ruling ?? {}) as { plan?: string; consumer?: string }
  if (!credential || !(plan || credential.isVerified)) return undefined
  const known = consumer ?? credential.consumer
  return known === UNKNOWN_CONSUMER ? undefined : known
}
