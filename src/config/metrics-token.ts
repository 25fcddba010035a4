/** The secret of `GET /_sluice/metrics`. */
import type { Mistake } from './config-error.ts'

export const METRICS_TOKEN = 'SLUICE_METRICS_TOKEN'

/** As long as a random text of 96 bits. */
const MIN_LENGTH = 16

/** Says why a secret can be guessed. Returns undefined for a secret that cannot be guessed, and without a secret. */
export function weaknessOf(token: unknown): Mistake | undefined {
  if (typeof token !== 'string' || token === '' || token.length >= MIN_LENGTH) return undefined
  const message = `has ${token.length} characters, so it can be guessed. Use at least ${MIN_LENGTH}, as from openssl rand -hex 16.`
  return { path: METRICS_TOKEN, message }
}
