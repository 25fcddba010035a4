/**
 * Signed API keys. With a secret (`SLUICE_KEY_SECRET`), new keys end in a signature, so an isolate can check a key by itself: a
 * made-up key is refused without a trip, and during an outage a key that the isolate has never seen can pass.
 *
 *     slk_<consumer>_<secret><mode><day><id><MAC>
 *                     30      1     3    2   22     base62 characters
 *
 * - The mode is `l` (live) or `t` (test); the day is when the key was made, in days since 1970; the id is that of the secret that signs.
 * - The MAC is HMAC-SHA-256, truncated to 128 bits. It covers the environment and everything before it. The environment is written
 *   separately, because the text of a key does not show where it ends: `slk_test_acme_…` is a key of `acme` in the environment
 *   `test`, or one of `test_acme` without an environment.
 */
import type { CryptoKey } from 'jose'
import { BASE62 } from '../base62.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import type { Config } from '../config/compile.ts'
import { ConfigError } from '../config/config-error.ts'
import { base62, mintKeyBody, randomBase62 } from './api-key.ts'
import type { Credential, FindResult } from './credential.ts'

/** The variable with the secrets. */
export const KEY_SECRET = 'SLUICE_KEY_SECRET'

const FORM = /^(.*_[0-9A-Za-z]{30}[lt]([0-9A-Za-z]{3})([0-9A-Za-z]{2}))([0-9A-Za-z]{22})$/

/** Whether an API key has a signature, which may be wrong. */
export const isSigned = (key: string) => FORM.test(key)

const DAY_MS = 86400e3

/** A secret that signs keys. */
export interface KeySecret {
  /** Two base62 characters, which are part of each key that it signs. */
  id: string
  text: string
}

/** In characters: as long as the hash in bytes (RFC 2104, section 3). */
const MIN_SECRET_LENGTH = 32

const SECRET = new RegExp(`^([0-9A-Za-z]{2}):(\\S{${MIN_SECRET_LENGTH},})$`)

/** In bytes. */
const MAC_LENGTH = 16
/** The base62 digits of so many bytes. */
const MAC_DIGITS = 22

const encoder = new TextEncoder()

/** Makes the text of a new secret, as `SLUICE_KEY_SECRET` has it. */
export const newKeySecret = () => `${randomBase62(2)}:${randomBase62(43)}`

/**
 * Reads the secrets of the variable `SLUICE_KEY_SECRET`. The first one signs new keys.
 *
 * @throws ConfigError naming the variable, never its value
 */
export function readKeySecrets(variable: unknown): KeySecret[] {
  const texts = typeof variable === 'string' ? variable.split(/[\s,]+/).filter(Boolean) : []
  if (texts.length === 0) {
    throw wrongSecret(
      `is missing. Make one with npx sluicegate keys secret, and set it in the environment, or for a deployment: npx wrangler secret put ${KEY_SECRET}`,
    )
  }
  const secrets = texts.flatMap(text => {
    const [, id, secret] = SECRET.exec(text) ?? []
    return id === undefined || secret === undefined ? [] : [{ id, text: secret }]
  })
  if (secrets.length < texts.length) {
    throw wrongSecret(
      `is not valid. Use <id>:<secret>, as npx sluicegate keys secret prints it: an id of two letters or digits, and at least ${MIN_SECRET_LENGTH} random characters. Separate several with commas.`,
    )
  }
  if (new Set(secrets.map(({ id }) => id)).size < secrets.length)
    throw wrongSecret('has two secrets with the same id. Give each its own.')
  return secrets
}

const wrongSecret = (message: string) => new ConfigError([{ path: KEY_SECRET, message }])

/** The values that a signed key is made of. */
export interface SignedKey {
  consumer: string
  /** The start of keys of this environment (api-key.ts). */
  start: string
  /** Default: live. */
  mode?: CallerMode
  environment: string | undefined
  secret: KeySecret
  /** ms since the epoch */
  issuedAt: number
}

/** Creates a signed key. It cannot be recovered, as any key. @throws TypeError if the consumer is not a valid name */
export async function mintSignedKey(key: SignedKey): Promise<string> {
  const { consumer, start, mode, environment, secret, issuedAt } = key
  const day = base62(Math.floor(issuedAt / DAY_MS), 3)
  const signed = `${mintKeyBody(consumer, start)}${mode === 'test' ? 't' : 'l'}${day}${secret.id}`
  return signed + (await createMac(secret, environment)(signed))
}

/** Signs the new keys of an environment. */
export interface KeySigner {
  /** The id of its secret. */
  id: string
  mint(key: Omit<SignedKey, 'secret' | 'environment'>): Promise<string>
  /** As `createFieldDigest`. */
  digestField(text: string): Promise<string | undefined>
}

export const createKeySigner = (secret: KeySecret, environment?: string): KeySigner => ({
  id: secret.id,
  mint: key => mintSignedKey({ ...key, secret, environment }),
  digestField: createFieldDigest(secret, environment),
})

/** Checks the signature of a key that the isolate does not remember. Its form is valid (consumerOfApiKey). */
export type CheckSignature = (credential: Credential, key: string) => Promise<FindResult>

/**
 * Creates the check of an isolate.
 *
 * @param variables of the environment, including the secrets
 * @param now ms since the epoch
 * @throws ConfigError naming the variable if it is missing or not valid
 */
export function createSignatureCheck(
  { credentials, environment, plans }: Pick<Config, 'credentials' | 'environment' | 'plans'>,
  variables: Readonly<Record<string, unknown>>,
  now: () => number,
): CheckSignature {
  const secrets = readKeySecrets(variables[KEY_SECRET])
  const macs = new Map(secrets.map(secret => [secret.id, createMac(secret, environment)]))
  const { signature, signedForMs, signedPlan: plan = plans[0]! } = credentials

  /** Whether a key is young enough to pass in an outage. The clock of the machine that has made it may be ahead. */
  function isYoung(day: string): boolean {
    if (signedForMs === undefined) return false
    const ageMs = now() - [...day].reduce((sum, digit) => sum * 62 + BASE62.indexOf(digit), 0) * DAY_MS
    return ageMs < signedForMs && ageMs >= -DAY_MS
  }

  return async (credential, key) => {
    const [, signed, day, id, mac] = FORM.exec(key) ?? []
    const computeMac = macs.get(id!)
    if (!computeMac) return signature === 'require' ? { reason: 'unsigned', guess: credential } : credential
    if (!isEqual(await computeMac(signed!), mac!)) return { reason: 'bad-signature', guess: credential }
    const { subject } = credential
    if (subject.kind !== 'key' || !isYoung(day!)) return credential
    return { ...credential, subject: { ...subject, planInOutage: plan } }
  }
}

/**
 * Creates the function that computes the digest of a text that a caller has sent, such as the name of an account. Without the secret, a reader
 * of the store cannot find the text by trying. Texts that an origin or its database may take as the same have one digest: case, accents, width
 * and white space do not count, nor dots and what follows a `+` before an `@`.
 *
 * @returns undefined for a text of which nothing is left, or that may be the same as several others
 */
export function createFieldDigest(
  secret: KeySecret,
  environment = '',
): (text: string) => Promise<string | undefined> {
  // No environment has a dot in its name, so a digest is never the MAC of a key.
  const mac = createMac(secret, `field.${environment}`)
  return async text => {
    const bare = text.normalize('NFKD').replace(/[\p{M}\p{C}\p{Z}]/gu, '')
    if (text.includes('\0') || AMBIGUOUS.test(bare)) return undefined
    const comparable = bare
      .toUpperCase()
      .toLowerCase()
      .replace(/^[^@]*(?=@)/, local => local.split('+', 1)[0]!.replaceAll('.', ''))
    return comparable === '' ? undefined : await mac(comparable)
  }
}

/**
 * Characters that databases take for others: in `utf8mb4_0900_ai_ci`, the default of MySQL, `ø` is `o`, `æ` is `ae`, `٣` is `3`, and `あ` is `ア`; in
 * `utf8mb4_general_ci`, `ß` is `s`. The replacement character stands for any byte that is not UTF-8. Letters of most other scripts are safe.
 */
const AMBIGUOUS =
  /(?!\p{ASCII})[\p{Script=Latin}\p{Script=Common}\p{Script=Hiragana}\p{Script=Katakana}\p{N}\p{S}\p{P}]/u

/** Creates the function that computes the MAC of a text. Requests share the imported key, and no promise. */
function createMac({ text }: KeySecret, environment = ''): (signed: string) => Promise<string> {
  let key: CryptoKey | undefined
  return async signed => {
    key ??= await crypto.subtle.importKey(
      'raw',
      encoder.encode(text),
      { name: 'HMAC', hash: 'SHA-256' },
      false,
      ['sign'],
    )
    const mac = await crypto.subtle.sign('HMAC', key, encoder.encode(`${environment}:${signed}`))
    return base62Of(new DataView(mac, 0, MAC_LENGTH))
  }
}

/** Divides 128 bits by 62 again and again. The steps do not depend on the value. */
function base62Of(bytes: DataView): string {
  const words = [0, 4, 8, 12].map(at => bytes.getUint32(at))
  let digits = ''
  for (let i = 0; i < MAC_DIGITS; i++) {
    let rest = 0
    for (const [j, word] of words.entries()) {
      const value = rest * 2 ** 32 + word
      words[j] = Math.floor(value / 62)
      rest = value % 62
    }
    digits = BASE62[rest] + digits
  }
  return digits
}

/** Compares texts of the same length in a time that does not depend on where they differ. */
function isEqual(a: string, b: string): boolean {
  let difference = a.length ^ b.length
  for (let i = 0; i < a.length; i++) difference |= a.charCodeAt(i) ^ b.charCodeAt(i)
  return difference === 0
}
