/** The scopes of service tokens: what the holder of a token may do. Routes are made from this list; scope-table.ts says what each permits. */

export const SCOPE_NAMES = [
  'limits:use',
  'limits:numbers',
  'limits:reset',
  'keys:write',
  'consumers:block',
  'consumers:write',
  'overrides:write',
  'switches:write',
  'stats:read',
  'audit:read',
  'tokens:write',
] as const

export type ScopeName = (typeof SCOPE_NAMES)[number]
export type Scope = ScopeName | `limits:use:${string}`

const USE_LIMITS = 'limits:use'

/** A limit by name. */
const OF_LIMIT = /^limits:use:[a-z0-9][a-z0-9_-]{0,62}$/

export function isScope(text: string): text is Scope {
  return (SCOPE_NAMES as readonly string[]).includes(text) || OF_LIMIT.test(text)
}

/** The scopes that permit calls of a limit by name. @param name from a path: one that no limit can have has no scope of its own */
export function scopesForLimit(name: string): readonly Scope[] {
  const scope = `${USE_LIMITS}:${name}` as const
  return OF_LIMIT.test(scope) ? [USE_LIMITS, scope] : [USE_LIMITS]
}

/** Whether a token with these scopes has at least one of those that are needed. If none is needed, every token has enough. */
export function hasAnyOf(scopes: readonly string[], needed: readonly string[]): boolean {
  return needed.length === 0 || needed.some(scope => includes(scopes, scope))
}

/** The wanted scopes that a token with these scopes cannot give to another token. */
export const missingScopes = (own: readonly string[], wanted: readonly string[]): string[] =>
  wanted.filter(scope => !includes(own, scope))

const includes = (scopes: readonly string[], scope: string) =>
  scopes.includes(scope) || (OF_LIMIT.test(scope) && scopes.includes(USE_LIMITS))
