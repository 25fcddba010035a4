/**
 * Joins the Lua files into the scripts that Redis runs, and writes them as a module that every runtime and bundler can import:
 * `npm run bundle-lua`. test/script/bundle.test.ts fails when the result is stale.
 *
 * A script is the prelude and one file of src/script/ with these lines replaced:
 *
 *     --@ include <file>     another file
 *     --@ each algorithm     what follows, up to `--@ end`, once for each algorithm, with its numbers as locals
 *     --@ section <name>     in there: a section of the algorithm's file
 *
 * Each file follows under a line with its name, so that `user_script:57` in an error of Redis can be traced.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const SRC = new URL('../', import.meta.url)
const OUTPUT = new URL('script/scripts.generated.ts', SRC)
const KEY_LOCKING = '#!lua flags=allow-key-locking'

/** The scripts, and the files before their own that they need. */
const SCRIPTS = {
  decide: ['script/prelude.lua', 'script/overrides.lua'],
  refund: ['script/prelude.lua', 'script/overrides.lua'],
  reset: ['script/prelude.lua'],
} as const

/** One algorithm's file, taken apart. */
interface AlgorithmFile {
  name: string
  /** Names of the three numbers, and how each is made of what the wire brings. */
  locals: string
  sections: ReadonlyMap<string, string>
}

const SECTIONS = ['declare', 'read', 'check', 'spend', 'refund', 'write']

/** The text of scripts.generated.ts, made from the Lua files as they are now. */
export function bundleLua(): string {
  const files = readdirSync(new URL('algorithms/', SRC)).filter(file => file.endsWith('.lua'))
  const algorithms = files
    .sort()
    .map(file => takeApart(file.replace('.lua', ''), sourceOf(`algorithms/${file}`)))
  const scripts = Object.entries(SCRIPTS).map(([name, before]) => {
    const own = expand(sourceOf(`script/${name}.lua`), algorithms)
    return definitionOf(name, [...before.map(sourceOf), own].join('\n'))
  })
  return [
    '// Made by `npm run bundle-lua` from the .lua files. Do not edit.',
    '',
    "import type { Script } from '../store/store.ts'",
    '',
    ...scripts,
  ].join('\n')
}

function definitionOf(name: string, body: string): string {
  const constant = name.toUpperCase()
  // The plain build keeps the place of the first line empty: lines count the same in both.
  return [
    `const ${constant}_BODY = ${JSON.stringify(body)}`,
    '',
    `export const ${constant}: Script = {`,
    '  keyLocking: {',
    `    source: ${JSON.stringify(`${KEY_LOCKING}\n`)} + ${constant}_BODY,`,
    `    sha1: '${sha1(`${KEY_LOCKING}\n${body}`)}',`,
    '  },',
    `  plain: { source: '\\n' + ${constant}_BODY, sha1: '${sha1(`\n${body}`)}' },`,
    '}',
    '',
  ].join('\n')
}

/** The lines of a script with its directives carried out. */
function expand(source: string, algorithms: readonly AlgorithmFile[]): string {
  const [before, template, after] = source.split(/--@ each algorithm\n([\s\S]*?)--@ end\n/)
  const withIncludes = (text: string) =>
    text.replaceAll(/--@ include (\S+)\n/g, (_, file: string) => sourceOf(file))
  if (template === undefined) return withIncludes(source)
  const declared = algorithms.map(({ sections }) => sections.get('declare') ?? '').join('')
  const branches = algorithms.map(({ name, locals, sections }, i) => {
    const body = template.replaceAll(/--@ section (\S+)\n/g, (_, section: string) => sections.get(section)!)
    return `${i === 0 ? 'if' : 'elseif'} algorithm == '${name}' then\n${locals}${body}`
  })
  return withIncludes([declared, before, ...branches, 'end\n', after].join(''))
}

/** @throws Error naming the file and what it lacks */
function takeApart(name: string, source: string): AlgorithmFile {
  const [head = '', ...parts] = source.split(/--@ (?=[a-z]+\n)/)
  const sections = new Map(
    parts.map(part => {
      const [section = '', ...lines] = part.split('\n')
      return [section, `-- ${name}: ${section}\n${lines.join('\n').replaceAll(/\n+/g, '\n')}`]
    }),
  )
  const unknown = [...sections.keys()].find(section => !SECTIONS.includes(section))
  const missing = SECTIONS.find(section => section !== 'declare' && !sections.has(section))
  if (unknown)
    throw new Error(`algorithms/${name}.lua has a section '${unknown}'. Use ${SECTIONS.join(', ')}.`)
  if (missing)
    throw new Error(`algorithms/${name}.lua has no section '${missing}'. Add it, empty if need be.`)
  return { name, locals: localsOf(name, head), sections }
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

/** The file under a line with its name. Comments leave empty lines behind, and indentation is removed: a Worker carries the rest. */
function sourceOf(file: string): string {
  const source = readFileSync(new URL(file, SRC), 'utf8').replaceAll('\r\n', '\n')
  return `-- ${file}\n${source.replaceAll(/^ *--(?!@).*$/gm, '').replaceAll(/^ +/gm, '')}`
}

function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(OUTPUT, bundleLua())
