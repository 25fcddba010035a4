/** The configs that every edge is tested with, by name: an edge in a process or an isolate of its own gets only the name. */
import type { ConfigInput } from '../../src/config/check/schema.ts'
import hooks from './edge-hooks.config.ts'
import limits from './edge-limits.config.ts'

export const EDGE_CONFIGS = { limits, hooks } satisfies Record<string, ConfigInput>

export type EdgeConfigName = keyof typeof EDGE_CONFIGS
