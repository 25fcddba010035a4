/** What the OpenAPI document says about overrides of limits by name. */
import type { PartOperations } from '../reply-schemas.ts'
import { OVERRIDE } from './shared.ts'

export const limitOverridesOperations: PartOperations = {
  operations: {
    'GET limits/{name}/overrides': [
      'listLimitOverrides',
      'LimitOverrides',
      'Show the overrides of all identities of a limit by name',
    ],
    'PUT limits/{name}/overrides/{rule}': [
      'setLimitOverride',
      'LimitOverrideChange',
      'Give one identity of a limit by name other numbers, or another mode, for a rule',
      '`identity` has the parts that the rule counts by. The rule needs `overridable: true` in the config.',
    ],
    'POST limits/{name}/overrides/{rule}/remove': [
      'removeLimitOverride',
      'IdentityOverrides',
      'Remove an override of a limit by name',
    ],
  },
  schemas: {
    ...OVERRIDE,
    LimitOverride: 'identity: {string|number}, ...Override',
    LimitOverrideChange: '...LimitOverride, removed: Override[]',
    IdentityOverrides: 'limit, identity: {string|number}, overrides: Override[]',
    LimitOverrides: 'limit, overrides: LimitOverride[]',
  },
}
