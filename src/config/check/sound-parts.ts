/**
 * All that the schema finds in a config, and what is sound of a config with mistakes: a copy that the schema takes, so that the
 * other checks run on it too and a user reads every mistake at once. What is wrong is left out of the copy; a place that must not
 * be empty gets a neutral value, under its own index.
 */
import * as v from 'valibot'
import { ALGORITHM_NAMES, descriptions } from '../../algorithms/index.ts'
import type { Mistake } from '../config-error.ts'
import { nearest } from './did-you-mean.ts'
import { mistakeOf, pathOf } from './mistake.ts'
import { type ConfigInput, configSchema } from './schema.ts'

export interface SoundParts {
  mistakes: readonly Mistake[]
  /** Absent where too little is left. */
  config?: ConfigInput
  /** Whether a mistake that was found in `config` is one of what the user wrote, and not of what was left out or put in. */
  holds(mistake: Mistake): boolean
}

type Key = string | number
type Issue = v.BaseIssue<unknown>

/** Each round finds what the one before has hidden: the schema names one unknown key of an object at a time. */
const MOST_ROUNDS = 40

export function soundParts(input: unknown): SoundParts {
  const mistakes: Mistake[] = []
  const changed: Changed = { paths: new Set(), algorithms: new Set() }
  let copy = input
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const parsed = v.safeParse(configSchema, copy)
    if (parsed.success) {
      return { mistakes, config: parsed.output, holds: mistake => holds(mistake, changed) }
    }
    const found = parsed.issues.filter(issue => isNew(issue, changed))
    // With the value that the user wrote, where something below it was put in.
    mistakes.push(...found.map(issue => mistakeOf({ ...issue, input: valueAt(input, keysOf(issue)) })))
    const repaired = parsed.issues.reduce<unknown>((whole, issue) => repair(whole, issue, changed), copy)
    if (repaired === undefined) break
    copy = repaired
  }
  return { mistakes, holds: () => false }
}

interface Changed {
  /** Whose value was wrong or missing; without unknown keys, whose removal changes nothing. */
  paths: Set<string>
  /** Rules whose algorithm is not known, and with it which numbers they can have. */
  algorithms: Set<string>
}

const keysOf = (issue: Issue): Key[] => (issue.path ?? []).map(item => item.key as Key)

/** Not where something was left out or put in before. */
function isNew(issue: Issue, { paths, algorithms }: Changed): boolean {
  const keys = keysOf(issue)
  for (let length = 1; length <= keys.length; length++) {
    if (paths.has(pathOf(keys.slice(0, length)))) return false
  }
  const isOfAlgorithm = keys.length > 1 && algorithms.has(pathOf(keys.slice(0, -1)))
  return !(isOfAlgorithm && ALGORITHM_KEYS.has(String(keys.at(-1))))
}

/** What only some algorithms have. */
const ALGORITHM_KEYS = new Set([
  'adaptive',
  ...Object.values(descriptions).flatMap(({ parameters }) =>
    Object.keys(parameters).filter(key => key !== 'algorithm' && key !== 'limit'),
  ),
])

/** @returns undefined where the whole config is wrong */
function repair(whole: unknown, issue: Issue, { paths, algorithms }: Changed): unknown {
  let keys = keysOf(issue)
  const isUnknownKey = issue.type === 'strict_object' && issue.expected === 'never'
  if (isUnknownKey) return replaced(whole, keys, undefined)
  if (isAlgorithm(issue)) algorithms.add(pathOf(keys.slice(0, -1)))

  // An entry of a plain list stands for the list: without it the others would move up.
  const list = keys.findIndex((key, i) => typeof key === 'number' && !isEntry(keys.slice(0, i + 1)))
  if (list >= 0) keys = keys.slice(0, list)
  // What must be there, and has no neutral value, takes what it belongs to with it.
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

/** `rules[2]`, `limits.zendesk[0]`, `routes[1]`, `shedding.classes[0]`: entries that are checked one by one. */
const isEntry = (keys: readonly Key[]) =>
  /^(rules|routes|limits\.[^.]+|shedding\.classes)\[\d+\]$/.test(pathOf(keys))

/** A value that no other check finds anything in. */
function neutralFor(keys: readonly Key[], { input }: Issue): unknown {
  const key = keys.at(-1)!
  const entry = keys.slice(0, -1)
  if (pathOf(keys) === 'origin') return 'route'
  if (pathOf(keys) === 'rules') return [{}]
  if (isEntry(keys)) return {}
  if (!isEntry(entry)) return undefined
  if (key === 'name') return `unnamed-${entry.at(-1)}`
  if (entry[0] === 'routes') return key === 'match' ? { path: `/unnamed-${entry.at(-1)}` } : undefined
  if (key === 'algorithm') return nearest(String(input), ALGORITHM_NAMES) ?? 'gcra'
  if (key === 'by') return entry[0] === 'rules' ? 'address' : undefined
  if (key === 'limit') return 1e4
  return key === 'period' ? '1h' : undefined
}

function valueAt(whole: unknown, keys: readonly Key[]): unknown {
  return keys.reduce<unknown>((value, key) => (value as Record<Key, unknown> | undefined)?.[key], whole)
}

/** A copy with another value, or without any, at a place. */
function replaced(whole: unknown, [key, ...rest]: readonly Key[], value: unknown): unknown {
  if (key === undefined || whole === undefined) return value
  const of = (inner: unknown) => (rest.length > 0 ? replaced(inner, rest, value) : value)
  if (Array.isArray(whole)) return whole.map((each, i) => (i === key ? of(each) : each))
  const { [key]: inner, ...others } = whole as Record<Key, unknown>
  const made = of(inner)
  return made === undefined ? others : { ...others, [key]: made }
}

/** What mistakes are about beside the values of their own section or entry: the paths that must be sound as well. */
const DEPENDS_ON: readonly [mistake: RegExp, on: RegExp][] = [
  [/\bplans\b/, /^plans/],
  [/\.match\.routes/, /^routes(\[\d+\](\.name)?)?$/],
  [/\.candidateFor$/, /^(rules|limits\.[^.[]+)(\[\d+\](\.name|\.mode|\.candidateFor)?)?$/],
  [/\baccept\b|\.by$/, /^credentials(\.(jwt|opaqueKeys)\b|$)/],
  [/^routes\[\d+\]\.cost$|^plans$|^shedding/, /^(rules|routes|plans|shedding)/],
]

/** Settings of one entry that are checked against each other: a wrong one says nothing of those of another group. */
const GROUPS = [
  ['algorithm', 'limit', 'period', 'timeZone', 'burst', 'queue', 'ttl', 'cost', 'plans', 'adaptive'],
  ['mode', 'enforce', 'candidateFor'],
  ['lease', 'algorithm'],
  ['lease', 'on'],
  ['by', 'on', 'match', 'plans', 'cost'],
  ['cost', 'limits'],
]

/** Mistakes that are about one name alone. */
const OF_NAMES = /\.(candidateFor|match\.(routes|plans)|plans\.[\w-]+|accept\[\d+\])$/

/** The part of a config that a mistake is about: an entry of a list, an issuer, a list of addresses, or a section. */
const PART = /^(\w+(\.[\w-]+)?\[\d+\]|credentials\.jwt\.[\w-]+|(allow|block)\.\w+|\w+)/

function holds({ path }: Mistake, { paths }: Changed): boolean {
  const part = PART.exec(path)![0]
  return ![...paths].some(wrong => {
    if (DEPENDS_ON.some(([mistake, on]) => mistake.test(path) && on.test(wrong))) return true
    if (isWithin(path, wrong)) return true
    if (!isWithin(wrong, part) || OF_NAMES.test(path)) return false
    if (!part.endsWith(']')) return true
    const [key, wrongKey] = [path, wrong].map(each => /^\.(\w+)/.exec(each.slice(part.length))?.[1] ?? '')
    return key === wrongKey || GROUPS.some(group => group.includes(key!) && group.includes(wrongKey!))
  })
}

const isWithin = (path: string, outer: string) =>
  path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`)
