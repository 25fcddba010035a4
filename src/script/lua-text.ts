/**
 * Lua text that is made here, never by a caller: literals come from one function that refuses everything but safe integers and
 * names of a narrow alphabet, and the sections of the algorithms are text of this repository.
 */

/** Rule names, plans, tags and families: no quote, no backslash, no line end. */
const NAME = /^[A-Za-z0-9_-]{0,63}$/

/**
 * A Lua literal.
 * @throws TypeError for a number that is not a safe integer, and for text that is not a name
 */
export function literal(value: number | string): string {
  if (typeof value === 'number' && Number.isSafeInteger(value)) {
    // A minus sign before a digit is an operator in Lua: `2^-1`, `a--1`.
    return value < 0 ? `(${value})` : String(value)
  }
  if (typeof value === 'string' && NAME.test(value)) return `'${value}'`
  throw new TypeError('A Lua literal is a safe integer, or a name of letters, digits, _ and -.')
}

/**
 * A name as it stands inside a literal.
 * @throws TypeError for text that is not a name
 */
export function name(text: string): string {
  return literal(text).slice(1, -1)
}

/** Text between quotes, and words that are not fields of something. */
const WORDS = /'[^']*'|(?<![.\w])[A-Za-z_]\w*/g

/** The text with words replaced; quoted text and fields (`log.key`) stay. */
export function withWords(text: string, wordFor: (word: string) => string | undefined): string {
  return text.replace(WORDS, word => wordFor(word) ?? word)
}

/** Functions in the sections of algorithms that become arithmetic: a call would take longer than all of it. */
const MACROS: Record<string, (args: string[]) => string> = {
  floor_div: ([a, b]) => `((${a} - (${a}) % (${b})) / (${b}))`,
  ceil_div: ([a, b]) => `((${a} + -(${a}) % (${b})) / (${b}))`,
  ceil_to_ms: ([a]) => `(${a} + -(${a}) % 1000)`,
}

/** The text with `floor_div(a, b)`, `ceil_div(a, b)` and `ceil_to_ms(a)` written out, for integers. */
export function withMacros(text: string): string {
  const start = /\b(floor_div|ceil_div|ceil_to_ms)\(/.exec(text)
  if (!start) return text
  const from = start.index + start[0].length
  const { args, end } = argumentsAt(text, from)
  const written = MACROS[start[1]!]!(args.map(withMacros))
  return text.slice(0, start.index) + written + withMacros(text.slice(end))
}

/** The arguments of a call, and where the text after its closing bracket begins. */
function argumentsAt(text: string, from: number): { args: string[]; end: number } {
  const args = ['']
  let depth = 0
  for (let at = from; at < text.length; at++) {
    const letter = text[at]!
    if (letter === ')' && depth === 0) return { args: args.map(arg => arg.trim()), end: at + 1 }
    if (letter === ',' && depth === 0) {
      args.push('')
      continue
    }
    depth += letter === '(' ? 1 : letter === ')' ? -1 : 0
    args[args.length - 1] += letter
  }
  throw new Error('A call in a Lua section has no closing bracket.')
}

/**
 * Locals of a script by name. Lua has 200 for a function: those above the bound are fields of a table, which take a little
 * longer.
 */
export class Locals {
  readonly #names = new Map<string, string>()
  readonly #declared: string[] = []
  #spilled = 0

  readonly #bound: number

  constructor(bound = 100) {
    this.#bound = bound
  }

  /** How the text refers to it. */
  of(name: string): string {
    const known = this.#names.get(name)
    if (known) return known
    const isLocal = this.#declared.length < this.#bound
    const text = isLocal ? name : `spilled[${++this.#spilled}]`
    if (isLocal) this.#declared.push(name)
    this.#names.set(name, text)
    return text
  }

  /** To stand before all else; all are nil. */
  declaration(): string {
    const spilled = this.#spilled > 0 ? 'local spilled = {}\n' : ''
    return this.#declared.length > 0 ? `local ${this.#declared.join(', ')}\n${spilled}` : spilled
  }
}
