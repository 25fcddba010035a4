/** The configs that every set-up is tested with, by name: a set-up in a process or an isolate of its own gets only the name. */
import type { ConfigInput } from '../../src/config/check/schema.ts'
import hooks from './set-up-hooks.config.ts'
import limits from './set-up-limits.config.ts'

export const SET_UP_CONFIGS = { limits, hooks } satisfies Record<string, ConfigInput>

export type SetUpConfigName = keyof typeof SET_UP_CONFIGS
