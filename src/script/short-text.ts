/**
 * The text of a script as it is deployed: with short names for its locals, and without spaces that Lua does not need. A Worker
 * carries its scripts as text, where a name like `reset_after_3` stands dozens of times. Lines count as before.
 *
 * A short name comes from a hash of the long one, so that a name has the same short one in nearly all scripts: what scripts have in
 * common takes no more room in the bundle of a Worker, which is compressed.
 *
 * In one script a name gets the same short name everywhere, whatever its scope, and two names never get the same one. So the script means
 * the same, as long as every name that is renamed is a local wherever it stands. Names that Lua or Redis define are kept, and a
 * script of Redis can define no others: it may neither set a global nor read one that is not there.
 */
import { fnv1a } from '../hash.ts'

/** Lua's own words, and the globals of Lua 5.1, Redis and Valkey; `arg` and `self` are declared by Lua itself. */
const KEPT: ReadonlySet<string> = /* @__PURE__ */ (() =>
  new Set([
    ...[
      'and',
      'break',
      'do',
      'else',
      'elseif',
      'end',
      'false',
      'for',
      'function',
      'goto',
      'if',
      'in',
      'local',
    ],
    ...['nil', 'not', 'or', 'repeat', 'return', 'then', 'true', 'until', 'while'],
    ...['_G', '_VERSION', 'assert', 'collectgarbage', 'coroutine', 'debug', 'dofile', 'error', 'getfenv'],
    ...[
      'getmetatable',
      'io',
      'ipairs',
      'load',
      'loadfile',
      'loadstring',
      'math',
      'module',
      'newproxy',
      'next',
    ],
    ...['os', 'package', 'pairs', 'pcall', 'print', 'rawequal', 'rawget', 'rawset', 'require', 'select'],
    ...['setfenv', 'setmetatable', 'string', 'table', 'tonumber', 'tostring', 'type', 'unpack', 'xpcall'],
    ...['ARGV', 'KEYS', 'bit', 'cjson', 'cmsgpack', 'redis', 'server', 'struct'],
    ...['arg', 'self'],
  ]))()

/**
 * The tokens of Lua 5.1: comments, strings, numbers, names, `..` and `...` (which a name can follow without being a field), space,
 * and any other character.
 */
const TOKENS =
  /--\[(=*)\[.*?\]\1\]|--[^\n\r]*|\[(=*)\[.*?\]\2\]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|0[xX]\w*|\.?\d(?:[eE][+-]|[\w.])*|[A-Za-z_]\w*|\.{2,3}|\s+|./gs

const isName = (token: string | undefined) => token !== undefined && /^[A-Za-z_]/.test(token)
const isCode = (token: string) => !token.startsWith('--') && token.trim() !== ''

/** Whether two tokens would be others without a space between them: `local name`, `1 .. text`, and `- -`, which begins a comment. */
function needsSpace(before = '', after = ''): boolean {
  // A long string begins with two brackets, and may end anywhere.
  if (before === '[' && after.startsWith('[')) return true
  const both = (before + after).match(TOKENS)
  return both?.length !== 2 || both[0] !== before
}

/** The same script in short. The same text always gets the same names, and a text that is short already stays as it is. */
export function shortText(text: string): string {
  const tokens = text.match(TOKENS) ?? []
  const shortNames = shortNamesFor(tokens.filter(isCode))
  const isNeeded = (token: string, i: number) =>
    !/^ +$/.test(token) || needsSpace(tokens[i - 1], tokens[i + 1])
  return tokens
    .filter(isNeeded)
    .map(token => shortNames.get(token) ?? token)
    .join('')
}

function shortNamesFor(tokens: readonly string[]): ReadonlyMap<string, string> {
  const { all, declared, keys } = namesAmong(tokens)
  const isLong = (name: string) =>
    declared.has(name) && !keys.has(name) && !KEPT.has(name) && !SHORT.test(name)
  const taken = new Set([...KEPT, ...[...all].filter(name => !isLong(name))])
  const shortNames = new Map<string, string>()
  for (const name of [...all].filter(isLong)) {
    let short: string | undefined
    for (let attempt = 0; short === undefined || taken.has(short); attempt++) short = candidate(name, attempt)
    taken.add(short)
    shortNames.set(name, short)
  }
  return shortNames
}

/** Names that are short enough; all that are given are. */
const SHORT = /^[A-Za-z]{1,2}\d*$/

const LETTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'

/** `backlog_2` → `k2`, or `kR2` where that is taken. */
function candidate(name: string, attempt: number): string {
  const [, stem = '', number = ''] = /^(.*?)(?:_(\d+))?$/.exec(name)!
  const hash = fnv1a(`${stem}${attempt || ''}`)
  const second = attempt > 0 ? LETTERS[Math.floor(hash / LETTERS.length) % LETTERS.length] : ''
  // So that there is no end of names.
  const more = attempt > 100 ? attempt : ''
  return `${LETTERS[hash % LETTERS.length]}${second}${number}${more}`
}

interface Names {
  /** In the order of the text. */
  all: ReadonlySet<string>
  /** Declared as a local somewhere. */
  declared: ReadonlySet<string>
  /** Fields and keys of tables. A name that only looks like a key is kept without need. */
  keys: ReadonlySet<string>
}

function namesAmong(tokens: readonly string[]): Names {
  const all = new Set<string>()
  const declared = new Set<string>()
  const keys = new Set<string>()
  /** Names declare locals here, as long as commas join them. */
  let isDeclaring = false
  const brackets: string[] = []
  for (const [i, token] of tokens.entries()) {
    const [before = '', next] = [tokens[i - 1], tokens[i + 1]]
    if (token === 'local' || token === 'for' || (token === '(' && isOfFunction(tokens, i))) isDeclaring = true
    else if (isName(token) && token !== 'function') {
      all.add(token)
      const isInTable = brackets.at(-1) === '{' && /^[{,;]$/.test(before)
      const isKey = isInTable && next === '=' && tokens[i + 2] !== '='
      if (before === '.' || before === ':' || isKey) keys.add(token)
      else if (isDeclaring) declared.add(token)
      isDeclaring &&= next === ','
    } else if (token !== ',' && token !== 'function') isDeclaring = false
    if (/^[({[]$/.test(token)) brackets.push(token)
    else if (/^[)}\]]$/.test(token)) brackets.pop()
  }
  return { all, declared, keys }
}

/** Whether the bracket begins the parameters of a function, which can have a name of several parts. */
function isOfFunction(tokens: readonly string[], bracket: number): boolean {
  let at = bracket - 1
  while (tokens[at] !== 'function' && (/^[.:]$/.test(tokens[at] ?? '') || isName(tokens[at]))) at -= 1
  return tokens[at] === 'function'
}
