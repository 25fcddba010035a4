/** The identity that a rule counts by, as a key of the store. Text from the caller is escaped and bounded. */
import type { By } from '../../config/check/rule-schema.ts'
import { type IdentityPart, identityStateKey } from '../../store/keys.ts'
import { cfOf } from './connection.ts'
import type { Caller } from './identify.ts'
import { hostOf } from './path.ts'

/**
 * Keys for one request.
 * @param route name of the request's route
 * @returns the key for what a rule is counted by; undefined where the caller has no such identity
 */
export function identityKeys(
  request: Request,
  caller: Caller,
  route: string | undefined,
): (by: readonly By[]) => Promise<string | undefined> {
  const known = new Map<string, Promise<string | undefined>>()
  return by => {
    const name = by.join(' ')
    const key = known.get(name) ?? identityKey(by, request, caller, route)
    known.set(name, key)
    return key
  }
}

async function identityKey(
  by: readonly By[],
  request: Request,
  caller: Caller,
  route: string | undefined,
): Promise<string | undefined> {
  const { credential } = caller
  if (!credential && by.some(part => /^(consumer|credential|claim:)/.test(part))) return undefined
  // Only a token has claims.
  if (!credential?.claims && by.some(part => part.startsWith('claim:'))) return undefined

  const isConsumers = by.includes('consumer') || by.includes('credential')
  const owner =
    isConsumers && credential
      ? { consumer: credential.consumer }
      : by.includes('address')
        ? { address: caller.addressIdentity }
        : undefined
  const parts = by.flatMap((part): IdentityPart[] => {
    switch (part) {
      case 'consumer':
      case 'global':
        return []
      case 'address':
        return isConsumers ? [[part, caller.addressIdentity]] : []
      case 'credential':
        return [[part, credential?.digest]]
      case 'route':
        return [[part, route]]
      case 'method':
        return [[part, request.method]]
      case 'host':
        return [[part, hostOf(new URL(request.url))]]
      case 'country':
      case 'asn':
        return [[part, textOf(cfOf(request)[part])]]
      default:
        return [other(part, request, caller)]
    }
  })
  return await identityStateKey(owner, parts)
}

/** The same claim of different issuers gives different identities. */
function other(part: By, { headers }: Request, { credential }: Caller): IdentityPart {
  const [kind, ...rest] = part.split(':')
  const name = rest.join(':')
  if (kind === 'header') return [`header.${encodeURIComponent(name)}`, headers.get(name) ?? undefined]
  return [
    `claim.${credential!.method}.${encodeURIComponent(name)}`,
    Object.hasOwn(credential!.claims!, name) ? textOf(credential!.claims![name]) : undefined,
  ]
}

/** Lists and objects cannot be counted by, and neither can numbers that were rounded when they were parsed. */
function textOf(value: unknown): string | undefined {
  if (typeof value === 'number') return Math.abs(value) <= Number.MAX_SAFE_INTEGER ? String(value) : undefined
  return typeof value === 'string' || typeof value === 'boolean' ? String(value) : undefined
}
