/**
 * Joins the Lua files into the scripts that Redis runs, and writes them as a module that every runtime and bundler can import:
 * `npm run bundle-lua`. test/script/bundle.test.ts fails when the result is stale.
 *
 * A script is the prelude and one file of src/script/ with these lines replaced:
 *
 *     --@ include <file>     another file
 *     --@ each algorithm     what follows, up to `--@ end`, once for each algorithm
 *     --@ section <name>     in there: a section of the algorithm's file
 *
 * A Worker carries the result, so comments, blank lines and indentation are left out, and a piece that several scripts
 * have is written once. Each piece follows a line with its file's name: it leads from `user_script:57` in an error of Redis
 * to the file.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { twoBuilds } from '../script/two-builds.ts'

const SRC = new URL('../', import.meta.url)
const OUTPUT = new URL('script/scripts.generated.ts', SRC)

/** The scripts, and the files before their own that they need. */
const SCRIPTS = {
  decide: ['script/prelude.lua', 'script/overrides.lua'],
  refund: ['script/prelude.lua', 'script/overrides.lua'],
  reset: ['script/prelude.lua'],
} as const

/** A part of a script. */
interface Piece {
  /** Of a whole file, or a section of an algorithm; what has no name is in one place only. */
  name?: string
  text: string
}

/** One algorithm's file, taken apart. */
interface AlgorithmFile {
  name: string
  sections: ReadonlyMap<string, Piece>
}

const SECTIONS = ['declare', 'read', 'check', 'spend', 'refund', 'write']

/** The text of scripts.generated.ts, made from the Lua files as they are now. */
export function bundleLua(): string {
  const files = readdirSync(new URL('algorithms/', SRC)).filter(file => file.endsWith('.lua'))
  const algorithms = files
    .sort()
    .map(file => takeApart(file.replace('.lua', ''), readLua(`algorithms/${file}`)))
  const scripts = Object.entries(SCRIPTS).map(([name, before]) => ({
    name,
    pieces: [...before.map(fileOf), ...expand(`script/${name}.lua`, algorithms)],
  }))
  const shared = sharedPieces(scripts.map(({ pieces }) => pieces))
  return [
    '// Made by `npm run bundle-lua` from the .lua files. Do not edit.',
    '',
    "import type { Script } from '../store/store.ts'",
    "import { twoBuilds } from './two-builds.ts'",
    '',
    ...[...shared].map(([name, text]) => `const ${constantOf(name)} = ${JSON.stringify(text)}`),
    '',
    ...scripts.map(({ name, pieces }) => definitionOf(name, pieces, shared)),
  ].join('\n')
}

/** Texts by name: what more than one script has. */
function sharedPieces(scripts: readonly (readonly Piece[])[]): Map<string, string> {
  const isIn = (script: readonly Piece[], name: string) => script.some(piece => piece.name === name)
  const shared = new Map<string, string>()
  for (const { name, text } of scripts.flat()) {
    if (name && scripts.filter(script => isIn(script, name)).length > 1) shared.set(name, text)
  }
  return shared
}

function definitionOf(name: string, pieces: readonly Piece[], shared: ReadonlyMap<string, string>): string {
  const sha1 = { keyLocking: '', plain: '' }
  const { keyLocking, plain } = twoBuilds(
    sha1,
    pieces.map(({ text }) => text),
  )
  const written: string[] = []
  let own = ''
  const endOwn = () => {
    if (own) written.push(JSON.stringify(own))
    own = ''
  }
  for (const { name, text } of pieces) {
    if (name && shared.has(name)) {
      endOwn()
      written.push(constantOf(name))
    } else own += text
  }
  endOwn()
  // Annotated as pure, so that a bundler leaves out the scripts that it finds no use of.
  return [
    `export const ${name.toUpperCase()}: Script = /* @__PURE__ */ twoBuilds(`,
    `  { keyLocking: '${sha1Of(keyLocking.source)}', plain: '${sha1Of(plain.source)}' },`,
    '  [',
    ...written.map(piece => `    ${piece},`),
    '  ],',
    ')',
    '',
  ].join('\n')
}

/** `gcra: read` → `GCRA_READ`; `script/prelude.lua` → `PRELUDE` */
function constantOf(name: string): string {
  return name
    .replace(/^script\/(.+)\.lua$/, '$1')
    .replaceAll(/\W+/g, '_')
    .toUpperCase()
}

/** A script's own file with its directives carried out. */
function expand(file: string, algorithms: readonly AlgorithmFile[]): Piece[] {
  const [before = '', template, after = ''] = readLua(file).split(/--@ each algorithm\n([\s\S]*?)--@ end\n/)
  if (template === undefined) return [markedWith(file, before)]
  const declared = algorithms.flatMap(({ sections }) => sections.get('declare') ?? [])
  const branches = algorithms.flatMap(({ name, sections }, i): Piece[] => [
    { text: `${i === 0 ? 'if' : 'elseif'} algorithm == '${name}' then\n` },
    ...replaced(template, 'section', section => sections.get(section)!),
  ])
  return [
    ...declared,
    markedWith(file, before),
    ...branches,
    markedWith(`${file}, after the algorithms`, 'end\n'),
    ...replaced(after, 'include', fileOf),
  ]
}

/** The lines of a text with each `--@ <directive> <name>` replaced by the piece of that name. */
function replaced(text: string, directive: string, pieceOf: (name: string) => Piece): Piece[] {
  return text
    .split(new RegExp(`--@ ${directive} (\\S+)\\n`))
    .map((part, i) => (i % 2 === 0 ? { text: part } : pieceOf(part)))
}

/** @throws Error naming the file and what it lacks */
function takeApart(name: string, source: string): AlgorithmFile {
  const [head = '', ...parts] = source.split(/--@ (?=[a-z]+\n)/)
  const locals = localsOf(name, head)
  const sections = new Map(
    parts.map(part => {
      const [section = '', ...lines] = part.split('\n')
      const text = (section === 'read' ? locals : '') + lines.join('\n')
      return [section, { name: `${name}: ${section}`, ...markedWith(`${name}: ${section}`, text) }]
    }),
  )
  const unknown = [...sections.keys()].find(section => !SECTIONS.includes(section))
  const missing = SECTIONS.find(section => section !== 'declare' && !sections.has(section))
  if (unknown)
    throw new Error(`algorithms/${name}.lua has a section '${unknown}'. Use ${SECTIONS.join(', ')}.`)
  if (missing)
    throw new Error(`algorithms/${name}.lua has no section '${missing}'. Add it, empty if need be.`)
  return { name, sections }
}

/** `--@ numbers limit, period` and `--@ text ends` → `local limit, period, ends = a + 0, b + 0, c` */
function localsOf(name: string, head: string): string {
  const declared = [...head.matchAll(/--@ (numbers|text) (.+)\n/g)].flatMap(([, kind, names = '']) =>
    names.split(', ').map(local => ({ local, isNumber: kind === 'numbers' })),
  )
  if (declared.length !== 3)
    throw new Error(`algorithms/${name}.lua names ${declared.length} numbers. Name three.`)
  const values = declared.map(({ isNumber }, i) => (isNumber ? `${'abc'[i]} + 0` : 'abc'[i]))
  return `local ${declared.map(({ local }) => local).join(', ')} = ${values.join(', ')}\n`
}

function fileOf(file: string): Piece {
  return { name: file, ...markedWith(file, readLua(file)) }
}

/** A text under a line that says where it is from. */
function markedWith(origin: string, text: string): Piece {
  return { text: `-- ${origin}\n${text}` }
}

/** The lines of a file without comments, blank lines and indentation; directives stay. */
function readLua(file: string): string {
  const lines = readFileSync(new URL(file, SRC), 'utf8')
    .replaceAll('\r\n', '\n')
    .split('\n')
    .map(line => line.trimStart())
  return lines
    .filter(line => line && !/^--(?!@)/.test(line))
    .map(line => `${line}\n`)
    .join('')
}

function sha1Of(text: string): string {
  return createHash('sha1').update(text).digest('hex')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(OUTPUT, bundleLua())
