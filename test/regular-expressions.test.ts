/**
 * No regular expression of src takes more than linear time for a text that a caller chooses. recheck proves that for most, and searches
 * slow texts for those with look-behind or counted repetition. The expressions are found by parsing the sources, so it also checks a
 * new one.
 */
import { globSync, readFileSync } from 'node:fs'
import { check } from 'recheck'
import { expect, it } from 'vitest'
import { parseAst } from 'vitest/node'
import { ROOT, readPage } from './support/pages.ts'

/** Files whose paths begin like this, and whose expressions never read text of a caller. */
const EXEMPT: Readonly<Record<string, string>> = {
  'src/node/cli/': 'reads arguments of the operator, and messages',
  'src/node/config-': 'reads the config file, and messages about it',
  'src/node/doctor/': 'reads replies of the servers of the operator',
  'src/node/serve/serve-store.ts': 'reads REDIS_URL',
  'src/node/bundle-lua.ts': 'reads the Lua of Sluice',
  'src/node/tls-failure.ts': 'reads messages of Node',
  'src/node/wrangler-file.ts': 'reads wrangler.toml',
  'src/config/check/': 'reads the config',
  'src/config/environment-hints.ts': 'reads messages of Sluice',
  'src/patterns/parse.ts': 'reads patterns of the config',
  'src/script/lua-text.ts': 'reads the Lua of Sluice',
  'src/script/model-reservations.ts': 'is for tests',
  'src/script/rule-text.ts': 'reads the Lua of Sluice',
  'src/script/script-text.ts': 'reads the Lua of Sluice',
  'src/set-ups/api/reply-schemas.ts': 'reads schemas of Sluice',
}

/** Calls whose source is not constant, and where it is checked. */
const CHECKED_ELSEWHERE: Readonly<Record<string, string>> = {
  "src/patterns/expression.ts: new RegExp(`${sourceOf(simplest, syntax, '')}$`, 'viy')":
    'test/patterns/patterns.test.ts measures patterns of configs',
  'src/set-ups/api/check-input.ts: new RegExp(pattern)': 'the patterns of docs/openapi.json, below',
}

/** In ms. Most take a few, the slowest up to three seconds of an idle processor. */
const TIMEOUT = 120_000

interface Found {
  place: string
  source: string
  flags: string
}

type Node = Record<string, unknown> & { type: string; start: number; end: number }

function* nodesIn(value: unknown): Generator<Node> {
  if (typeof value !== 'object' || value === null) return
  if ('type' in value) yield value as Node
  for (const each of Object.values(value)) yield* nodesIn(each)
}

const isRegExp = ({ type, callee }: Node) =>
  (type === 'NewExpression' || type === 'CallExpression') && (callee as { name?: string }).name === 'RegExp'

/** The regular expressions of a file: literals, and calls of `RegExp` with what the constants of the file make of their arguments. */
function* expressionsIn(path: string): Generator<Found> {
  const text = readPage(path)
  const written = ({ start, end }: Node) => text.slice(start, end)
  const tree = parseAst(text, { lang: 'ts' })
  const constants = [...nodesIn(tree.body.filter(({ type }) => type === 'VariableDeclaration'))]
    .filter(
      ({ type, init }) => type === 'VariableDeclarator' && /Literal$/.test((init as Node | null)?.type ?? ''),
    )
    .map(({ id, init }) => `const ${written(id as Node)} = ${written(init as Node)};`)
  for (const node of nodesIn(tree)) {
    const place = `${path}: ${written(node)}`
    if ('regex' in node) yield { place, ...regExp(written(node)) }
    else if (isRegExp(node) && !(place in CHECKED_ELSEWHERE))
      yield { place, ...regExp(`${constants.join('')} return ${written(node)}`) }
  }
}

/** @throws ReferenceError if it is made of anything but constants */
function regExp(code: string): Pick<Found, 'source' | 'flags'> {
  const { source, flags } = new Function(code.startsWith('/') ? `return ${code}` : code)() as RegExp
  return { source, flags }
}

/** The expression as recheck knows it: what is sticky matches at one place only, and the flags `d` and `v` change no time. */
function forRecheck({ source, flags }: Found): [source: string, flags: string] {
  return [flags.includes('y') ? `^(?:${source})` : source, flags.replace(/[dvy]/g, '')]
}

it('no regular expression takes more than linear time for a text of a caller', {
  timeout: 600_000,
}, async () => {
  const paths = globSync('src/**/*.ts', { cwd: ROOT, exclude: ['**/*.generated.ts'] })
  const checked = paths.filter(path => !Object.keys(EXEMPT).some(start => path.startsWith(start)))
  const found = checked.flatMap(path => [...expressionsIn(path)])
  const inputs = JSON.stringify(JSON.parse(readFileSync(`${ROOT}docs/openapi.json`, 'utf8')))
  for (const [, pattern] of inputs.matchAll(/"pattern":("(?:[^"\\]|\\.)*")/g))
    found.push({ place: 'docs/openapi.json', source: JSON.parse(pattern!), flags: '' })
  expect(found.length).toBeGreaterThan(150)

  const slow: string[] = []
  const distinct = new Map(found.map(each => [`/${each.source}/${each.flags}`, each]))
  for (const each of distinct.values()) {
    const { status } = await check(...forRecheck(each), { timeout: TIMEOUT })
    if (status !== 'safe') slow.push(`${each.place} is ${status}`)
  }
  expect(slow).toEqual([])
})

it('an expression that takes quadratic time is found', async () => {
  const quadratic = ['[ \\t]+$', '^Bearer\\s+(.+)$', '^[ \\t]*(?:\\w+)?[ \\t]*(?:;|$)', '\\{(.+?)\\}']
  const found = quadratic.map(async source => (await check(source, '', { timeout: TIMEOUT })).status)
  expect(await Promise.all(found)).toEqual(quadratic.map(() => 'vulnerable'))
})
