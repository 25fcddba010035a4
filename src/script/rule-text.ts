/** A rule of a policy as the Lua text refers to it: its locals, its constants, and its copy of the sections. */
import { LUA } from '../algorithms/lua.generated.ts'
import type { AlgorithmLua, WireNumber } from '../algorithms/lua.ts'
import { type Locals, literal, withMacros, withWords } from './lua-text.ts'
import type { Slot, Variant } from './policy-shape.ts'

export interface RuleText extends Slot {
  lua: AlgorithmLua
  /** From 1. */
  n: number
  /** The text of a section, with the words of this rule. */
  section(name: 'read' | 'check' | 'spend' | 'refund' | 'standing' | 'write'): string
  /** `cost` → `cost_2` */
  of(name: string): string
  tag: string
  /** The two numbers of its record. */
  idleAt: string
  count: string
  /** They are locals of the block that reads or writes the state. */
  isBlockLocal: boolean
}

/** The two numbers of each record of a larger identity are locals of the whole script, which can go into a table. */
const MOST_BLOCK_LOCALS = 10

/**
 * @param n of the rule, from 1
 * @param rules that its identity has
 */
export function createRuleText(slot: Slot, n: number, rules: number, locals: Locals): RuleText {
  const of = (name: string) => locals.of(`${name}_${n}`)
  const { variants } = slot
  const lua = luaOf(slot)
  const constants = new Map<string, string>()
  for (const name of lua.numbers) {
    if (isNumber(name) && !isVariable(slot)) constants.set(name, literal(numberOf(variants[0]!, name)))
  }
  const isOwn = new Set([...lua.keeps, ...lua.numbers, ...OF_EACH_RULE])
  const isBlockLocal = rules <= MOST_BLOCK_LOCALS
  const idleAt = isBlockLocal ? `idle_at_${n}` : of('idle_at')
  const count = isBlockLocal ? `n_${n}` : of('n')
  const replaced = new Map([...constants, ['idle_at', idleAt], ['n', count]])
  const wordFor = (word: string) => replaced.get(word) ?? (isOwn.has(word) ? of(word) : undefined)
  const hasEnds = slot.argument === 'ends'
  return {
    ...slot,
    lua,
    n,
    of,
    idleAt,
    count,
    isBlockLocal,

    get tag() {
      return isVariable(slot) ? of('tag') : literal(variants[0]!.tag)
    },
    section(name) {
      const text = lua[name].replace(/--@ if ends\n([\s\S]*?)--@ end\n/g, hasEnds ? '$1' : '')
      // A section has locals of its own.
      const block = /^local /m.test(text) ? `do\n${text}end\n` : text
      return withMacros(withWords(block, wordFor))
    },
  }
}

/** Words in the sections that each rule has for itself. */
const OF_EACH_RULE = [
  ...['cost', 'retry_after', 'delay', 'remaining', 'reset_after', 'units', 'spent'],
  ...['own_bytes', 'own_offset'],
]

/** Those that do not travel with the request. */
type Constant = Exclude<WireNumber, 'ends' | 'holding' | 'own_key'>

const NOT_NUMBERS: ReadonlySet<WireNumber> = new Set(['ends', 'holding', 'own_key'])

export const isNumber = (name: WireNumber): name is Constant => !NOT_NUMBERS.has(name)

export function numberOf({ quota }: Variant, name: Constant): number {
  return name === 'limit' ? quota.burst : quota[name]!
}

function luaOf({ algorithm }: Slot): AlgorithmLua {
  const lua = LUA[algorithm]
  if (!lua) throw new Error(`The algorithm ${algorithm} has no Lua body.`)
  return lua
}

/** Its numbers depend on the caller. */
export const isVariable = ({ variants, takesOverrides }: Slot) => takesOverrides || variants.length > 1

/** Its record is in the state as a rule. A guess is spent when it was wrong, and most states have no record of one. */
export const isExpected = ({ isGuess, isApart }: Slot) => !isGuess && !isApart

export const assigned = (names: readonly string[], values: readonly string[]) =>
  `${names.join(', ')} = ${values.join(', ')}\n`

export function chunked<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, i) => list.slice(i * size, (i + 1) * size))
}
