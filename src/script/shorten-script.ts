/**
 * Shortens the text of a script for deployment: locals get short names, and unneeded spaces are removed. A Worker carries its scripts
 * as text, in which a name like `reset_after_3` occurs dozens of times. Line numbers do not change.
 *
 * A short name comes from a hash of the long one, so a local has the same short name in nearly all scripts. Text that scripts have in
 * common then takes hardly any room in the bundle of a Worker, because the bundle is compressed.
 *
 * Within a script, a name gets the same short name in every scope, and two names never get the same one. So the meaning of the script
 * stays the same if every renamed name is a local wherever it occurs. This is the case: names that Lua or Redis define are kept, and
 * a Redis script can neither set a global nor read an undefined one.
 */
import { fnv1a } from '../hash.ts'

/** The keywords of Lua, and the globals of Lua 5.1, Redis and Valkey. Lua itself declares `arg` and `self`. */
const RESERVED: ReadonlySet<string> = /* @__PURE__ */ (() =>
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
 * The tokens of Lua 5.1: names, space, comments, strings, numbers, `..` and `...`, and any other character. `..` is a token of its
 * own, so that a name after it does not look like a field. The most frequent tokens come first.
 */
const TOKENS =
  /[A-Za-z_]\w*|\s+|--\[(=*)\[.*?\]\1\]|--[^\n\r]*|\[(=*)\[.*?\]\2\]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|0[xX]\w*|\.?\d(?:[eE][+-]|[\w.])*|\.{2,3}|./gs

/** Names and keywords begin with a letter or an underscore. Codes instead of patterns, because a config has a million tokens. */
function isName(token: string | undefined): boolean {
  if (token === undefined) return false
  const code = token.charCodeAt(0) | LOWER_CASE
  return (code >= 97 && code <= 122) || token[0] === '_'
}

const LOWER_CASE = 0x20

/** Whether a token is not a space or a comment. */
const isCode = (token: string) => !(token.startsWith('--') || isSpace(token))
const isSpace = (token: string) => token[0] === ' ' || token[0] === '\n' || /^\s/.test(token)

/** Whether two tokens need a space between them: `local name`, `1 .. text`, and `- -`, which would begin a comment. */
function needsSpace(before = '', after = ''): boolean {
  if (before === '' || after === '') return true
  // The usual cases, because splitting the text again takes long.
  if (isName(before)) return isName(after) || /^\d/.test(after)
  if (before.length === 1 && '(){}],=+*/%<>~#:;'.includes(before)) return false
  // Two opening brackets would begin a long string.
  if (before === '[' && after.startsWith('[')) return true
  const both = (before + after).match(TOKENS)
  return both?.length !== 2 || both[0] !== before
}

/** Shortens a script. The result depends only on the text. Shortening it again changes nothing. */
export function shortenScript(text: string): string {
  const tokens = text.match(TOKENS) ?? []
  const shortNames = shortNamesFor(tokens.filter(isCode))
  let short = ''
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!
    if (isName(token)) short += shortNames.get(token) ?? token
    else if (token[0] !== ' ' || !/^ +$/.test(token) || needsSpace(tokens[i - 1], tokens[i + 1]))
      short += token
  }
  return short
}

function shortNamesFor(tokens: readonly string[]): ReadonlyMap<string, string> {
  const { all, declared, keys } = collectNames(tokens)
  const isLong = (name: string) =>
    declared.has(name) && !keys.has(name) && !RESERVED.has(name) && !SHORT_NAME.test(name)
  const inUse = new Set([...RESERVED, ...[...all].filter(name => !isLong(name))])
  const shortNames = new Map<string, string>()
  for (const name of [...all].filter(isLong)) {
    let short: string | undefined
    for (let attempt = 0; short === undefined || inUse.has(short); attempt++)
      short = shortNameCandidate(name, attempt)
    inUse.add(short)
    shortNames.set(name, short)
  }
  return shortNames
}

/** Names that are not shortened. All short names have this form. */
const SHORT_NAME = /^[A-Za-z]{1,2}\d*$/

const LETTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'

/** `backlog_2` → `k2`, or `kR2` if `k2` is in use. */
function shortNameCandidate(name: string, attempt: number): string {
  const [, stem = '', number = ''] = /^(.*?)(?:_(\d+))?$/.exec(name)!
  const hash = fnv1a(`${stem}${attempt || ''}`)
  const second = attempt > 0 ? LETTERS[Math.floor(hash / LETTERS.length) % LETTERS.length] : ''
  // After many attempts a number is added, so that an unused name is always found.
  const more = attempt > 100 ? attempt : ''
  return `${LETTERS[hash % LETTERS.length]}${second}${number}${more}`
}

interface Names {
  /** All names, in the order of the text. */
  all: ReadonlySet<string>
  /** Names that are declared as a local somewhere. */
  declared: ReadonlySet<string>
  /** Fields and keys of tables. A name that only looks like a key is also kept, which does no harm. */
  keys: ReadonlySet<string>
}

function collectNames(tokens: readonly string[]): Names {
  const all = new Set<string>()
  const declared = new Set<string>()
  const keys = new Set<string>()
  /** Whether the next names declare locals: after `local`, `for` or `function (`, as long as commas join them. */
  let isDeclaring = false
  const brackets: string[] = []
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!
    const before = tokens[i - 1] ?? ''
    if (token === 'local' || token === 'for' || (token === '(' && beginsParameters(tokens, i)))
      isDeclaring = true
    else if (isName(token) && token !== 'function') {
      const next = tokens[i + 1]
      all.add(token)
      const isInTable = brackets.at(-1) === '{' && (before === '{' || before === ',' || before === ';')
      const isKey = isInTable && next === '=' && tokens[i + 2] !== '='
      if (before === '.' || before === ':' || isKey) keys.add(token)
      else if (isDeclaring) declared.add(token)
      isDeclaring &&= next === ','
    } else if (token !== ',' && token !== 'function') isDeclaring = false
    if (token === '(' || token === '{' || token === '[') brackets.push(token)
    else if (token === ')' || token === '}' || token === ']') brackets.pop()
  }
  return { all, declared, keys }
}

/** Whether the bracket begins the parameters of a function. The function can have a name of several parts. */
function beginsParameters(tokens: readonly string[], bracket: number): boolean {
  let at = bracket - 1
  while (tokens[at] !== 'function' && (tokens[at] === '.' || tokens[at] === ':' || isName(tokens[at])))
    at -= 1
  return tokens[at] === 'function'
}
