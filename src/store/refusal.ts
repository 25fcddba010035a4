/** The errors of a store, without the words of Redis, which can quote keys, and without URLs. */
import { GatewayError } from '../errors.ts'

/** What to check if the store refuses the credentials, and what may lack a permission. */
export interface Remedies {
  credentials: string
  permission: string
}

/**
 * The GatewayError for an error that Redis has answered.
 * @param isOfSome whether other commands of the request were answered without an error
 */
export function refusal(
  message: string,
  { credentials, permission }: Remedies,
  isOfSome = false,
): GatewayError {
  if (NO_PERMISSION.test(message))
    return new GatewayError(
      'ERR_STORE_REFUSED',
      `The store answered NOPERM: ${permission} (docs/deploy.md#your-own-redis).`,
    )
  const kind = /^([A-Z]{2,20}|Unauthorized)/.exec(message)?.[0] ?? 'an error'
  const fix = WRONG_CREDENTIALS.test(kind) ? ` ${credentials}` : ''
  return new GatewayError(
    'ERR_STORE_REFUSED',
    `The store answered ${kind}${isOfSome ? ' to some commands' : ''}.${fix}`,
  )
}

/**
 * Whether Redis has refused a command, or a script, before it has written anything. It refuses a script for these reasons at its first
 * write, and no later one. A permission can be missing for a later command of a script.
 */
export const hasWrittenNothing = ({ message }: GatewayError): boolean =>
  /answered (READONLY|OOM|MISCONF|LOADING|WRONGPASS|Unauthorized)\./.test(message)

/** The user of Redis may not run a command, or not use a key. For a command in a script, the words depend on the version of Redis. */
export const NO_PERMISSION =
  /\bNOPERM\b|^(ERR )?(ACL failure in script|The user executing the script can't)\b/

const WRONG_CREDENTIALS = /^(WRONGPASS|NOAUTH|Unauthorized)$/

/** @param why ends the sentence: ` (ECONNREFUSED)` */
export const unreachableError = (why = '', options?: ConstructorParameters<typeof GatewayError>[2]) =>
  new GatewayError('ERR_STORE_UNREACHABLE', `The store could not be reached${why}.`, options)

/** ` (ECONNREFUSED)`. Only the code, because messages can quote the URL. Workers report no code. */
export function codeText(error: unknown): string {
  const { cause, code } = error as { cause?: { code?: unknown }; code?: unknown }
  const text = String(cause?.code ?? code)
  return /^[A-Z][A-Z_\d]+$/.test(text) ? ` (${text})` : ''
}
