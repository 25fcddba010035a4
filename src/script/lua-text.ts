/**
 * Functions that generate Lua text. Callers cannot inject code: all literals come from one function, which accepts only safe integers
 * and names of a narrow alphabet, and the sections of the algorithms are files of this repository.
 */

/** Rule names, plans, tags and families: no quote, no backslash, no line end. */
const NAME = /^[A-Za-z0-9_-]{0,63}$/

/**
 * A Lua literal.
 * @throws TypeError for a number that is not a safe integer, and for text that is not a name
 */
export function literal(value: number | string): string {
  if (typeof value === 'number' && Number.isSafeInteger(value)) {
    // Parentheses, because a minus sign could join an operator before it: `a--1` begins a comment.
    return value < 0 ? `(${value})` : String(value)
  }
  if (typeof value === 'string' && NAME.test(value)) return `'${value}'`
  throw new TypeError('A Lua literal must be a safe integer, or a name of letters, digits, _ and -.')
}

/**
 * A name to be placed inside a longer literal, without quotes.
 * @throws TypeError for text that is not a name
 */
export function nameInLiteral(text: string): string {
  return literal(text).slice(1, -1)
}

/** Quoted text, and words that are not fields of a table. */
const WORDS = /'[^']*'|(?<![.\w])[A-Za-z_]\w*/g

/** Replaces words. Quoted text and fields (`log.key`) stay. */
export function replaceWords(text: string, wordFor: (word: string) => string | undefined): string {
  return text.replace(WORDS, word => wordFor(word) ?? word)
}

/** The words of a text. Quoted text and fields do not count. */
export function wordsOf(text: string): ReadonlySet<string> {
  return new Set(text.match(WORDS))
}
const floorDiv = (a: string, b: string) => `((${a} - (${a}) % (${b})) / (${b}))`
const lower = (a: string, b: string) => `(${[a, '<', b, 'and', a, 'or', b].join(' ')})`

/** Functions in the sections of algorithms that are expanded to arithmetic, because a call takes longer than the arithmetic itself. */
const MACROS: Record<string, (args: string[]) => string> = {
  floor_div: ([a, b]) => floorDiv(a!, b!),
  ceil_div: ([a, b]) => `((${a} + -(${a}) % (${b})) / (${b}))`,
  ceil_to_ms: ([a]) => `(${a} + -(${a}) % 1000)`,
  /** How long to keep what is idle at `a` (whole seconds). */
  life_until: ([a]) => `((${a} - now + -(${a} - now) % 1000000) / 1000000 + KEEP_SECONDS)`,
  /** A TTL for a life of `a` seconds (constants.ts). */
  spread: ([a]) => `(${a} + now % ${lower(floorDiv(a!, 'SPREAD_SHARE'), 'MAX_SPREAD')})`,
}

const MACRO_CALL = /* @__PURE__ */ (() => new RegExp(`\\b(${Object.keys(MACROS).join('|')})\\(`))()

/** Expands the calls of macros, such as `floor_div(a, b)`. Their arguments are integers. */
export function expandMacros(text: string): string {
  const start = MACRO_CALL.exec(text)
  if (!start) return text
  const from = start.index + start[0].length
  const { args, end } = parseArguments(text, from)
  const written = MACROS[start[1]!]!(args.map(expandMacros))
  return text.slice(0, start.index) + written + expandMacros(text.slice(end))
}

/** Parses the arguments of a call. @param from index after the opening bracket @returns also the index after the closing bracket */
function parseArguments(text: string, from: number): { args: string[]; end: number } {
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
 * The locals of a script. A Lua function can have at most 200. Above the bound they become fields of a table, whose access takes a
 * little longer.
 */
export class Locals {
  readonly #names = new Map<string, string>()
  readonly #declared: string[] = []
  #spilled = 0

  readonly #bound: number

  constructor(bound = 100) {
    this.#bound = bound
  }

  /** The Lua expression for a local. Declares it at the first use. */
  of(name: string): string {
    const known = this.#names.get(name)
    if (known) return known
    const isLocal = this.#declared.length < this.#bound
    const text = isLocal ? name : `spilled[${++this.#spilled}]`
    if (isLocal) this.#declared.push(name)
    this.#names.set(name, text)
    return text
  }

  /** The declaration of all locals, for the beginning of the script. */
  declaration(): string {
    const spilled = this.#spilled > 0 ? 'local spilled = {}\n' : ''
    return this.#declared.length > 0 ? `local ${this.#declared.join(', ')}\n${spilled}` : spilled
  }
}
