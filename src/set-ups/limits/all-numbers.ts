/** What numbers at the call, and overrides, need to know of every algorithm. A built Worker has only those of its rules. */
import { ALGORITHM_NAMES, descriptions } from '../../algorithms/index.ts'
import { thirdNumberOf } from '../../algorithms/lua-of.ts'
import type { NumbersParts } from './numbers.ts'

export const ALL_NUMBERS: NumbersParts['ruleNumbers'] = /* @__PURE__ */ Object.fromEntries(
  ALGORITHM_NAMES.map(name => {
    const third = thirdNumberOf(name)
    return [name, { numbers: descriptions[name].numbers, ...(third && { third }) }]
  }),
)
