/**
 * The config of the flooded Worker: limits for all callers, with the fallbacks `open` and `local`. Their period is long, so that the
 * number of admitted requests does not depend on the speed of the machine. The limits under `/second` have a short period.
 */
import { defineConfig } from '../../src/config/define.ts'
import { FLOOD_LIMIT } from './flood-limit.ts'

const MODES = ['open', 'local'] as const
/** Paths, each with its own limit, and the fallback of the limit. */
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
