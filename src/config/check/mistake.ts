/** Converts findings of the schema to messages for users: the path, the value and the fix. */
import type { BaseIssue } from 'valibot'
import type { Mistake } from '../config-error.ts'

/** Converts a finding of the schema. Findings that expect `never` have messages that leave the value out. */
export function mistakeOf(issue: BaseIssue<unknown>): Mistake {
  const keys = (issue.path ?? []).map(item => item.key as string | number)
  const list = (issue.path ?? []).findIndex(item => item.type === 'object' && Array.isArray(item.input))
  if (list >= 0) {
    const path = list === 0 ? 'config' : pathOf(keys.slice(0, list))
    return { path, message: `${show(issue.path![list]!.input)} is a list. Write an object, { … }.` }
  }
  const path = keys.length === 0 ? 'config' : pathOf(keys)
  if (issue.expected === 'never') return { path, message: issue.message }
  if (issue.input === undefined) {
    const fix = /\. (.+)$/s.exec(issue.message)?.[1]
    return { path, message: `is missing.${fix ? ` ${fix}` : ''}` }
  }
  return { path, message: `${show(issue.input)} ${issue.message}` }
}

/** `rules[0].match.path` */
export function pathOf(keys: readonly (string | number)[]): string {
  return keys.map((key, i) => (typeof key === 'number' ? `[${key}]` : i === 0 ? key : `.${key}`)).join('')
}

const MAX_LENGTH = 60

/** Formats a value as in the config file: at most 60 characters, URLs without credentials. */
export function show(value: unknown): string {
  const text = literal(value).replace(/:\/\/[^/?#\s'"]*@/g, '://…@')
  return text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH - 3)}…` : text
}

/** Writes a value as a literal of TypeScript. Never throws: a config can contain anything, such as a cycle or a getter that throws. */
function literal(value: unknown, depth = 0): string {
  if (typeof value === 'string') return `'${value}'`
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'function') return 'a function'
  if (typeof value !== 'object' || value === null) return String(value)
  // Deeper values do not fit into the message.
  if (depth > 3) return '…'
  try {
    if (Array.isArray(value))
      return `[${first(value)
        .map(each => literal(each, depth + 1))
        .join(', ')}]`
    const entries = first(Object.keys(value)).map(key => {
      const written = /^[A-Za-z_$][\w$]*$/.test(key) ? key : `'${key}'`
      return `${written}: ${literal((value as Record<string, unknown>)[key], depth + 1)}`
    })
    return entries.length > 0 ? `{ ${entries.join(', ')} }` : '{}'
  } catch {
    return 'an object'
  }
}

/** As many as can be visible in the message: each takes at least two characters. */
const first = <T>(items: readonly T[]): readonly T[] => items.slice(0, MAX_LENGTH / 2)
