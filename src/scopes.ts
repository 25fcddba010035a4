/** The scopes of service tokens: what the holder of a token may do. Routes, help and documentation are made from this table. */

/** Each scope, and what it permits. Whatever a scope can change, its holder can also read. */
export const SCOPES = {
  'limits:use': 'use every limit by name, but not reset it; limits:use:<limit> for one of them',
  'limits:reset': 'reset limits by name: their whole budget becomes available again',
  'keys:write': 'create, import, change, rotate and revoke API keys, without their plans',
  'consumers:block': 'block and unblock consumers',
  'consumers:write': 'set the plan of a consumer or a key, and delete consumers',
  'overrides:write': 'set and remove overrides',
  'switches:write': 'set and remove live switches',
  'stats:read': 'read statistics, top callers and live switches',
  'audit:read': 'read the audit trail',
  'tokens:write': 'create, rotate and revoke service tokens with no other scopes than its own',
} as const

export type Scope = keyof typeof SCOPES | `limits:use:${string}`

const USE_LIMITS = 'limits:use'

/** A limit by name. */
const OF_LIMIT = /^limits:use:[a-z0-9][a-z0-9_-]{0,62}$/

export function isScope(text: string): text is Scope {
  return Object.hasOwn(SCOPES, text) || OF_LIMIT.test(text)
}

/** The scopes that permit calls of a limit by name. */
export const scopesForLimit = (name: string): readonly Scope[] => [USE_LIMITS, `${USE_LIMITS}:${name}`]

/** Whether a token with these scopes has at least one of those that are needed. If none is needed, every token has enough. */
export function hasAnyOf(scopes: readonly string[], needed: readonly string[]): boolean {
  return needed.length === 0 || needed.some(scope => includes(scopes, scope))
}

/** The wanted scopes that a token with these scopes cannot give to another token. */
export const missingScopes = (own: readonly string[], wanted: readonly string[]): string[] =>
  wanted.filter(scope => !includes(own, scope))

const includes = (scopes: readonly string[], scope: string) =>
  scopes.includes(scope) || (OF_LIMIT.test(scope) && scopes.includes(USE_LIMITS))
