/** Identifies the caller by its address and credential. Refuses blocked addresses and countries. */
import { isInRanges } from '../../config/address-ranges.ts'
import type { CallerMode } from '../../config/caller-mode.ts'
import type { Config } from '../../config/compile.ts'
import { ANONYMOUS } from '../../config/compile-route.ts'
import type { CallerExchange, RememberedCaller } from '../../credentials/caller-memory.ts'
import type { Credential } from '../../credentials/credential.ts'
import { createCredentialFinder, type FinderParts } from '../../credentials/find-credential.ts'
import type { Outcome } from '../../script/evaluation.ts'
import { type AddressParts, addressIdentity, clientAddress } from './address.ts'
import type { Caller } from './caller.ts'
import { cfOf } from './connection.ts'
import type { Matched } from './match.ts'
import type { Forbidden } from './ruling.ts'

type Settings = Pick<Config, 'credentials' | 'environment' | 'address' | 'block' | 'plans'>

export interface Identifier {
  /**
   * Identifies the caller of a request. Refuses it if it is blocked, or has no accepted credential.
   *
   * @param callIdentifyHook calls the hook `identify`, if the config has one
   */
  identify(
    request: Request,
    matched: Matched,
    peer?: string,
    callIdentifyHook?: () => Promise<Credential | undefined>,
  ): Promise<Caller>
  /** The client's address in canonical form. */
  addressOf(request: Request, peer?: string): string | undefined
  /** The refusal of a blocked address or country. CORS preflights have no credential, so they need only this check. */
  refuse(request: Request, client: string | undefined): Forbidden | undefined
  /** Remembers the store's answer about the caller's credential. */
  remember(caller: Caller, outcome: Outcome): void
  /** Shares what the store answers about credentials with other processes. */
  shareWith(exchange: CallerExchange): void
  /** The store's recent answer about the caller's credential. */
  recall(caller: Caller): RememberedCaller | undefined
  /** The caller with the mode, and with the consumer if only the store knew it, in the record of its opaque key. Remembers both. */
  useMode(caller: Caller, mode: CallerMode, consumer: string | undefined): Caller
}

/**
 * Creates the identifier of an isolate. It remembers consumers and issuers' keys, as plain data.
 *
 * @param parts at least those that the config uses
 * @param variables of the environment, including the secrets of issuers and of API keys
 * @param now ms since the epoch
 * @throws ConfigError naming a secret that is missing or too short
 */
export function createIdentifier(
  config: Settings,
  parts: AddressParts & FinderParts,
  variables: Readonly<Record<string, unknown>> = {},
  now?: () => number,
): Identifier {
  const { address, block } = config
  const credentials = createCredentialFinder(config, variables, parts, now)

  const addressOf = (request: Request, peer?: string) => clientAddress(request, address, peer, parts)

  function refuse(request: Request, client: string | undefined): Forbidden | undefined {
    if (isInRanges(block.addresses, client)) return { kind: 'forbidden', what: 'address' }
    // Checked first, because on Workers the first access to `request.cf` parses all of it.
    if (block.countries.size === 0) return undefined
    const { country } = cfOf(request)
    const isBlocked = typeof country === 'string' && block.countries.has(country)
    return isBlocked ? { kind: 'forbidden', what: 'country' } : undefined
  }

  return {
    async identify(request, { settings: { accept } }, peer, callIdentifyHook) {
      const client = addressOf(request, peer)
      const caller = {
        ...(client !== undefined && { address: client }),
        addressIdentity: addressIdentity(client, address.ipv6Prefix),
      }
      const refusal = refuse(request, client)
      if (refusal) return { ...caller, refusal }

      const found = await credentials.find(accept, request.headers, callIdentifyHook)
      if (found && !('reason' in found)) return { ...caller, credential: found }
      if (!found && accept.includes(ANONYMOUS)) return caller
      const accepted = credentials.describe(accept)
      if (found) {
        const { guess, ...refused } = found
        const refusal = { kind: 'unauthenticated', ...refused, accepted } as const
        return { ...caller, refusal, ...(guess && { guess }) }
      }
      return { ...caller, refusal: { kind: 'unauthenticated', reason: 'missing', accepted } }
    },

    addressOf,

    refuse,

    remember: ({ credential }, outcome) => credentials.remember(credential, outcome),

    shareWith: credentials.shareWith,

    recall: ({ credential }) => credentials.recall(credential),

    useMode: (caller, mode, consumer) => ({
      ...caller,
      credential: credentials.useMode(caller.credential!, mode, consumer),
    }),
  }
}
