/** Who makes a request, as far as the request says it. */
import type { Credential } from '../../credentials/credential.ts'
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
}
