/**
 * No regular expression of src takes more than linear time for a text that a caller chooses. recheck proves that for most, and searches
 * slow texts for those with look-behind, counted repetition or a loop. The expressions are found by parsing the sources.
 *
 * regular-expressions.snapshot.txt lists those that were checked. A run checks what is not in it, so it depends neither on the speed of the
 * machine nor on the time that recheck takes. `npm run test:soak` checks all of them again, as after an update of recheck.
 */
import { globSync, readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
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
  'src/config/environment-hints.ts': 'reads messages of Sluice',
  'src/patterns/parse.ts': 'reads patterns of the config',
  'src/script/lua-text.ts': 'reads the Lua of Sluice',
  'src/script/model-reservations.ts': 'is for tests',
  'src/script/rule-text.ts': 'reads the Lua of Sluice',
  'src/script/script-text.ts': 'reads the Lua of Sluice',
  'src/script/shorten-script.ts': 'reads the Lua of Sluice',
  'src/set-ups/api/reply-schemas.ts': 'reads schemas of Sluice',
}

/** Calls whose source is not constant, and where it is checked. */
const CHECKED_ELSEWHERE: Readonly<Record<string, string>> = {
  "src/patterns/expression.ts: new RegExp(`${sourceOf(simplest, syntax, '')}$`, 'viy')":
    'test/patterns/patterns.test.ts measures patterns of configs',
  'src/set-ups/api/check-input.ts: new RegExp(pattern)': 'the patterns of docs/openapi.json, below',
}

/** In ms, for each expression. Most take a few, the slowest up to three seconds of an idle processor. */
const TIMEOUT = 120_000

interface Expression {
  source: string
  flags: string
}

type Node = Record<string, unknown> & { type: string; start: number; end: number }

/** All nodes of a tree. Not by recursion: a generator in a generator in a generator takes seconds. */
function* nodesIn(tree: unknown): Generator<Node> {
  const left = [tree]
  for (let value = left.pop(); value !== undefined; value = left.pop()) {
    if ('type' in (value as object)) yield value as Node
    for (const each of Object.values(value as object))
      if (typeof each === 'object' && each !== null) left.push(each)
  }
}

const isCall = ({ type }: Node) => type === 'NewExpression' || type === 'CallExpression'

const isRegExp = (node: Node) => isCall(node) && (node.callee as { name?: string }).name === 'RegExp'

/** The argument of a method that makes a regular expression of a text, or loops over the matches of one. */
function argumentOf(node: Node, methods: readonly string[]): Node | undefined {
  if (!isCall(node)) return undefined
  const { property } = node.callee as { property?: { name?: string } }
  return methods.includes(property?.name ?? '') ? (node.arguments as Node[])[0] : undefined
}

const isText = ({ type, value }: Node) => type === 'TemplateLiteral' || typeof value === 'string'

/** Lines of comments, and the ends of imports. Half of the files have no other slash, and parsing a file takes 1.5 ms. */
const NO_CODE = /^\s*(?:\/\/|\*(?!\/\s*\S)|\/\*(?!.*\*\/\s*\S)).*$|\bfrom '[^']*'$/gm

const mayHaveExpressions = (text: string) =>
  /\/|RegExp|\.(?:match|matchAll|search)\(/.test(text.replace(NO_CODE, ''))

/** The regular expressions of a file: literals, texts of which a method makes one, and calls of `RegExp` with what the file declares. */
function* expressionsIn(path: string): Generator<Expression> {
  const text = readPage(path)
  if (!mayHaveExpressions(text)) return
  const written = ({ start, end }: Node) => text.slice(start, end)
  const tree = parseAst(text, { lang: 'ts' }) as unknown as { body: Node[] }
  const declared = new Map(
    tree.body
      .map(node => (node.type === 'ExportNamedDeclaration' ? ((node.declaration ?? node) as Node) : node))
      .filter(({ type }) => type === 'VariableDeclaration')
      .flatMap(({ declarations }) => declarations as Node[])
      .map(node => [written(node.id as Node).split(':', 1)[0]!, `const ${written(node)};`]),
  )
  for (const node of nodesIn(tree.body)) {
    const separator = argumentOf(node, ['split'])
    const pattern = argumentOf(node, ['match', 'matchAll', 'search'])
    if (separator?.regex) yield { ...expressionOf(separator), flags: 'g' }
    else if (pattern && isText(pattern)) yield evaluate(`new RegExp(${written(pattern)}, 'g')`, declared)
    else if (node.regex) yield expressionOf(node)
    else if (isRegExp(node) && !(`${path}: ${written(node)}` in CHECKED_ELSEWHERE))
      yield evaluate(written(node), declared)
  }
}

const expressionOf = ({ regex }: Node): Expression => {
  const { pattern, flags } = regex as { pattern: string; flags: string }
  return { source: pattern, flags }
}

/** @throws ReferenceError if it is made of something that the file does not declare */
function evaluate(code: string, declared: ReadonlyMap<string, string>): Expression {
  const needed: string[] = []
  for (;;) {
    try {
      const program = stripTypeScriptTypes(`${needed.join('')} const made = ${code};`)
      const { source, flags } = new Function(`${program} return made`)() as RegExp
      return { source, flags }
    } catch (error) {
      const name = /^(\S+) is not defined$/.exec((error as Error).message)?.[1]
      const declaration = declared.get(name ?? '')
      if (!declaration || needed.includes(declaration)) throw error
      needed.unshift(declaration)
    }
  }
}

/** What recheck checks: each match, and all matches one after the other, which can take longer than each of them does. */
function textsOf({ source, flags }: Expression): string[] {
  const isSticky = flags.includes('y')
  const match = isSticky ? `^(?:${source})` : source
  if (!isSticky && !flags.includes('g')) return [match]
  // A group in look-ahead is not matched again in another way, as a match that `matchAll` has returned.
  return [match, `^(?:(?=(?<match>${source}))\\k<match>${isSticky ? '' : '|[^]'})*`]
}

/** @returns how recheck judges it, if not as linear */
async function slowness(expression: Expression): Promise<string | undefined> {
  // Loaded only when it is needed, because that takes a second.
  const { check } = await import('recheck')
  // recheck does not know the other flags, which change no time.
  const flags = expression.flags.replace(/[^imsu]/g, '')
  for (const text of textsOf(expression)) {
    const { status } = await check(text, flags, { timeout: TIMEOUT, randomSeed: 1 })
    if (status !== 'safe') return status
  }
  return undefined
}

const spelled = ({ source, flags }: Expression) => `/${source}/${flags}`

it('no regular expression takes more than linear time for a text of a caller', {
  timeout: 1_200_000,
}, async () => {
  const paths = globSync('src/**/*.ts', { cwd: ROOT, exclude: ['**/*.generated.ts'] })
  const checked = paths.filter(path => !Object.keys(EXEMPT).some(start => path.startsWith(start)))
  const found = checked.flatMap(path => [...expressionsIn(path)])
  const inputs = JSON.stringify(JSON.parse(readFileSync(`${ROOT}docs/openapi.json`, 'utf8')))
  for (const [, pattern] of inputs.matchAll(/"pattern":("(?:[^"\\]|\\.)*")/g))
    found.push({ source: JSON.parse(pattern!), flags: '' })
  const distinct = new Map(found.map(each => [spelled(each), each]))

  const slow: string[] = []
  const known = new Set(process.env.SOAK ? [] : readPage(`test/${LIST}`).split('\n'))
  for (const [text, each] of distinct) {
    const judged = known.has(text) ? undefined : await slowness(each)
    if (judged) slow.push(`${text} is ${judged}`)
  }
  expect(slow).toEqual([])
  // If all is linear: `npx vitest run --project node test/regular-expressions.test.ts -u` adds what is new to the list.
  await expect(`${[...distinct.keys()].sort().join('\n')}\n`).toMatchFileSnapshot(LIST)
})

const LIST = 'regular-expressions.snapshot.txt'

it.runIf(process.env.SOAK)('an expression that takes quadratic time is found', async () => {
  const once = ['[ \\t]+$', '^Bearer\\s+(.+)$', '^[ \\t]*(?:\\w+)?[ \\t]*(?:;|$)', '\\{(.+?)\\}']
  // Each match is found in linear time.
  const repeated = ['a(?=.*b)?', '(?:a+b|a)']
  const slow = [
    ...once.map(source => ({ source, flags: '' })),
    ...repeated.map(source => ({ source, flags: 'g' })),
  ]
  expect(await Promise.all(slow.map(slowness))).toEqual(slow.map(() => 'vulnerable'))
})
