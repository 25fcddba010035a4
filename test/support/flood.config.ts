/**
 * The config of the Worker that is flooded: limits for all callers, in each failure policy. They have a long period,
 * so that how many requests may pass does not depend on how fast the machine is; `/second` is for measurements.
 */
import { defineConfig } from '../../src/config/define.ts'
import { FLOOD_LIMIT } from './flood-limit.ts'

const MODES = ['open', 'local'] as const
/** Paths with a limit of their own. */
const LIMITS = [
  ['open', 'open'],
  ['local', 'local'],
  ['again', 'open'],
] as const

export default defineConfig({
  origin: 'https://origin.invalid',
  credentials: { accept: ['anonymous'] },
  rules: [
    ...LIMITS.map(([name, mode]) => ({
      name,
      by: 'global' as const,
      algorithm: 'fixed-window' as const,
      limit: FLOOD_LIMIT,
      period: '300d' as const,
      match: { path: `/${name}` },
      onStoreFailure: mode,
    })),
    ...MODES.map(mode => ({
      name: `second-${mode}`,
      by: 'global' as const,
      algorithm: 'gcra' as const,
      limit: 10,
      period: '1s' as const,
      match: { path: `/second/${mode}` },
      onStoreFailure: mode,
    })),
  ],
})
