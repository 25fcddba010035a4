/**
 * Sets of patterns for paths and hosts, compiled once and matched together. A path takes time in proportion to its length and to
 * the patterns that begin like it, whatever the number of the others. Pure.
 */
import { canonicalAddress, canonicalHost, canonicalPath } from './canonical.ts'
import { compileParts, type Matches } from './expression.ts'
import { type Part, type PatternSyntax, parsePattern, type Variable } from './parse.ts'

const PATH: PatternSyntax = { separator: '/', takesSeparator: true, canonical: canonicalPath }
const HOST: PatternSyntax = { separator: '.', takesSeparator: false, canonical: canonicalHost }

/**
 * Compiles a pattern for canonical paths.
 * @throws TypeError or SyntaxError if the text is not a URLPattern of a path; AmbiguousError if a path could take quadratic time
 */
export const pathMatcher = (pattern: string): Matches => compileParts(parsePattern(pattern, PATH), PATH)

/**
 * Compiles a pattern for canonical hosts.
 * @throws TypeError or SyntaxError if the text is not a URLPattern of a host; AmbiguousError if a host could take quadratic time
 */
export const hostMatcher = (pattern: string): Matches => compileParts(hostParts(pattern), HOST)

function hostParts(pattern: string): readonly Part[] {
  const parts = parsePattern(pattern, HOST)
  const [part] = parts
  const isFixed = parts.length === 1 && part?.kind === 'text' && part.modifier === ''
  return isFixed ? [{ ...part, text: canonicalAddress(part.text) }] : parts
}

/** Finds the patterns that match a canonical value. @returns the patterns as they were written */
export type FindPatterns = (value: string) => ReadonlySet<string>

/** For hosts, of which a request has one. */
export function hostFinder(patterns: readonly string[]): FindPatterns {
  const compiled = [...new Set(patterns)].map(pattern => [pattern, hostMatcher(pattern)] as const)
  return host => new Set(compiled.flatMap(([pattern, matches]) => (matches(host) ? pattern : [])))
}

/** What patterns have in common up to a slash. */
interface Node {
  /** By the next segment. */
  literal: Map<string, Node>
  /** The next segment is a name such as `:id`. */
  named?: Node
  /** Patterns that end here. */
  whole: string[]
  /** Patterns that continue with `/*`. */
  open: string[]
  /** Patterns whose rest, after the slash, is not a list of fixed or named segments. */
  others: [matches: Matches, pattern: string][]
}

const createNode = (): Node => ({ literal: new Map(), whole: [], open: [], others: [] })

export function pathFinder(patterns: readonly string[]): FindPatterns {
  const root = createNode()
  for (const pattern of new Set(patterns)) insert(root, pattern)
  return path => {
    const found = new Set<string>()
    collect(root, path, 0, found)
    return found
  }
}

/** Stands for a name in a list of segments. No canonical path contains it. */
const NAMED = '{}'

function insert(root: Node, pattern: string): void {
  const parts = parsePattern(pattern, PATH)
  const isPlain = (part: Part) => (part.kind === 'text' || part.kind === 'name') && part.modifier === ''
  const plain = parts.findIndex(part => !isPlain(part))
  const rest = plain < 0 ? [] : parts.slice(plain)
  const segments = (plain < 0 ? parts : parts.slice(0, plain)).map(spell).join('').split('/')
  const [next] = rest
  // Whether what follows the last of the segments begins with a slash.
  const isSeparate =
    next === undefined || (next.kind !== 'text' && next.modifier === '' && next.prefix === '/')
  const isWhole = (segment: string, i: number) =>
    (segment === NAMED || !segment.includes(NAMED)) && (isSeparate || i < segments.length - 1)
  const inNodes = segments.findIndex((segment, i) => !isWhole(segment, i))
  let node = root
  for (const segment of inNodes < 0 ? segments : segments.slice(0, inNodes)) node = childOf(node, segment)
  if (inNodes >= 0) {
    const left = [...partsOf(segments.slice(inNodes).join('/')), ...rest]
    node.others.push([compileParts(left, PATH), pattern])
  } else if (next === undefined) node.whole.push(pattern)
  else if (rest.length === 1 && next.kind === 'wildcard' && next.suffix === '') node.open.push(pattern)
  else
    node.others.push([compileParts([{ ...(next as Variable), prefix: '' }, ...rest.slice(1)], PATH), pattern])
}

/** Parts without modifiers, as text in which `NAMED` stands for a name. */
const spell = (part: Part) => (part.kind === 'text' ? part.text : `${part.prefix}${NAMED}${part.suffix}`)

/** The parts that `spell` has spelled. */
const partsOf = (text: string): Part[] =>
  text
    .split(/(\{\})/)
    .filter(piece => piece !== '')
    .map(piece =>
      piece === NAMED
        ? { kind: 'name', prefix: '', suffix: '', modifier: '' }
        : { kind: 'text', text: piece, modifier: '' },
    )

function childOf(node: Node, segment: string): Node {
  if (segment === NAMED) {
    node.named ??= createNode()
    return node.named
  }
  const child = node.literal.get(segment) ?? createNode()
  node.literal.set(segment, child)
  return child
}

/**
 * Adds the patterns that match from this node on. Calls itself at most once for each node.
 * @param start where the next segment begins; beyond the end of the path if no slash is left
 */
function collect(node: Node, path: string, start: number, found: Set<string>): void {
  if (start > path.length) {
    for (const pattern of node.whole) found.add(pattern)
    return
  }
  for (const pattern of node.open) found.add(pattern)
  for (const [matches, pattern] of node.others) if (matches(path, start)) found.add(pattern)
  if (!node.named && node.literal.size === 0) return
  const slash = path.indexOf('/', start)
  const end = slash < 0 ? path.length : slash
  const child = node.literal.get(path.slice(start, end))
  if (child) collect(child, path, end + 1, found)
  if (node.named && end > start) collect(node.named, path, end + 1, found)
}
