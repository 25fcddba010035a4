/** Service tokens, as administration has them. */
import type { TokenRecord } from '../store/records.ts'
import type { AdminError } from './admin-error.ts'

export interface TokenInfo extends TokenRecord {
  id: string
}

/** A new token, which cannot be shown again. */
export interface CreatedToken extends TokenInfo {
  token: string
  digest: string
}

export interface FoundToken {
  id: string
  digest: string
  record: TokenRecord
}

export interface RotatedToken {
  created: CreatedToken
  /** When the old token ends. Absent: its end could not be set, because of `failure`. */
  oldEndsAt?: Date
  failure?: AdminError
}

/** What becomes of a token and its successor. */
export interface Rotation {
  old: FoundToken
  created: CreatedToken
  /** The record of the new token. */
  next: TokenRecord
  /** When the old token ends. */
  endsAt: Date
}
