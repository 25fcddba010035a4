/**
 * Cuts the Lua files into the pieces that the compiler of rule sets joins (src/script/), and writes them as modules that every
 * runtime and bundler can import: `npm run bundle-lua`. test/script/bundle.test.ts fails when the result is stale.
 *
 * In the file of an algorithm, `--@` begins
 *
 *     --@ numbers rate, period     the numbers of a rule that the algorithm reads, in this order; `text` instead, if they are text
 *     --@ keeps backlog            locals that live from one section to the next
 *     --@ read                     a section: SECTIONS in src/algorithms/lua.ts, and `declare` for functions
 *     --@ if ends … --@ end        lines only for rules of which the condition is true (conditionsOf in src/script/rule-text.ts)
 *
 * The result is part of the Worker. To keep it small, it has no comments, blank lines and indentation.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type AlgorithmLua, SECTIONS } from '../algorithms/lua.ts'
import { shortenScript } from '../script/shorten-script.ts'

const SRC = new URL('../', import.meta.url)

/** The text of src/algorithms/lua.generated.ts, made from the Lua files as they are now. */
export function bundleAlgorithms(): string {
  const files = readdirSync(new URL('algorithms/', SRC)).filter(file => file.endsWith('.lua'))
  return [
    '// Made by `npm run bundle-lua` from the .lua files. Do not edit.',
    '',
    "import type { AlgorithmLua } from './lua.ts'",
    '',
    '/** By the name of the algorithm. */',
    'export const LUA: Readonly<Record<string, AlgorithmLua>> = {',
    ...files.sort().map(file => {
      const lua = takeApart(file, readLua(`algorithms/${file}`))
      const fields = Object.entries(lua).map(([name, value]) => `    ${name}: ${JSON.stringify(value)},\n`)
      return `  '${file.replace(/\.lua$/, '')}': {\n${fields.join('')}  },`
    }),
    '}',
    '',
  ].join('\n')
}

/** The text of src/script/lua.generated.ts: pieces, which are shortened when they are joined. */
export const bundleScripts = (): string => bundleFolder('script/', text => text)

/** The text of src/ops/lua.generated.ts: whole scripts. */
export const bundleOps = (): string => bundleFolder('ops/', shortenScript)

function bundleFolder(folder: string, shorten: (text: string) => string): string {
  const files = readdirSync(new URL(folder, SRC)).filter(file => file.endsWith('.lua'))
  return [
    '// Made by `npm run bundle-lua` from the .lua files. Do not edit.',
    '',
    ...files
      .sort()
      .map(file => `export const ${constantOf(file)} = ${JSON.stringify(shorten(readLua(folder + file)))}\n`),
  ].join('\n')
}

/** `fixed-window.lua` → `FIXED_WINDOW` */
function constantOf(file: string): string {
  return file
    .replace(/\.lua$/, '')
    .replaceAll(/\W+/g, '_')
    .toUpperCase()
}

/** @throws Error naming the file and what is wrong in it */
function takeApart(file: string, source: string): AlgorithmLua {
  const [head = '', ...parts] = source.split(/--@ (?=[a-z]+\n)/)
  const numbers = listsOf(head, 'numbers|text')
  if (numbers.length < 3) throw new Error(`${file} names ${numbers.length} numbers. Name at least three.`)
  const sections = new Map(
    joined(parts).map(part => {
      const [section = '', ...lines] = part.split('\n')
      return [section, lines.join('\n')] as const
    }),
  )
  const unknown = [...sections.keys()].find(name => name !== 'declare' && !SECTIONS.some(is => is === name))
  const missing = SECTIONS.find(section => !sections.has(section))
  const known = SECTIONS.join(', ')
  if (unknown) throw new Error(`${file} has a section '${unknown}'. Use ${known}.`)
  if (missing) throw new Error(`${file} has no section '${missing}'. Add it, empty if need be.`)
  const texts = Object.fromEntries(SECTIONS.map(section => [section, sections.get(section)!]))
  return {
    numbers: numbers as unknown as AlgorithmLua['numbers'],
    keeps: listsOf(head, 'keeps'),
    declare: sections.get('declare') ?? '',
    ...(texts as Record<(typeof SECTIONS)[number], string>),
  }
}

/** `--@ end` closes an `--@ if` and begins no section. */
function joined(parts: readonly string[]): string[] {
  const sections: string[] = []
  for (const part of parts) {
    if (part.startsWith('end\n')) sections.push(`${sections.pop()}--@ ${part}`)
    else sections.push(part)
  }
  return sections
}

function listsOf(head: string, kinds: string): string[] {
  return [...head.matchAll(new RegExp(`--@ (?:${kinds}) (.+)\n`, 'g'))].flatMap(([, names = '']) =>
    names.split(', '),
  )
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

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('algorithms/lua.generated.ts', SRC), bundleAlgorithms())
  writeFileSync(new URL('script/lua.generated.ts', SRC), bundleScripts())
  writeFileSync(new URL('ops/lua.generated.ts', SRC), bundleOps())
}
