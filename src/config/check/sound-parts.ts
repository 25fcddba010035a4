/**
 * Finds all mistakes that the schema finds, and makes a copy of the config without them. The other checks run on this copy, so that a
 * user sees all mistakes at once. Invalid values are left out of the copy. If a value must not be missing, it gets a neutral one, so
 * that the indexes of lists do not change.
 */
import * as v from 'valibot'
import { ALGORITHM_NAMES, descriptions } from '../../algorithms/index.ts'
import type { Mistake } from '../config-error.ts'
import { nearest } from './did-you-mean.ts'
import { mistakeOf, pathOf } from './mistake.ts'
import { type ConfigInput, configSchema } from './schema.ts'

export interface SoundParts {
  mistakes: readonly Mistake[]
  /** The repaired copy. Absent: the config cannot be repaired. */
  config?: ConfigInput
  /** Whether a mistake in the copy is also in the user's config, and not a result of the repair. */
  holds(mistake: Mistake): boolean
}

type Key = string | number
type Issue = v.BaseIssue<unknown>

/** Each round finds mistakes that the one before has hidden, because the schema reports only one unknown key of an object at a time. */
const MAX_ROUNDS = 40

export function findSoundParts(input: unknown): SoundParts {
  const mistakes: Mistake[] = []
  const changed: Changed = { paths: new Set(), algorithms: new Set() }
  let copy = input
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const parsed = v.safeParse(configSchema, copy)
    if (parsed.success) {
      return { mistakes, config: parsed.output, holds: mistake => holds(mistake, changed) }
    }
    const found = parsed.issues.filter(issue => isNew(issue, changed))
    // Reports the value that the user wrote, which a repair may have changed in the copy.
    mistakes.push(...found.map(issue => mistakeOf({ ...issue, input: valueAt(input, keysOf(issue)) })))
    const repaired = parsed.issues.reduce<unknown>((whole, issue) => repair(whole, issue, changed), copy)
    if (repaired === undefined) break
    copy = repaired
  }
  return { mistakes, holds: () => false }
}

/** The paths that the repair has changed. */
interface Changed {
  /** Values that were invalid or missing. Unknown keys are not included, because their removal changes nothing. */
  paths: Set<string>
  /** Rules with an unknown algorithm, so that it is also unknown which numbers they can have. */
  algorithms: Set<string>
}

const keysOf = (issue: Issue): Key[] => (issue.path ?? []).map(item => item.key as Key)

/** Whether an issue is not about a value that the repair has changed before. */
function isNew(issue: Issue, { paths, algorithms }: Changed): boolean {
  const keys = keysOf(issue)
  for (let length = 1; length <= keys.length; length++) {
    if (paths.has(pathOf(keys.slice(0, length)))) return false
  }
  const isOfAlgorithm = keys.length > 1 && algorithms.has(pathOf(keys.slice(0, -1)))
  return !(isOfAlgorithm && ALGORITHM_KEYS.has(String(keys.at(-1))))
}

/** Settings that only some algorithms have. */
const ALGORITHM_KEYS = new Set([
  'adaptive',
  ...Object.values(descriptions).flatMap(({ parameters }) =>
    Object.keys(parameters).filter(key => key !== 'algorithm' && key !== 'limit'),
  ),
])

/** A copy without the value that an issue is about, or with a neutral one. @returns undefined if the config cannot be repaired */
function repair(whole: unknown, issue: Issue, { paths, algorithms }: Changed): unknown {
  let keys = keysOf(issue)
  const isUnknownKey = issue.type === 'strict_object' && issue.expected === 'never'
  if (isUnknownKey) return replaced(whole, keys, undefined)
  if (isAlgorithm(issue)) algorithms.add(pathOf(keys.slice(0, -1)))

  // Removing an entry of a plain list would change the indexes of the others, so the whole list is removed.
  const list = keys.findIndex((key, i) => typeof key === 'number' && !isEntry(keys.slice(0, i + 1)))
  if (list >= 0) keys = keys.slice(0, list)
  // If a required value has no neutral one, the object that contains it is repaired instead.
  while (keys.length > 0) {
    const neutral = neutralFor(keys, issue)
    const isGone = valueAt(whole, keys) === undefined || paths.has(pathOf(keys))
    paths.add(pathOf(keys))
    if (neutral !== undefined || !isGone) return replaced(whole, keys, neutral)
    keys = keys.slice(0, -1)
  }
  return undefined
}

const isAlgorithm = ({ type, path }: Issue) => type === 'variant' && path?.at(-1)?.key === 'algorithm'

/** Whether a path is an entry that is checked by itself: `rules[2]`, `limits.zendesk[0]`, `routes[1]`, `shedding.classes[0]`. */
const isEntry = (keys: readonly Key[]) =>
  /^(rules|routes|limits\.[^.]+|shedding\.classes)\[\d+\]$/.test(pathOf(keys))

/** A value in which no other check finds a mistake. */
function neutralFor(keys: readonly Key[], { input }: Issue): unknown {
  const key = keys.at(-1)!
  const entry = keys.slice(0, -1)
  if (pathOf(keys) === 'origin') return 'route'
  if (pathOf(keys) === 'rules') return [{}]
  if (isEntry(keys)) return {}
  if (!isEntry(entry)) return undefined
  if (key === 'name') return `unnamed-${entry.at(-1)}`
  if (entry[0] === 'routes') return key === 'match' ? { path: `/unnamed-${entry.at(-1)}` } : undefined
  if (key === 'algorithm') return (typeof input === 'string' && nearest(input, ALGORITHM_NAMES)) || 'gcra'
  if (key === 'by') return entry[0] === 'rules' ? 'address' : undefined
  if (key === 'limit') return 1e4
  return key === 'period' ? '1h' : undefined
}

function valueAt(whole: unknown, keys: readonly Key[]): unknown {
  return keys.reduce<unknown>((value, key) => (value as Record<Key, unknown> | undefined)?.[key], whole)
}

/** A copy with another value at a path, or without it if the value is undefined. */
function replaced(whole: unknown, [key, ...rest]: readonly Key[], value: unknown): unknown {
  if (key === undefined || whole === undefined) return value
  const of = (inner: unknown) => (rest.length > 0 ? replaced(inner, rest, value) : value)
  if (Array.isArray(whole)) return whole.map((each, i) => (i === key ? of(each) : each))
  const { [key]: inner, ...others } = whole as Record<Key, unknown>
  const made = of(inner)
  return made === undefined ? others : { ...others, [key]: made }
}

/** Mistakes that also depend on values outside of their own section or entry, and the paths of these values. */
const DEPENDS_ON: readonly [mistake: RegExp, on: RegExp][] = [
  [/\bplans\b/, /^plans/],
  [/\.match\.routes/, /^routes(\[\d+\](\.name)?)?$/],
  [/\baccept\b|\.by$/, /^credentials(\.(jwt|opaqueKeys)\b|$)/],
  [/^routes\[\d+\]\.cost$|^plans$|^shedding/, /^(rules|routes|plans|shedding)/],
  [/\.(unit|limit)$/, /^(units|hooks)/],
  [/^units|^hooks\.(amounts|actual)$|^onClientGone$/, /^(rules|hooks|units)/],
]

/** Settings of one entry that are checked against each other. An invalid one does not affect the mistakes of another group. */
const GROUPS = [
  ['algorithm', 'limit', 'period', 'timeZone', 'start', 'burst', 'queue', 'ttl', 'cost', 'plans', 'adaptive'],
  ['algorithm', 'max'],
  ['unit', 'countIf', 'algorithm', 'on', 'cost', 'lease'],
  ['unit', 'limit', 'burst', 'period'],
  ['mode', 'enforce', 'candidateFor'],
  ['lease', 'algorithm'],
  ['lease', 'on'],
  ['by', 'on', 'match', 'plans', 'cost', 'acrossModes'],
  ['cost', 'limits'],
]

/** Mistakes that depend on one name only. */
const OF_NAMES = /\.(candidateFor|match\.(routes|plans)|plans\.[\w-]+|accept\[\d+\])$/

/** The part of a config that a mistake belongs to: an entry of a list, an issuer, a list of addresses, or a section. */
const PART = /^(\w+(\.[\w-]+)?\[\d+\]|credentials\.jwt\.[\w-]+|(allow|block)\.\w+|\w+)/

/** Paths on which mistakes of `candidateFor` in a set of rules depend: the set, a rule, or settings that make a rule replaceable. */
const REPLACEABLE = /^(rules|limits\.[^.[]+)(\[\d+\](\.name|\.mode|\.candidateFor)?)?$/

function isOfSameSet(path: string, wrong: string): boolean {
  const set = REPLACEABLE.exec(wrong)?.[1]
  return set !== undefined && path.endsWith('.candidateFor') && path.startsWith(`${set}[`)
}

function holds({ path }: Mistake, { paths }: Changed): boolean {
  const part = PART.exec(path)![0]
  return ![...paths].some(wrong => {
    if (DEPENDS_ON.some(([mistake, on]) => mistake.test(path) && on.test(wrong))) return true
    if (isOfSameSet(path, wrong)) return true
    if (isWithin(path, wrong)) return true
    if (!isWithin(wrong, part) || OF_NAMES.test(path)) return false
    if (!part.endsWith(']')) return true
    const [key, wrongKey] = [path, wrong].map(each => /^\.(\w+)/.exec(each.slice(part.length))?.[1] ?? '')
    return key === wrongKey || GROUPS.some(group => group.includes(key!) && group.includes(wrongKey!))
  })
}

const isWithin = (path: string, outer: string) =>
  path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`)
