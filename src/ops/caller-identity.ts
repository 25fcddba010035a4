/**
 * The identity of a caller as arguments of a command: the value of each part that rules count by, such as
 * `{ consumer: 'acme', 'header:x-tenant': 'a' }`. Finds the rules that count by exactly these parts, and their keys in the store.
 */
import { parseAddress } from '../config/address-ranges.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Config, GatewayRule } from '../config/compile.ts'
import { isOfConsumer } from '../config/identity-parts.ts'
import type { Credential } from '../credentials/credential.ts'
import { KEY_SECRET } from '../credentials/key-signature.ts'
import { addressIdentity } from '../set-ups/http/address.ts'
import type { BodyFields } from '../set-ups/http/body-fields.ts'
import { createKeyReader } from '../set-ups/http/identity-keys.ts'
import { consumerKey, UNKNOWN_CONSUMER } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { findKey } from './key-reference.ts'
import { parseMode } from './names.ts'

/**
 * Values by part, as a rule names the part. A consumer is spelled as in the keys of the store; a credential is the id of a key. An empty
 * value stands for a request without such a header, claim or route. Every caller has a mode, by default that of the key, else `live`.
 */
export type CallerIdentity = Readonly<Record<string, string>>

export interface Counters {
  /** The consumer, if the identity has one. */
  consumer: string | undefined
  mode: CallerMode
  /** The rules that count by exactly these parts. */
  rules: readonly GatewayRule[]
  keyOf(rule: GatewayRule): string
}

/** @throws AdminError `usage` for values that cannot be such parts, and if no rule counts by exactly several parts */
export async function countersOf(
  store: AdminStore,
  config: Config,
  identity: CallerIdentity,
): Promise<Counters> {
  const { address, credential: keyText } = identity
  if (address !== undefined && !parseAddress(address)) {
    throw new AdminError(
      'usage',
      `'${address.slice(0, 60)}' is not an address. Use an address such as 192.0.2.7 or 2001:db8::1.`,
    )
  }
  if (rulesBy(config, Object.keys(identity)).length === 0) mustBeOneCaller(config, Object.keys(identity))
  const key = keyText === undefined ? undefined : await findKey(store, keyText)
  const consumer = identity.consumer ?? key?.consumer
  if (key && key.consumer !== consumer)
    throw new AdminError('usage', `Key '${key.id}' belongs to consumer '${key.consumer}', not '${consumer}'.`)
  const ofKey = key?.record.mode ?? 'live'
  const mode = identity.mode === undefined ? ofKey : parseMode(identity.mode)
  if (key && mode !== ofKey) throw new AdminError('usage', `Key '${key.id}' has the mode ${ofKey}.`)
  const rules = rulesBy(config, Object.keys(identity), mode)
  const credential: Credential = {
    mode,
    ...{ method: methodOf(config, identity), consumer: consumer ?? UNKNOWN_CONSUMER, isVerified: true },
    digest: key?.digest ?? '',
    subject: { kind: 'token', consumerKey: consumerKey(consumer ?? UNKNOWN_CONSUMER) },
    claims: Object.fromEntries(namedParts(identity, 'claim')),
  }
  const caller = { addressIdentity: addressIdentity(address, config.address.ipv6Prefix), credential }
  const fields = await fieldsOf(store, identity)
  const read = createKeyReader(requestOf(identity), caller, identity.route || undefined, fields)
  return { consumer, mode, rules, keyOf: rule => read(rule)! }
}

/** @throws AdminError `refused` if the store does not have the secret of the digests */
async function fieldsOf({ keySigner }: AdminStore, identity: CallerIdentity): Promise<BodyFields> {
  const fields = new Map<string, string>()
  for (const [name, text] of namedParts(identity, 'field')) {
    if (!keySigner)
      throw new AdminError(
        'refused',
        `Counters by field:${name} have digests as their names. Use the command line, with ${KEY_SECRET} set to the secret of the deployment.`,
      )
    const digest = await keySigner.digestField(text)
    if (digest !== undefined) fields.set(name, digest)
  }
  return fields
}

/** `[['x-tenant', 'a']]` for the part `header`; without empty values. */
function namedParts(identity: CallerIdentity, part: string): [name: string, value: string][] {
  return Object.entries(identity).flatMap(([written, value]) =>
    written.startsWith(`${part}:`) && value !== '' ? [[written.slice(part.length + 1), value]] : [],
  )
}

function requestOf(identity: CallerIdentity): Request {
  const { method = 'GET', host = 'gateway.example', country, asn } = identity
  try {
    const request = new Request(`https://${host}/`, { method, headers: namedParts(identity, 'header') })
    // With defineProperty, because `cf` cannot be assigned on Cloudflare.
    return Object.defineProperty(request, 'cf', {
      value: { country: country || undefined, asn: asn || undefined },
    })
  } catch {
    throw new AdminError(
      'usage',
      "A value of --by is not valid. Use values such as method=GET, host=api.example.com and 'header:x-tenant=a'.",
    )
  }
}

/** The claims of an issuer have keys of their own. */
function methodOf({ credentials: { jwt } }: Config, identity: CallerIdentity): string {
  const [issuer] = identity.consumer?.split('~') ?? []
  if (issuer !== undefined && jwt.has(issuer)) return issuer
  const [first = 'api-key', ...others] = jwt.keys()
  if (others.length > 0 && Object.keys(identity).some(part => part.startsWith('claim:'))) {
    throw new AdminError(
      'usage',
      `Claims of different issuers are counted apart. Name a consumer of one of them, as in --consumer '${first}~…'.`,
    )
  }
  return first
}

/** The parts without those that are always known: `mode`, and `consumer` if a key names it. */
const distinct = (parts: readonly string[]) => {
  const isKnown = (part: string) =>
    (part === 'mode' && parts.length > 1) || (part === 'consumer' && parts.includes('credential'))
  return parts.filter(part => !isKnown(part))
}

/** The parts of a rule that are not among the given ones. @returns undefined if the rule does not count by all of these */
function missingParts(by: readonly string[], given: readonly string[]): string[] | undefined {
  const isCounted = (part: string) =>
    by.includes(part) || part === 'mode' || (part === 'consumer' && isOfConsumer(by as GatewayRule['by']))
  return given.every(isCounted) ? distinct(by).filter(part => !given.includes(part)) : undefined
}

const isOn = ({ mode }: GatewayRule) => mode !== 'off'

/** @param mode of the caller. Absent: rules for either mode */
export function rulesBy(
  { rules }: Pick<Config, 'rules'>,
  parts: readonly string[],
  mode?: string,
): GatewayRule[] {
  const wanted = distinct(parts)
  return rules.filter(rule => {
    const by = distinct(rule.by)
    const isForMode = mode === undefined || (rule.match.mode ?? mode) === mode
    const isSame = by.length === wanted.length && wanted.every(part => by.includes(part as never))
    return isOn(rule) && isForMode && isSame
  })
}

/** The rules that count by these parts and by more, each with the parts that are missing. */
export function rulesByMore(
  { rules }: Pick<Config, 'rules'>,
  parts: readonly string[],
): Map<string, readonly string[]> {
  const found = new Map<string, readonly string[]>()
  for (const rule of rules.filter(isOn)) {
    const missing = missingParts(rule.by, parts)
    if (missing && missing.length > 0) found.set(rule.name, missing)
  }
  return found
}

/** How to give a part on the command line. */
export function optionFor(part: string): string {
  if (part === 'consumer' || part === 'address' || part === 'mode') return `--${part} …`
  return part === 'credential' ? '--by credential=<key id>' : `--by ${part}=…`
}

/** @throws AdminError `usage` unless the parts are `consumer` or `address` alone */
function mustBeOneCaller(config: Config, given: readonly string[]): void {
  const parts = distinct(given)
  if (parts.length === 1 && (parts[0] === 'consumer' || parts[0] === 'address')) return
  const known = [...new Set(config.rules.filter(isOn).flatMap(({ by }) => by))]
  const unknown = parts.find(part => !known.includes(part as never))
  if (unknown !== undefined) {
    throw new AdminError(
      'usage',
      `No rule counts by '${unknown.slice(0, 60)}'.${didYouMean(unknown, known)} Rules count by: ${known.join(', ')}.`,
    )
  }
  const [more] = rulesByMore(config, parts)
  const hint = more
    ? ` Rule '${more[0]}' also counts by ${more[1].join(' and ')}: add ${more[1].map(optionFor).join(' ')}.`
    : ` Leave some of these parts out.`
  throw new AdminError('usage', `No rule counts by ${parts.join(' and ')} alone.${hint}`)
}

/** The parts of an identity, in words. Every caller has a mode, so it is only named if there is nothing else. */
export const namesOf = (parts: readonly string[]) =>
  (parts.length > 1 ? parts.filter(part => part !== 'mode') : parts).join(' and ')
