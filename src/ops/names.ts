/** Converts arguments of commands to the form in the store: consumers, texts and times. Each error says what to write instead. */

import { CALLER_MODES, type CallerMode, isCallerMode } from '../config/caller-mode.ts'
import { didYouMean } from '../config/check/did-you-mean.ts'
import { parseDuration } from '../config/duration.ts'
import { isConsumerName } from '../config/forms.ts'
import { hasSecret } from '../credentials/find-secret.ts'
import { escaped } from '../store/escape.ts'
import { AdminError, type Suggest, unknownName } from './admin-error.ts'

/** The result of `escaped` for a text that is too long to be part of a key. */
const HASH = /^#[0-9a-f]{64}$/

/**
 * Converts the name of a consumer to its form in keys of the store. The name of a consumer of tokens has two parts, as in
 * `auth0~user|1`. The second part is a claim. As in a URL, `%` always begins an escape in it, and other characters can be escaped or
 * not: so each text names one claim, and what Sluice prints (`auth0~user%7C1`) names the claim that it was printed for.
 * @throws AdminError `usage`
 */
export async function parseConsumerName(text: string): Promise<string> {
  mustBePublic(text, 'name of the consumer')
  const [, method, claim] = /^([a-z0-9][a-z0-9_-]{0,62})~(.+)$/s.exec(text) ?? []
  if (method && claim) return `${method}~${HASH.test(claim) ? claim : escaped(decoded(claim))}`
  if (isConsumerName(text)) return text
  throw new AdminError(
    'usage',
    `'${shown(text)}' is not a consumer name. Use 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or ` +
      'a digit; for a consumer identified by tokens, use <issuer>~<subject>.',
  )
}

function decoded(claim: string): string {
  try {
    const text = decodeURIComponent(claim)
    mustBePublic(text, 'name of the consumer')
    return text
  } catch (error) {
    if (error instanceof AdminError) throw error
    throw new AdminError(
      'usage',
      `'${shown(claim)}' has a % that begins no escape, as in %7C. In the name of a consumer, write %25 for a percent sign.`,
    )
  }
}

/** Labels, names and reasons are stored and shown in clear. @throws AdminError `usage` for an API key or a service token */
function mustBePublic(text: string, what: string): void {
  if (!hasSecret(text)) return
  throw new AdminError(
    'usage',
    `The ${what} contains an API key or a service token. Nothing was stored. Leave it out, because a ${what} is shown in clear.`,
  )
}

/** @throws AdminError `usage` if the config does not have this plan */
export function parsePlanName(text: string, plans: readonly string[], suggest?: Suggest): string {
  if (plans.includes(text)) return text
  const problem = `The config has no plan '${shown(text)}'.`
  throw unknownName('usage', problem, text, ['Plans', plans], suggest)
}

/** As parsePlanName, with a suggestion. */
export const parsePlan = (text: string, plans: readonly string[]): string =>
  parsePlanName(text, plans, didYouMean)

/** @throws AdminError `usage` */
export function parseMode(text: string): CallerMode {
  if (isCallerMode(text)) return text
  throw new AdminError(
    'usage',
    `'${shown(text)}' is not a mode.${didYouMean(text, CALLER_MODES)} Use ${CALLER_MODES.join(' or ')}.`,
  )
}

const MAX_TEXT = 100

/**
 * Control characters, line separators, and invisible characters such as U+202E, which shows the text after it from right to left. A
 * terminal would show another text than the one that is stored.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u

/** Replaces characters that change how a terminal shows a text. */
export const printable = (text: string): string =>
  Array.from(text, character => (UNPRINTABLE.test(character) ? '?' : character)).join('')

/**
 * Parses a label, a reason or the name of an operator. It must be short, because every request reads it together with the record.
 * @throws AdminError `usage`
 */
export function parseShortText(text: string, what: string): string {
  const trimmed = text.trim()
  mustBePublic(trimmed, what)
  const [hidden] = UNPRINTABLE.exec(trimmed) ?? []
  if (hidden !== undefined) {
    const name = `U+${hidden.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}`
    throw new AdminError(
      'usage',
      `The ${what} is not valid: it contains ${name}, an invisible character. Remove it; a ${what} is one line of visible text.`,
    )
  }
  if (trimmed && trimmed.length <= MAX_TEXT && trimmed.isWellFormed()) return trimmed
  throw new AdminError('usage', `The ${what} is not valid. Use 1 to ${MAX_TEXT} characters on one line.`)
}

/**
 * Parses a time: `now`, `never`, a duration from now, or an ISO 8601 time.
 * @returns undefined for `never`
 * @throws AdminError `usage`
 */
export function parseTime(text: string, now = new Date()): Date | undefined {
  if (text === 'never') return undefined
  if (text === 'now') return now
  const microseconds = parseDuration(text)
  const at = microseconds === undefined ? timestampOf(text) : now.getTime() + Math.ceil(microseconds / 1000)
  if (Number.isNaN(at))
    throw new AdminError(
      'usage',
      `'${shown(text)}' is neither a duration nor a valid time. Use a duration such as '24h' or '90d', or a time such as ` +
        `'2030-12-31' (UTC) or '2030-12-31T18:00:00Z', or 'never'.`,
    )
  if (at - now.getTime() <= MAX_YEARS * YEAR_MS) return new Date(at)
  throw new AdminError(
    'usage',
    `The time is more than ${MAX_YEARS} years ahead. Use an earlier time, or 'never'.`,
  )
}

const MAX_YEARS = 100
const YEAR_MS = 366 * 86400e3

/** ms since the epoch. @returns NaN if the text is not a time. `Date` reads 2030-02-31 as 3 March, and no date in 2030-13-01. */
function timestampOf(text: string): number {
  const [, day] = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d))?$/.exec(text) ?? []
  return day && new Date(day).toJSON()?.startsWith(day) ? Date.parse(text) : Number.NaN
}

/** Like `parseTime`, for times that must be in the future. @throws AdminError `usage` */
export function parseFutureTime(text: string, now = new Date()): Date | undefined {
  const time = parseTime(text, now)
  if (time === undefined || time > now) return time
  throw new AdminError('usage', `'${shown(text)}' is in the past. Use a later time.`)
}

/** Shortens a text for a message, and replaces invisible characters. */
const shown = (text: string) => printable(text.length > 60 ? `${text.slice(0, 57)}…` : text)
