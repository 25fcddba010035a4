/**
 * Service tokens, for the HTTP API: `slt_<secret><checksum>`, or `slt_test_<secret><checksum>` with an environment.
 *
 * - The secret has 43 random base62 characters (256 bits). A token names no caller: only its digest leads to its record.
 * - The checksum is that of API keys (api-key.ts). Typos and garbage are refused without a trip to the store.
 *
 * The store has only the SHA-256 of a token.
 */
import { checksum, randomBase62 } from './api-key.ts'

/** The text that every service token starts with, for secret scanners. */
const PREFIX = 'slt'
const SECRET_LENGTH = 43
const CHECKSUM_LENGTH = 6

const FORM = /^slt_(?:([a-z0-9]{1,16})_)?[0-9A-Za-z]{49}$/

/** Creates a token. It cannot be recovered: show it once, and store only its SHA-256. */
export function mintServiceToken(environment: string | undefined): string {
  const body = `${PREFIX}_${environment === undefined ? '' : `${environment}_`}${randomBase62(SECRET_LENGTH)}`
  return body + checksum(body)
}

/**
 * Reads the environment from a token, without a trip to the store.
 * @returns undefined if the form or the checksum is wrong. A result proves nothing: anyone can write a token
 */
export function readServiceToken(text: string): { environment: string | undefined } | undefined {
  const form = FORM.exec(text)
  if (!form || checksum(text.slice(0, -CHECKSUM_LENGTH)) !== text.slice(-CHECKSUM_LENGTH)) return undefined
  return { environment: form[1] }
}

/** The id of a token, by which people name it. @param digits more than 12 only if the digests of two tokens begin alike */
export const serviceTokenId = (digest: string, digits = 12): string => digest.slice(0, digits)

/** Whether a text can only be meant as a service token, whatever its form. */
export const looksLikeServiceToken = (text: string): boolean => text.startsWith(`${PREFIX}_`)
