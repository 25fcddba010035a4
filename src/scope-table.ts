/** What each scope of service tokens permits, for help and documentation. Whatever a scope can change, its holder can also read. */
import type { ScopeName } from './scopes.ts'

export const SCOPES: Readonly<Record<ScopeName, string>> = {
  'limits:use': 'use every limit by name, but not reset it; limits:use:<limit> for one of them',
  'limits:numbers': "give numbers to limits with numbers: 'call', in addition to limits:use",
  'limits:reset': 'reset limits by name: their whole budget becomes available again',
  'keys:write': 'create, import, change, rotate and revoke API keys, without their plans',
  'consumers:block': 'block and unblock consumers',
  'consumers:write': 'set the plan of a consumer or a key, and delete consumers',
  'overrides:write': 'set and remove overrides',
  'switches:write': 'set and remove live switches',
  'stats:read': 'read statistics, top callers and live switches',
  'audit:read': 'read the audit trail',
  'tokens:write': 'create, rotate and revoke service tokens with no other scopes than its own',
}
