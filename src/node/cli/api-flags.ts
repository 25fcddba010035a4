/** What the commands that use the HTTP API share: their flags, and what they send of them. */

import { AdminError } from '../../ops/admin-error.ts'
import type { Bound } from '../../ops/stats-bounds.ts'
import type { CallNumbers } from '../../set-ups/limits/arguments.ts'
import type { SignedFlags, StoreFlags } from './administration.ts'
import type { ApiClient } from './api-client.ts'

/** Of all commands together. */
export interface Flags extends StoreFlags, Omit<SignedFlags, 'by'> {
  by?: string | Record<string, string>
  as?: string
  yes?: boolean
  consumer?: string
  plan?: string | false
  label?: string
  mode?: 'enforce' | 'shadow' | 'off'
  expires?: string
  sha256?: string
  clear?: boolean
  overlap?: string
  remove?: boolean
  removeStale?: boolean
  share?: number
  rule?: string
  numbers?: CallNumbers
  /** Of `stats`: how far back (ms). Of `audit`: a time. */
  since?: number | Date
  shadow?: boolean
  top?: string
  target?: string
  follow?: boolean
  history?: boolean
  prometheus?: boolean
  failAbove?: Bound[]
  name?: string
  scopes?: string
}

/** Runs a command, and prints the document. */
export type Run = (api: ApiClient, flags: Flags, ...args: string[]) => Promise<void>

export const notInApi = (words: string) =>
  new AdminError(
    'usage',
    `The API does not have '${words}'. Use --url and --token of the store instead of --api.`,
  )

export const reasonOf = ({ reason }: Flags) => ({ reason })

/** The end of a change as the API takes it: a duration, a time or `never`. */
export const endOf = ({ for: duration, until }: Flags) => ({ until: duration ?? until })

export const signatureIn = ({ by: _, ...flags }: Flags): SignedFlags => flags
