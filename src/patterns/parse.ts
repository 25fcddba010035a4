/**
 * Parses the patterns of `match.path` and `match.host`: the syntax of URLPattern (WHATWG, URL Pattern Standard, section 2.1), which
 * platforms implement at very different speeds, and Node only from version 24. Pure.
 */

export interface PatternSyntax {
  /** What a name such as `:id` does not match. */
  separator: '/' | '.'
  /** A separator before a name, a wildcard or a group in parentheses is optional and repeated with it. */
  takesSeparator: boolean
  /** Spells fixed text as the values that are matched are spelled. @throws TypeError if it cannot occur in a value */
  canonical(text: string): string
}

export type Modifier = '' | '?' | '*' | '+'

export interface Text {
  kind: 'text'
  text: string
  modifier: Modifier
}

/** A name (`:id`), a wildcard (`*`) or a regular expression in parentheses. */
export interface Variable {
  kind: 'name' | 'wildcard' | 'expression'
  /** Absent for a name and a wildcard. */
  expression?: string
  /** Fixed text that is optional and repeated together with the variable. */
  prefix: string
  suffix: string
  modifier: Modifier
}

export type Part = Text | Variable

const NAME = /:[$_\p{ID_Start}](?:[$\p{ID_Continue}]|\u200c|\u200d)*/uy
const ESCAPED = /\\(.)/suy
const CHARACTER = /[^\\:({}*+?]/suy
const MODIFIER = /[?*+]/y

/** @throws TypeError, or SyntaxError for a regular expression, if the text is not a pattern */
export function parsePattern(
  pattern: string,
  { takesSeparator, separator, canonical }: PatternSyntax,
): Part[] {
  const parts: Part[] = []
  const names = new Set<string>()
  let position = 0
  let fixed = ''

  while (position < pattern.length) {
    const start = position
    const character = take(CHARACTER)
    const variable = takeVariable()
    if (variable) {
      const isPrefix = takesSeparator && character === separator
      if (!isPrefix) fixed += character ?? ''
      addFixed()
      parts.push({ ...variable, prefix: isPrefix ? separator : '', suffix: '', modifier: takeModifier() })
      continue
    }
    const text = character ?? takeEscaped()
    if (text !== undefined) fixed += text
    else if (pattern[position] === '{') addGroup()
    else throw new TypeError(`unexpected ${pattern[start]}`)
  }
  addFixed()
  return parts

  function addGroup() {
    position++
    const prefix = takeText()
    const variable = takeVariable()
    const suffix = variable ? takeText() : ''
    if (pattern[position++] !== '}') throw new TypeError('a group does not end')
    const modifier = takeModifier()
    if (!variable && !modifier) {
      fixed += prefix
      return
    }
    addFixed()
    if (variable) parts.push({ ...variable, prefix: canonical(prefix), suffix: canonical(suffix), modifier })
    else if (prefix) parts.push({ kind: 'text', text: canonical(prefix), modifier })
  }

  function addFixed() {
    if (fixed) parts.push({ kind: 'text', text: canonical(fixed), modifier: '' })
    fixed = ''
  }

  function takeVariable(): Pick<Variable, 'kind' | 'expression'> | undefined {
    const name = take(NAME)
    if (name !== undefined) {
      if (names.has(name)) throw new TypeError(`${name} occurs twice`)
      names.add(name)
    }
    if (pattern[position] === '(') return { kind: 'expression', expression: takeExpression() }
    if (name !== undefined) return { kind: 'name' }
    if (pattern[position] !== '*') return undefined
    position++
    return { kind: 'wildcard' }
  }

  /** A regular expression in parentheses. Like the standard, it refuses capturing groups within. */
  function takeExpression(): string {
    const start = ++position
    for (let depth = 1; depth > 0; position++) {
      const character = pattern[position]
      if (character === '\\') position++
      else if (character === '(') depth++
      else if (character === ')') depth--
      const isCapturing = character === '(' && pattern[position + 1] !== '?'
      if (character === undefined || isCapturing) throw new TypeError('unexpected (')
    }
    const expression = pattern.slice(start, position - 1)
    if (!/^[^?\P{ASCII}]\p{ASCII}*$/u.test(expression)) throw new TypeError(`unexpected (${expression})`)
    // Case does not matter, so it cannot be turned on. Engines differ in whether they know these modifiers.
    if (/\(\?[ims-]+:/.test(expression)) throw new TypeError(`unexpected (${expression})`)
    new RegExp(expression, 'vi')
    return expression
  }

  function takeText(): string {
    let text = ''
    for (let next = takeOne(); next !== undefined; next = takeOne()) text += next
    return text
  }

  function takeOne(): string | undefined {
    return take(CHARACTER) ?? takeEscaped()
  }

  function takeEscaped(): string | undefined {
    return take(ESCAPED)?.slice(1)
  }

  function takeModifier(): Modifier {
    return (take(MODIFIER) ?? '') as Modifier
  }

  function take(token: RegExp): string | undefined {
    token.lastIndex = position
    const text = token.exec(pattern)?.[0]
    position += text?.length ?? 0
    return text
  }
}
