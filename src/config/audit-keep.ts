/** How long entries of the audit trail are kept. */
import { type Duration, milliseconds } from './duration.ts'

export const DEFAULT_KEEP_MS = 90 * 86400e3

/** @param audit of the config as it is written. @returns ms */
export const auditKeepMs = (audit: { keep?: Duration | undefined } | undefined): number =>
  audit?.keep === undefined ? DEFAULT_KEEP_MS : milliseconds(audit.keep)
