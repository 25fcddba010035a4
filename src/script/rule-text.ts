/** The Lua text of one rule in a script: its locals, its constants, and its copy of the algorithm's sections. */

import type { AlgorithmLua, SECTIONS, WireNumber } from '../algorithms/lua.ts'
import { luaOf } from '../algorithms/lua-of.ts'
import { expandMacros, type Locals, literal, replaceWords } from './lua-text.ts'
import type { RuleEntry, Variant } from './rule-set-shape.ts'

export interface RuleText extends RuleEntry {
  lua: AlgorithmLua
  /** The number of the rule in its rule set, from 1. */
  ruleNumber: number
  /** The text of a section, with the locals and constants of this rule. */
  section(name: SectionName): string
  /** The name of a local of this rule: `cost` → `cost_2`. */
  of(name: string): string
  /** The Lua expression of its tag. */
  tag: string
  /** The names of the two numbers of its record. */
  idleAt: string
  count: string
  /** Whether these two are locals of the block that reads or writes the state. Else they are locals of the whole script. */
  isBlockLocal: boolean
}

/** An identity with more rules than this has the numbers of its records in locals of the whole script, which can spill into a table. */
const MAX_BLOCK_LOCALS = 10

/**
 * Creates the text of a rule.
 * @param ruleNumber from 1
 * @param rulesOfIdentity how many rules its identity has
 */
export function createRuleText(
  entry: RuleEntry,
  ruleNumber: number,
  rulesOfIdentity: number,
  locals: Locals,
): RuleText {
  const of = (name: string) => locals.of(`${name}_${ruleNumber}`)
  const { variants } = entry
  const lua = findLua(entry)
  const constants = new Map<string, string>()
  for (const name of lua.numbers) {
    if (isNumber(name) && !hasVariableNumbers(entry))
      constants.set(name, literal(numberOf(variants[0]!, name)))
  }
  const ownWords = new Set([...lua.keeps, ...lua.numbers, ...OWN_WORDS])
  const isBlockLocal = rulesOfIdentity <= MAX_BLOCK_LOCALS
  const idleAt = isBlockLocal ? `idle_at_${ruleNumber}` : of('idle_at')
  const count = isBlockLocal ? `n_${ruleNumber}` : of('n')
  const replaced = new Map([...constants, ['idle_at', idleAt], ['n', count]])
  const wordFor = (word: string) => replaced.get(word) ?? (ownWords.has(word) ? of(word) : undefined)
  const conditions = conditionsOf(entry)
  return {
    ...entry,
    lua,
    ruleNumber,
    of,
    idleAt,
    count,
    isBlockLocal,

    get tag() {
      return hasVariableNumbers(entry) ? of('tag') : literal(variants[0]!.tag)
    },
    section: name => sectionOf(lua, name, conditions, wordFor),
  }
}

export type SectionName = (typeof SECTIONS)[number]

/** The conditions of `--@ if` in the Lua file of an algorithm (bundle-lua.ts) that are true for a rule. */
export function conditionsOf({ argument, settlement, variants: [first] }: RuleEntry): readonly string[] {
  const ofWindow = first!.quota.startsWithRequest ? 'first_request' : 'clock'
  return [
    ...(argument === 'ends' ? ['ends'] : []),
    ...(argument === 'wait' ? ['waits'] : []),
    ...[ofWindow, settlement ? 'settled' : 'once'],
    ...(settlement ? [`settled_${ofWindow}`] : []),
  ]
}

/**
 * A section of an algorithm.
 * @param conditions those that are true for the rule
 * @param wordFor replaces words
 */
export function sectionOf(
  lua: AlgorithmLua,
  name: SectionName,
  conditions: readonly string[],
  wordFor: (word: string) => string | undefined,
): string {
  const text = lua[name].replace(/--@ if (\w+)\n([\s\S]*?)--@ end\n/g, (_, condition, lines) =>
    conditions.includes(condition) ? lines : '',
  )
  // A section with locals becomes a block, so that they do not clash with those of other sections.
  const block = /^local /m.test(text) ? `do\n${text}end\n` : text
  return expandMacros(replaceWords(block, wordFor))
}

/** Words in the sections that become locals of the rule, besides those that its algorithm declares. */
const OWN_WORDS = [
  ...['cost', 'retry_after', 'delay', 'remaining', 'reset_after', 'units', 'spent'],
  ...['reserved', 'debt'],
  'side_bytes',
]

/** Inputs that are numbers in the script, and not arguments of each call. */
export type Constant = Exclude<WireNumber, 'ends' | 'holding' | 'wait' | 'side_key' | 'chunks_key'>

const NOT_NUMBERS: ReadonlySet<WireNumber> = new Set([
  ...(['ends', 'holding', 'wait', 'side_key', 'chunks_key'] as const),
])

export const isNumber = (name: WireNumber): name is Constant => !NOT_NUMBERS.has(name)

export function numberOf({ quota }: Variant, name: Constant): number {
  return name === 'limit' ? quota.burst : quota[name]!
}

export function findLua({ algorithm }: RuleEntry): AlgorithmLua {
  const lua = luaOf(algorithm)
  if (!lua) throw new Error(`The algorithm ${algorithm} has no Lua body.`)
  return lua
}

/** Whether the numbers of the rule depend on the caller: by plan or by override. */
export const hasVariableNumbers = ({ variants, takesOverrides }: RuleEntry) =>
  takesOverrides || variants.length > 1

/** Whether the state usually has a record of the rule. Rules on bad credentials rarely spend, so most states have none of theirs. */
export const isExpectedInState = ({ isGuess, isApart }: RuleEntry) => !isGuess && !isApart

/**
 * Whether a rule spends, or gives units back, before any state is written. A log can need commands that others do not: if one of them
 * fails, no rule has spent.
 */
export const spendsEarly = ({ sideKey }: { sideKey?: RuleEntry['sideKey'] | undefined }) => sideKey === 'log'

export const assignment = (names: readonly string[], values: readonly string[]) =>
  `${names.join(', ')} = ${values.join(', ')}\n`
