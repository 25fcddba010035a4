/** Compiles patterns to regular expressions, for values that are spelled canonically (canonical.ts). Pure. */
import type { Part, PatternSyntax, Variable } from './parse.ts'

/** Whether a value matches from an index on, which is 0 by default. */
export type Matches = (value: string, start?: number) => boolean

/** @throws AmbiguousError if a value could take more than linear time, unless the pattern has a regular expression in parentheses */
export function compileParts(parts: readonly Part[], syntax: PatternSyntax): Matches {
  const simplest = parts.map(part => withoutRepetition(part, syntax))
  const expression = new RegExp(`${sourceOf(simplest, syntax, '')}$`, 'viy')
  return (value, start = 0) => {
    expression.lastIndex = start
    return expression.test(value)
  }
}

/** @param group begins the names of groups in the source */
function sourceOf(parts: readonly Part[], syntax: PatternSyntax, group: string): string {
  const pieces = parts.flatMap(part => piecesOf(part, syntax))
  const isSimple = pieces.every(({ kind }) => kind !== 'other')
  // How long a regular expression in parentheses takes is up to its author, and so is the pattern around it.
  const isOwn = parts.some(({ kind }) => kind === 'expression')
  if (isOwn || !isAmbiguous(parts, syntax, isSimple))
    return isSimple ? greedySource(pieces, group) : join(pieces)
  const optional = parts.findIndex(({ modifier }) => modifier === '?')
  if (optional < 0 || group.length === MAX_SPLITS) throw new AmbiguousError()
  const given = parts.with(optional, { ...parts[optional]!, modifier: '' })
  const absent = parts.toSpliced(optional, 1)
  return `(?:${sourceOf(given, syntax, `${group}a`)}|${sourceOf(absent, syntax, `${group}b`)})`
}

/** An ambiguous pattern with optional parts becomes at most 2^4 patterns, each with or without each part. */
const MAX_SPLITS = 4

/** A pattern that could take quadratic time. */
export class AmbiguousError extends TypeError {}

/**
 * Whether a pattern could take quadratic time or more, because the same text could belong to either of two parts.
 * @param isSimple true: `greedySource` compiles it, which only cannot help where a name follows a wildcard in its segment
 */
function isAmbiguous(parts: readonly Part[], { separator }: PatternSyntax, isSimple: boolean): boolean {
  /** Parts that can match text of any length, separators included. */
  let long = 0
  /** What the segment so far contains. */
  let open: 'wildcard' | 'other' | undefined
  for (const part of parts) {
    const isRepeated = part.modifier === '*' || part.modifier === '+'
    const isRequired = part.modifier === '' || part.modifier === '+'
    const before = part.kind === 'text' ? part.text : part.prefix
    if (isRequired && before.includes(separator)) open = undefined
    if (part.kind === 'wildcard' || isRepeated) long += 1
    if (part.kind === 'text' && !isRepeated) continue
    const isSlow = isSimple ? open === 'wildcard' && part.kind === 'name' : open !== undefined
    if (isSlow && !before.includes(separator)) return true
    if (part.kind === 'wildcard') open = 'wildcard'
    else open ??= 'other'
    if (isRequired && part.kind !== 'text' && part.suffix.includes(separator)) open = undefined
  }
  return long > 1 && !isSimple
}

/** A piece of a regular expression. */
interface Piece {
  kind: 'text' | 'name' | 'wildcard' | 'other'
  source: string
}

function piecesOf(part: Part, syntax: PatternSyntax): Piece[] {
  const { kind, modifier } = part
  if (kind === 'text') {
    const source = quote(part.text)
    return modifier ? [{ kind: 'other', source: `(?:${source})${modifier}` }] : [{ kind: 'text', source }]
  }
  const value = { kind: kind === 'expression' ? ('other' as const) : kind, source: valueSource(part, syntax) }
  const [prefix, suffix] = [quote(part.prefix), quote(part.suffix)]
  if (modifier === '') return [{ kind: 'text', source: prefix }, value, { kind: 'text', source: suffix }]
  const once = `${prefix}${value.source}${suffix}`
  const isOptional = modifier !== '+'
  const isRepeated = modifier === '*' || modifier === '+'
  const source = isRepeated ? `${prefix}${value.source}(?:${suffix}${prefix}${value.source})*${suffix}` : once
  return [{ kind: 'other', source: `(?:${source})${isOptional ? '?' : ''}` }]
}

/** Drops repetition where one time matches all that several times match. Repeating would only add ways to match the same. */
function withoutRepetition(part: Part, { separator }: PatternSyntax): Part {
  const { kind, modifier } = part
  const isRepeated = modifier === '*' || modifier === '+'
  const isCovered =
    kind === 'wildcard' || (kind === 'name' && !(part.prefix + part.suffix).includes(separator))
  return isRepeated && isCovered ? { ...part, modifier: modifier === '*' ? '?' : '' } : part
}

function valueSource({ kind, expression }: Variable, { separator }: PatternSyntax): string {
  if (kind === 'wildcard') return '.*'
  return kind === 'name' ? `[^\\${separator}]+` : `(?:${expression})`
}

/**
 * The source for pieces of which each can take the shortest match for good, up to the next piece of its kind: what
 * follows then has the most room, so nothing is gained by trying a longer match. Without that, a value could make a
 * pattern with several wildcards or names take quadratic time or more.
 */
function greedySource(pieces: readonly Piece[], group = ''): string {
  const at = pieces.findIndex(({ kind }) => kind !== 'text')
  if (at < 0) return join(pieces)
  const { kind, source } = pieces[at]!
  const before = join(pieces.slice(0, at))
  const end = pieces.findIndex((piece, i) => i > at && isNext(kind, piece))
  if (end < 0) return `${before}${source}${greedySource(pieces.slice(at + 1), `${group}_`)}`
  const name = `$${group}`
  const upToNext = `${source}?${greedySource(pieces.slice(at + 1, end), `${group}a`)}`
  return `${before}(?=(?<${name}>${upToNext}))\\k<${name}>${greedySource(pieces.slice(end), `${group}b`)}`
}

/** A name ends before the next variable. A wildcard may contain what names match, so it ends before the next wildcard. */
const isNext = (kind: Piece['kind'], piece: Piece) =>
  kind === 'wildcard' ? piece.kind === 'wildcard' : piece.kind !== 'text'

const join = (pieces: readonly Piece[]) => pieces.map(({ source }) => source).join('')

/** Escapes text for a regular expression with the flag `v`. */
const quote = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
