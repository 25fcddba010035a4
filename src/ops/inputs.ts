/** Arguments of changes, from texts and times as users write them. */
import { didYouMean } from '../config/check/did-you-mean.ts'
import { parseDuration } from '../config/duration.ts'
import { isScope, SCOPE_NAMES } from '../scopes.ts'
import { AdminError } from './admin-error.ts'
import type { NewKey, OpaqueKey } from './keys.ts'
import {
  parseConsumerName,
  parseFutureTime,
  parseMode,
  parsePlan,
  parseShortText,
  printable,
} from './names.ts'
import type { NewToken } from './tokens.ts'

/** A time, or a text: a duration from now such as `24h`, a time such as `2030-12-31T18:00:00Z`, or `never`. */
export type TimeInput = Date | string

/**
 * Refuses a field that an operation does not have: with a misspelled `expires`, a key would never expire.
 * @throws AdminError `usage`
 */
export function checkFields(operation: string, input: object, known: readonly string[]): void {
  const unknown = Object.keys(input).find(name => !known.includes(name))
  if (unknown === undefined) return
  throw new AdminError(
    'usage',
    `${operation} has no field '${unknown.slice(0, 60)}'. Fields: ${known.join(', ')}.`,
  )
}

export const NEW_KEY_FIELDS = ['consumer', 'plan', 'label', 'mode', 'expires'] as const
export const CHANGE_FIELDS = ['reason', 'until', 'by'] as const

/** A key to create or to import. */
export interface NewKeyInput {
  consumer: string
  /** Default: the plan of the consumer. */
  plan?: string | undefined
  /** To recognize the key by. */
  label?: string | undefined
  /** `live` or `test`. Default: live. */
  mode?: string | undefined
  /** Default: never. */
  expires?: TimeInput | undefined
}

/** @param plans of the config. @throws AdminError `usage` */
export async function parseNewKey(input: NewKeyInput, plans: readonly string[]): Promise<NewKey> {
  const { plan, label, mode, expires } = input
  const expiresAt = expires === undefined ? undefined : parseEnd(expires)
  return {
    consumer: await parseConsumerName(input.consumer),
    ...(plan !== undefined && { plan: parsePlan(plan, plans) }),
    ...(label !== undefined && { label: parseShortText(label, 'label') }),
    ...(mode !== undefined && { mode: parseMode(mode) }),
    ...(expiresAt && { expiresAt }),
  }
}

/** @throws AdminError `usage` for another text than a SHA-256 */
export function parseOpaqueKey(opaque: OpaqueKey): OpaqueKey {
  if (!('digest' in opaque) || /^[0-9a-f]{64}$/i.test(opaque.digest)) return opaque
  throw new AdminError('usage', 'This is not a SHA-256 digest. Use 64 hexadecimal digits.')
}

/** A service token to create. */
export interface NewTokenInput {
  /** Of its owner or its purpose. */
  name: string
  /** Such as `consumers:block`. */
  scopes: readonly string[]
  /** Default: never. */
  expires?: TimeInput | undefined
}

/**
 * @param scopes at least one
 * @param limits the names of the limits in the config, for the message
 * @throws AdminError `usage`
 */
function checkScopes(scopes: readonly string[], limits: Iterable<string> = []): void {
  const unknown = scopes.length === 0 ? '' : scopes.find(scope => !isScope(scope))
  if (unknown === undefined) return
  const known = [...SCOPE_NAMES, ...Array.from(limits, name => `limits:use:${name}`)]
  throw new AdminError(
    'usage',
    `'${printable(unknown.slice(0, 60))}' is not a scope.${didYouMean(unknown, known)} Scopes: ${known.join(', ')}.`,
  )
}

/** @param limits the names of the limits of the config, for the message. @throws AdminError `usage` */
export function parseNewToken({ name, scopes, expires }: NewTokenInput, limits: Iterable<string>): NewToken {
  checkScopes(scopes, limits)
  const expiresAt = expires === undefined ? undefined : parseEnd(expires)
  return { name: parseShortText(name, 'name'), scopes, ...(expiresAt && { expiresAt }) }
}

/** @returns undefined for `never`. @throws AdminError `usage` for a time that is not in the future */
export const parseEnd = (time: TimeInput): Date | undefined => parseFutureTime(textOf(time))

/** The text of a time, for the parsers of names.ts. */
export const textOf = (time: TimeInput): string =>
  typeof time === 'string' || Number.isNaN(time.getTime()) ? String(time) : time.toISOString()

/** Why a change is made, and how long it lasts. */
export interface ChangeInput {
  /** Shown to administrators only. */
  reason?: string | undefined
  /** Default: until it is undone. Of a block that is changed: the end that it has. */
  until?: TimeInput | undefined
  /** The author. Default: that of `createAdmin`. */
  by?: string | undefined
}

/** The author, the reason and the end of a change. `until` is null for `never`, and absent if no end was given. */
export interface Signature {
  by: string
  reason?: string
  until?: Date | null
}

/** @param by the author, unless the change names another. @throws AdminError `usage` */
export function parseSignature({ reason, until, by: own }: ChangeInput, by: string): Signature {
  return {
    by: parseShortText(own ?? by, 'name'),
    ...(reason !== undefined && { reason: parseShortText(reason, 'reason') }),
    ...(until !== undefined && { until: parseEnd(until) ?? null }),
  }
}

const RULE_MODES = ['enforce', 'shadow', 'off']

/** The mode of a switch or an override, which nothing else checks in JavaScript. @throws AdminError `usage` */
export function checkRuleMode(mode: string | undefined): void {
  if (mode === undefined || RULE_MODES.includes(mode)) return
  const meant = didYouMean(String(mode), RULE_MODES)
  throw new AdminError(
    'usage',
    `'${printable(String(mode).slice(0, 60))}' is not a mode of a rule.${meant} Use enforce, shadow or off.`,
  )
}

/** As checkRuleMode, of a share. @throws AdminError `usage` */
export function checkShare(share: number | undefined): void {
  if (share === undefined || (share >= 0 && share <= 1)) return
  throw new AdminError('usage', 'The share is not valid. Use a number from 0 to 1.')
}

/** Of a switch, which has no earlier end to keep. */
export function switchOf({ until, ...signature }: Signature) {
  return { at: new Date(), ...signature, ...(until && { until }) }
}

/** How long the old key of a rotation stays valid. @param name of the argument, for the error. @returns ms */
export function parseOverlap(text: string, name: string): number {
  const microseconds = text === '0' ? 0 : parseDuration(text)
  if (microseconds !== undefined) return microseconds / 1000
  throw new AdminError(
    'usage',
    `${name}: '${text.slice(0, 60)}' is not a duration. Use a duration such as '24h', or 0.`,
  )
}
