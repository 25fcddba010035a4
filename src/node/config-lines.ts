/** Finds the line of a setting in a config file, so that users need not count rules to find a mistake. */
import { readFileSync } from 'node:fs'
import { relative } from 'node:path'
import { ConfigError, type Mistake } from '../config/config-error.ts'

/**
 * @param error an error from the check of a config
 * @param file the file of the config
 * @returns a ConfigError with the file and the lines of the settings; any other error unchanged
 */
export function withLines(error: unknown, file: string): unknown {
  return error instanceof ConfigError ? new ConfigError(locate(error.mistakes, file), shortPath(file)) : error
}

/** Adds lines to mistakes or warnings, and puts them in the order of the file. */
export function locate<M extends Mistake>(mistakes: readonly M[], file: string): M[] {
  const source = readFileSync(file, 'utf8')
  const located = mistakes.map(mistake => {
    const line = lineOf(source, mistake.path)
    return { ...mistake, ...(line !== undefined && { line }) }
  })
  return located.sort((a, b) => (a.line ?? Number.MAX_VALUE) - (b.line ?? Number.MAX_VALUE))
}

/** Relative to the working directory, unless it lies outside of that. */
export function shortPath(file: string): string {
  const path = relative(process.cwd(), file)
  return path.startsWith('..') ? file : path
}

/**
 * The line of a setting. Reads the object literal in the source without evaluating it. A setting that is computed, or comes from another
 * file, gets the line of the nearest setting around it.
 * @param path as in `rules[2].period`
 * @returns undefined if the file exports no literal, or the first part of the path is not in it
 */
export function lineOf(source: string, path: string): number | undefined {
  // For an environment variable: the line that reads it.
  const [, variable] = /^process\.env\.(\w+)$/.exec(path) ?? []
  if (variable !== undefined) return lineAt(source, source.search(new RegExp(`\\b${variable}\\b`)))
  const start = /export default\s+(?:[\w$]+\s*\(\s*)?(?=\{)/.exec(source)
  if (!start) return undefined
  const parts = path === 'config' ? [] : path.match(/[^.[\]]+/g)!
  let at = start.index + start[0].length
  for (const [depth, part] of parts.entries()) {
    const found = childOf(source, at, part)
    if (found === undefined) {
      // A missing top-level setting has no line. Any other missing setting gets the line of the object around it.
      if (depth === 0) return undefined
      break
    }
    at = found
  }
  return lineAt(source, at)
}

/** @returns undefined for a place that was not found */
const lineAt = (source: string, at: number) => (at < 0 ? undefined : source.slice(0, at).split('\n').length)

/** The position of the value of a key, or of an item of a list; undefined if the source does not contain it. */
function childOf(source: string, parent: number, part: string): number | undefined {
  const open = parent + matchAt(CALL, source, parent).length
  const isList = source[open] === '['
  if (!isList && source[open] !== '{') return undefined
  let at = skipBlank(source, open + 1)
  for (let index = 0; at < source.length && source[at] !== '}' && source[at] !== ']'; index++) {
    // A spread stands for any number of items.
    if (isList && source.startsWith('...', at)) return undefined
    if (isList && String(index) === part) return at
    const key = isList ? '' : matchAt(KEY, source, at)
    if (key !== '' && key.replace(/\s*:$/, '').replaceAll(/^['"]|['"]$/g, '') === part)
      return skipBlank(source, at + key.length)
    at = skipBlank(source, skipItem(source, at))
    if (source[at] === ',') at = skipBlank(source, at + 1)
  }
  return undefined
}

/** The position after spaces and comments. */
const skipBlank = (source: string, at: number) => at + matchAt(BLANK, source, at).length

/** The position of the comma or the bracket that ends an item. */
function skipItem(source: string, start: number): number {
  let depth = 0
  let at = start
  while (at < source.length) {
    const token = matchAt(TOKEN, source, at)
    const isClosing = /^[)\]}]$/.test(token)
    if (depth === 0 && (isClosing || token === ',')) return at
    if (/^[([{]$/.test(token)) depth += 1
    if (isClosing) depth -= 1
    at += token.length
  }
  return at
}

/** `jwt(` in `jwt({ … })`: the settings are in the object. */
const CALL = /[\w$]+\(\s*(?=\{)/y
const KEY = /(?:'[^'\n]*'|"[^"\n]*"|[\w$]+)\s*:/y
const BLANK = /(?:\s|\/\/.*|\/\*[\s\S]*?\*\/)*/y
/** A string, a comment, or one character. */
const TOKEN = /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\[\s\S])*`|\/\/.*|\/\*[\s\S]*?\*\/|[\s\S]/y

/** The text that a sticky expression matches at a position; '' if it does not match. */
function matchAt(pattern: RegExp, source: string, at: number): string {
  pattern.lastIndex = at
  return pattern.exec(source)?.[0] ?? ''
}
