/** Converts findings of the schema to messages for users: the path, the value and the fix. */
import type { BaseIssue } from 'valibot'
import type { Mistake } from '../config-error.ts'

/** Converts a finding of the schema. Findings that expect `never` have messages that leave the value out. */
export function mistakeOf(issue: BaseIssue<unknown>): Mistake {
  const keys = (issue.path ?? []).map(item => item.key as string | number)
  const list = (issue.path ?? []).findIndex(item => item.type === 'object' && Array.isArray(item.input))
  if (list >= 0) {
    const path = pathOf(keys.slice(0, list))
    return { path, message: `${show(issue.path![list]!.input)} is a list. Write an object, { … }.` }
  }
  const path = pathOf(keys)
  if (issue.expected === 'never') return { path, message: issue.message }
  if (issue.input === undefined) {
    const fix = /\. (.+)$/s.exec(issue.message)?.[1]
    return { path, message: `is missing.${fix ? ` ${fix}` : ''}` }
  }
  return { path, message: `${show(issue.input)} ${issue.message}` }
}

/** `rules[0].match.path`, or `config` for the whole config. */
export function pathOf(keys: readonly (string | number)[]): string {
  const path = keys
    .map((key, i) => (typeof key === 'number' ? `[${key}]` : i === 0 ? key : `.${key}`))
    .join('')
  return path || 'config'
}

/** Formats a value as in the config file: at most 60 characters, URLs without credentials. */
export function show(value: unknown): string {
  const written =
    typeof value === 'string'
      ? `'${value}'`
      : typeof value === 'function'
        ? 'a function'
        : typeof value === 'object'
          ? literal(value)
          : typeof value === 'bigint'
            ? `${value}n`
            : String(value)
  const text = written.replace(/:\/\/[^/?#\s'"]*@/g, '://…@')
  return text.length > 60 ? `${text.slice(0, 57)}…` : text
}

/** `Object` for an object with fields, `Array`, `Map`, `Date`, `Number` for an object that has a number, and so on. */
export const kindOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1)

/** A literal of TypeScript, also for bigints; `a Map` for other objects; `an object` for a cycle. A config can contain anything. */
function literal(value: object | null): string {
  try {
    const kind = kindOf(value)
    if (!/^(Object|Array|Null)$/.test(kind)) return `a ${kind}`
    const json = JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? `${each}n` : each))
    return json
      .replaceAll(/"(\w+)":/g, '$1: ')
      .replaceAll('"', "'")
      .replaceAll(/(?<=[{,])(?!})|(?<!{)(?=})/g, ' ')
  } catch {
    return 'an object'
  }
}
