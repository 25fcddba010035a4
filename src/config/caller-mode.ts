/** The mode of a caller: a test key never spends the budget of live keys. An absent mode is `live`, here and in the store. */
export const CALLER_MODES = ['live', 'test'] as const

export type CallerMode = (typeof CALLER_MODES)[number]

export const isCallerMode = (value: unknown): value is CallerMode =>
  CALLER_MODES.includes(value as CallerMode)
