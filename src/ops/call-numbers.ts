/** Numbers at the call, for commands. Apart, because the API shows what is left without them, and need not carry what checks them. */
import { mistakesOfSettlement } from '../config/check/mistakes-of-settlement.ts'
import type { LimitRule } from '../config/compile.ts'
import { ALL_NUMBERS } from '../set-ups/limits/all-numbers.ts'
import type { CallNumbers } from '../set-ups/limits/arguments.ts'
import { createGiveNumbers } from '../set-ups/limits/numbers.ts'

const giveNumbers = createGiveNumbers({ ruleNumbers: ALL_NUMBERS, mistakesOfSettlement })

/** @param name of the limit @returns gives its rules the numbers @throws TypeError as GiveNumbers */
export const giving = (name: string, numbers: CallNumbers | undefined) => (rules: readonly LimitRule[]) =>
  giveNumbers(name, rules, numbers)
