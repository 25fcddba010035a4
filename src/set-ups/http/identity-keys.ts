/** Creates the store key of the identity that a rule counts. Text from the caller is escaped and bounded. */

import type { GatewayRule } from '../../config/compile-rule.ts'
import {
  BOTH_MODES,
  type By,
  isField,
  isOfConsumer,
  needsCredential,
  needsToken,
  type PartName,
  readPart,
  separatesModes,
} from '../../config/identity-parts.ts'
import type { Credential } from '../../credentials/credential.ts'
import { identityStateKey, type PartValue } from '../../store/keys.ts'
import type { BodyFields } from './body-fields.ts'
import { type Caller, modeOf } from './caller.ts'
import { cfOf } from './connection.ts'
import { hostOf } from './path.ts'

/** The sources of the values of an identity. */
interface Source {
  request: Request
  caller: Caller
  /** Name of the route. */
  route: string | undefined
  /** Absent: the body was not read. */
  fields: BodyFields | undefined
}

/** The consumer or address that the state belongs to, if any. The key starts with it. */
type Owner = Parameters<typeof identityStateKey>[0]

/**
 * Reads each part: its label in the key, and its value, which is undefined if the request has none. A part that the
 * owner already names is left out of the key. Labels are part of the keys in the store, so never change one.
 */
const readers: Record<PartName, (source: Source, name: string, owner: Owner) => PartValue | undefined> = {
  consumer: () => undefined,
  global: () => undefined,
  address: ({ caller }, _, owner) =>
    owner && 'consumer' in owner ? ['address', caller.addressIdentity] : undefined,
  credential: ({ caller }) => ['credential', caller.credential?.digest],
  route: ({ route }) => ['route', route],
  method: ({ request }) => ['method', request.method],
  host: ({ request }) => ['host', hostOf(new URL(request.url))],
  header: ({ request }, name) => [
    `header.${encodeURIComponent(name)}`,
    request.headers.get(name) ?? undefined,
  ],
  field: ({ fields }, name) => [`field.${encodeURIComponent(name)}`, fields!.get(name)],
  claim: ({ caller }, name) => claimOf(caller.credential!, name),
  mode: ({ caller }) => ['mode', modeOf(caller.credential)],
  country: ({ request }) => ['country', textOf(cfOf(request).country)],
  asn: ({ request }) => ['asn', textOf(cfOf(request).asn)],
}

/**
 * Creates a function that returns the key under which a rule counts this request, or undefined if the caller has no
 * such identity.
 *
 * @param route name of the request's route
 * @param fields of its body; without them, it has no identity under rules by a field
 */
export function createKeyReader(
  request: Request,
  caller: Caller,
  route: string | undefined,
  fields?: BodyFields,
): (rule: Pick<GatewayRule, 'by' | 'identity' | 'acrossModes'>) => string | undefined {
  // Cached, because several rules count the same identity.
  const known = new Map<string, string | undefined>()
  return rule => {
    const { identity } = rule
    if (!known.has(identity)) known.set(identity, identityKey(rule, { request, caller, route, fields }))
    return known.get(identity)
  }
}

function identityKey(
  { by, acrossModes }: Pick<GatewayRule, 'by' | 'acrossModes'>,
  source: Source,
): string | undefined {
  const { credential } = source.caller
  if (!credential && by.some(needsCredential)) return undefined
  if (!credential?.claims && by.some(needsToken)) return undefined
  if (!source.fields && by.some(isField)) return undefined

  const owner = ownerOf(by, source.caller)
  const values = by.flatMap(written => {
    const { part, name } = readPart(written)
    const value = readers[part](source, name, owner)
    return value ? [value] : []
  })
  if (acrossModes) return identityStateKey(owner, [...values, [BOTH_MODES, undefined]])
  const isApart = modeOf(source.caller.credential) === 'test' && separatesModes(by)
  return identityStateKey(owner, values, isApart ? 'test' : 'state')
}

function ownerOf(by: readonly By[], { credential, addressIdentity }: Caller): Owner {
  if (credential && isOfConsumer(by)) return { consumer: credential.consumer }
  return by.includes('address') ? { address: addressIdentity } : undefined
}

/** The same claim of different issuers gives different identities. */
function claimOf({ method, claims = {} }: Credential, name: string): PartValue {
  const value = Object.hasOwn(claims, name) ? textOf(claims[name]) : undefined
  return [`claim.${method}.${encodeURIComponent(name)}`, value]
}

/**
 * Lists, objects, null, and numbers beyond ±(2^53 - 1), which parsing may have rounded, have no text, so they cannot be
 * counted.
 */
function textOf(value: unknown): string | undefined {
  if (typeof value === 'number') return Math.abs(value) <= Number.MAX_SAFE_INTEGER ? String(value) : undefined
  return typeof value === 'string' || typeof value === 'boolean' ? String(value) : undefined
}
