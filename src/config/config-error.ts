/** What a user reads when the config is wrong: every mistake at once, each with its place, value and fix. */
import type { BaseIssue } from 'valibot'
import { GatewayError } from '../errors.ts'

export interface Mistake {
  /** As one would write it: `rules[2].period` */
  path: string
  /** `'1 sec' is no duration. Write …` */
  message: string
}

export class ConfigError extends GatewayError {
  readonly mistakes: readonly Mistake[]

  constructor(mistakes: readonly Mistake[]) {
    const count = mistakes.length === 1 ? '1 mistake' : `${mistakes.length} mistakes`
    const lines = mistakes.map(mistake => `  ${mistake.path}: ${mistake.message}`)
    super('ERR_CONFIG_INVALID', [`The config has ${count}:`, ...lines].join('\n'))
    this.mistakes = mistakes
  }
}

/** A finding of the schema as a sentence about a path. */
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

/** A value as it stands in the file, cut short. */
export function show(value: unknown): string {
  const text =
    typeof value === 'string'
      ? `'${value}'`
      : typeof value === 'number'
        ? String(value)
        : typeof value === 'function'
          ? 'a function'
          : (JSON.stringify(value) ?? String(value))
  return text.length > 60 ? `${text.slice(0, 57)}…` : text
}
