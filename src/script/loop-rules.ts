/**
 * The rules of a script with loops (loop-text.ts): their order, their constants, and the Lua text that runs for the rule `i`.
 *
 * A rule has two numbers: `i` is its place in the order of the identities, in which the loops run. Its entry number is its place in
 * the rule set, which is the order of costs and replies. Rules of the same kind have the same code.
 */
import type { AlgorithmLua } from '../algorithms/lua.ts'
import { Columns, type Value } from './columns.ts'
import { literal, wordsOf } from './lua-text.ts'
import type { RuleEntry, RuleSetShape } from './rule-set-shape.ts'
import {
  conditionsOf,
  findLua,
  hasVariableNumbers,
  isNumber,
  numberOf,
  type SectionName,
  sectionOf,
} from './rule-text.ts'
import { writeSideKey } from './state-text.ts'

export interface LoopRule extends RuleEntry {
  lua: AlgorithmLua
  kind: Kind
  /** The place of the rule in the loops, from 1. */
  i: number
  /** The place of the rule in the rule set, from 1. */
  entryNumber: number
  /** The index of its mark in ARGV[2]. */
  markAt: number
  /** The index of its argument in ARGV; 0 without one. */
  argumentAt: number
}

/** Rules that have the same code. */
export interface Kind {
  lua: AlgorithmLua
  conditions: readonly string[]
  isGuess: boolean
  isQueue: boolean
  isApart: boolean
  sideKey: RuleEntry['sideKey']
  rules: LoopRule[]
}

/** Returns the text of a section. */
export type Section = (name: SectionName) => string

/** The tables of the three numbers of a rule. */
const NUMBERS = ['firsts', 'seconds', 'thirds'] as const

/** The index in ARGV before the arguments of rules. */
const BEFORE_ARGUMENTS = 5

export class LoopRules {
  readonly all: readonly LoopRule[]
  readonly kinds: readonly Kind[]
  readonly columns = new Columns()
  /** The index in ARGV before what follows the arguments of rules: costs, or units. */
  readonly lastArgument: number
  readonly #identities: number

  constructor({ entries, identities }: RuleSetShape) {
    this.#identities = identities
    const withArgument = entries.filter(({ argument }) => argument)
    this.lastArgument = BEFORE_ARGUMENTS + withArgument.length
    const kinds = new Map<string, Kind>()
    this.all = entries
      .map((entry, i) => ({ entry, entryNumber: i + 1 }))
      .sort((a, b) => a.entry.identity - b.entry.identity)
      .map(({ entry, entryNumber }, i) => ({
        ...entry,
        ...{ lua: findLua(entry), kind: findOrAddKind(kinds, entry), i: i + 1, entryNumber },
        markAt: i + 2 + entry.identity,
        argumentAt: entry.argument ? BEFORE_ARGUMENTS + 1 + withArgument.indexOf(entry) : 0,
      }))
    for (const rule of this.all) rule.kind.rules.push(rule)
    // Rules on bad credentials come last, so that one comparison finds them.
    this.kinds = [...kinds.values()].sort((a, b) => Number(a.isGuess) - Number(b.isGuess))
  }

  has(property: 'isGuess' | 'isQueue' | 'isApart' | 'takesOverrides'): boolean {
    return this.all.some(rule => rule[property])
  }

  /** The Lua expression of a value of the rule `i`. */
  column(name: string, toValue: (rule: LoopRule) => Value): string {
    return this.columns.of(name, this.all.map(toValue))
  }

  /** The Lua expression of a value of the identity `k`. */
  ofIdentity(name: string, toValue: (rules: readonly LoopRule[]) => number): string {
    const values = Array.from({ length: this.#identities }, (_, k) =>
      toValue(this.all.filter(({ identity }) => identity === k)),
    )
    return this.columns.of(name, values, 'k')
  }

  get entryNumber(): string {
    return this.column('entry_numbers', ({ entryNumber }) => entryNumber)
  }

  /** The condition that the rule `i` does not count bad credentials; undefined if no rule does. */
  get isNoGuess(): string | undefined {
    const others = this.kinds.filter(({ isGuess }) => !isGuess).length
    return others === this.kinds.length ? undefined : `${this.#kind} <= ${others}`
  }

  get #kind(): string {
    return this.column('kinds', ({ kind }) => this.kinds.indexOf(kind) + 1)
  }

  /** The table of the tags. */
  get tags(): string {
    return this.columns.table(
      'tags',
      this.all.map(({ variants }) => variants[0]!.tag),
    )
  }

  /** The table of the first, second or third number of each rule. */
  numbers(slot: number): string {
    const values = this.all.map(({ lua: { numbers }, variants }) => {
      const name = numbers[slot]
      return name !== undefined && isNumber(name) ? numberOf(variants[0]!, name) : 0
    })
    return this.columns.table(NUMBERS[slot]!, values)
  }

  /** More text for a condition: that the state can have a record of the rule `i`. */
  get andHasRecord(): string {
    return this.has('isApart') ? ` and not ${this.column('are_apart', ({ isApart }) => isApart)}` : ''
  }

  /** Whether the row of rule `i` follows that of rule `i - 1`. */
  get areInOrder(): boolean {
    return this.all.every(({ i, entryNumber }) => i === entryNumber)
  }

  /** The text for the kind of the rule `i`. */
  forKind(textOf: (kind: Kind) => string): string {
    const texts = this.kinds.map(textOf)
    if (texts.length === 1) return `do\n${texts[0]}end\n`
    const branches = texts.map((text, i) => `if kind == ${i + 1} then\n${text}`)
    return `local kind = ${this.#kind}\n${branches.join('else')}end\n`
  }

  /**
   * The text for a kind of rules, after its numbers and other locals.
   * @param locals declares locals
   */
  sections(kind: Kind, locals: string, join: (section: Section) => string): string {
    const { lua, rules } = kind
    const constants = new Map<string, string>()
    const names: string[] = []
    const values: string[] = []
    const used = wordsOf(join(name => sectionFor(kind, name)))
    for (const [slot, name] of lua.numbers.entries()) {
      if (!used.has(name)) continue
      const constant = isNumber(name) ? constantOf(name, rules) : undefined
      if (constant !== undefined) constants.set(name, constant)
      else {
        names.push(name)
        values.push(isNumber(name) ? `${this.numbers(slot)}[i]` : this.#textNumber(name))
      }
    }
    const declared = names.length > 0 ? `local ${names.join(', ')} = ${values.join(', ')}\n` : ''
    return `${declared}${locals}${join(name => sectionFor(kind, name, constants))}`
  }

  #textNumber(name: 'ends' | 'holding' | 'wait' | 'side_key' | 'chunks_key'): string {
    if (name === 'side_key') return 'side_keys[i]'
    if (name === 'chunks_key') return 'chunks_keys[i]'
    const argument = `ARGV[${this.column('arguments_at', ({ argumentAt }) => argumentAt)}]`
    return name === 'ends' ? argument : `${argument} or ''`
  }
}

function findOrAddKind(kinds: Map<string, Kind>, entry: RuleEntry): Kind {
  const { isGuess, isQueue, isApart, sideKey } = entry
  const traits = { conditions: conditionsOf(entry), isGuess, isQueue, isApart, sideKey }
  const lua = findLua(entry)
  const key = JSON.stringify([lua.read, traits])
  const kind = kinds.get(key) ?? { lua, ...traits, rules: [] }
  kinds.set(key, kind)
  return kind
}

const sectionFor = ({ lua, conditions }: Kind, name: SectionName, constants?: ReadonlyMap<string, string>) =>
  sectionOf(lua, name, conditions, word => constants?.get(word))

/** The literal of a number that is the same for all rules and callers. */
function constantOf(name: Parameters<typeof numberOf>[1], rules: readonly LoopRule[]): string | undefined {
  const [first, ...others] = rules.map(({ variants }) => numberOf(variants[0]!, name))
  const isConstant = !rules.some(hasVariableNumbers) && others.every(other => other === first)
  return isConstant ? literal(first!) : undefined
}

/** The locals of a kind that the second loop needs from the first one. */
export function keptLocals(kind: Kind): readonly string[] {
  const later = (['spend', 'standing', 'write'] as const).map(name => sectionFor(kind, name))
  const used = wordsOf(later.join(''))
  return kind.lua.keeps.filter(name => used.has(name))
}

/** Declares the locals of a kind. */
export const declareKept = ({ lua: { keeps } }: Kind) => `local ${keeps.join(', ')}\n`

/** `slot` is the last place of the rule `i`. So its first kept local needs no sum, and many rules have only one. */
const slotOf = (i: number) => (i === 0 ? 'kept[slot]' : `kept[slot - ${i}]`)

/** Moves on to the kept locals of the rule `i`. */
export const skipKept = (kind: Kind) => `slot = slot + ${keptLocals(kind).length}\n`

export function storeKept(kind: Kind): string {
  const stored = keptLocals(kind).map((name, i) => `${slotOf(i)} = ${name}\n`)
  // In the order of their places: a list that grows at its end needs no hash.
  return `${skipKept(kind)}${stored.reverse().join('')}`
}

/** Stores the kept locals of the rule `i` again, after `loadKept`. */
export const updateKept = (kind: Kind): string =>
  keptLocals(kind)
    .map((name, i) => `${slotOf(i)} = ${name}\n`)
    .join('')

export function loadKept(kind: Kind): string {
  const names = keptLocals(kind)
  return `${skipKept(kind)}local ${names.join(', ')} = ${names.map((_, i) => slotOf(i)).join(', ')}\n`
}

/**
 * Changes the state of the rule `i` if it `is_spent`, and computes `remaining` and `reset_after`.
 * @param change undefined: the rule has spent early, and its side key is in `early`
 */
export function changeState(
  { sideKey }: Kind,
  change: 'spend' | 'refund' | undefined,
  section: Section,
): string {
  const own = writeSideKey({
    ...(sideKey && { sideKey }),
    of: name => name,
    idleAt: 'idle_at',
  })
  return `
${sideKey ? `local side_bytes${change ? '' : ' = early[i]'}\n` : ''}${change ? `if is_spent then\n${section(change)}end\n` : ''}${section('standing')}if is_spent then
${section('write')}${own}end
`.trimStart()
}
