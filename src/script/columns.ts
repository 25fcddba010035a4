/** The constants of a script with loops: for each of them a table, with a value for each rule or identity. */
import { literal } from './lua-text.ts'

export type Value = number | string | boolean

export class Columns {
  readonly #tables = new Map<string, readonly Value[]>()

  /**
   * The Lua expression of a value. Equal values become a constant, and evenly spaced ones a sum, which need no table.
   * @param index the Lua variable that counts the values from 1
   */
  of(name: string, values: readonly Value[], index = 'i'): string {
    const [first, second] = values
    if (values.every(value => value === first)) return text(first!)
    if (typeof first === 'number' && typeof second === 'number') {
      const step = second - first
      if (values.every((value, i) => value === first + i * step)) return sumOf(step, index, first - step)
    }
    return `${this.table(name, values)}[${index}]`
  }

  /** Adds a table, whose fields the script may change. @returns its name */
  table(name: string, values: readonly Value[]): string {
    this.#tables.set(name, values)
    return name
  }

  /**
   * The declaration of all tables. They are made by a function of their own: an instruction can name only the first 256 constants of
   * its function, so hundreds of constants before the loops would make these slower.
   */
  declaration(): string {
    if (this.#tables.size === 0) return ''
    const tables = [...this.#tables.values()].map(values => `{ ${values.map(text).join(', ')} }`)
    return `local ${[...this.#tables.keys()].join(', ')} = (function()\nreturn ${tables.join(',\n')}\nend)()\n`
  }
}

const text = (value: Value) => (typeof value === 'boolean' ? String(value) : literal(value))

function sumOf(step: number, index: string, rest: number): string {
  const product = step === 1 ? index : `${literal(step)} * ${index}`
  return rest === 0 ? product : `(${product} + ${literal(rest)})`
}
