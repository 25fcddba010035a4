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

/** Formats a value as in the config file: at most 60 characters, URLs without credentials. */
export function show(value: unknown): string {
  const written =
    typeof value === 'string'
      ? `'${value}'`
      : typeof value === 'number'
        ? String(value)
        : typeof value === 'function'
          ? 'a function'
          : (json(value) ?? String(value))
  const text = written.replace(/:\/\/[^/?#\s'"]*@/g, '://…@')
  return text.length > 60 ? `${text.slice(0, 57)}…` : text
}

/** JSON, also for values that JSON cannot represent, such as bigints and cycles: a config can contain anything. */
function json(value: unknown): string | undefined {
  try {
    return JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? `${each}n` : each))
  } catch {
    return 'an object'
  }
}
