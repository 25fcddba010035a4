/**
 * `npm run module-order [-- steps]`: searches the order of modules in which Workers are smallest, and writes it to
 * src/set-ups/module-order.generated.ts. Compression looks back only 32 kB, and a Worker is several times as long: what one module has in
 * common with another is found only if they are near each other.
 *
 * The search is simulated annealing (Kirkpatrick, Gelatt and Vecchi, 1983): it moves some neighbours elsewhere, and keeps a larger result
 * with a chance that falls from step to step. It starts from the order that is in use, so it can be repeated.
 */
import { writeFileSync } from 'node:fs'
import { SourceMap, type SourceMapPayload } from 'node:module'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { findProject } from '../src/node/project.ts'
import { type Random, randomFrom } from '../test/support/random.ts'
import { BUNDLES, type Bundle, optionsOf } from './bundle-sizes.ts'

const FILE = 'src/set-ups/module-order.generated.ts'
const STEPS = Number(process.argv[2] ?? 20_000)
const SEED = 1
/** Bytes in all bundles together: what is larger by so much is kept with a chance of 1/e at first, and never in the end. */
const HOTTEST = 8
/** Modules that are moved together. */
const MOST_NEIGHBOURS = 8

interface Bundled {
  what: string
  /** Code of packages, which comes first. */
  head: string
  /** Code of Sluice, by module, but for modules that need one of the Workers platform. */
  parts: ReadonlyMap<string, string>
  /** What comes last: the config with its scripts, and those modules. */
  tail: string
  /** What each module imports. */
  imports: ReadonlyMap<string, readonly string[]>
}

/** Bundles a Worker as for a deployment, and finds out of which module each part of its code is. */
async function bundle(worker: Bundle): Promise<Bundled> {
  const { outputFiles, metafile } = await build({
    ...optionsOf(worker),
    ...{ outfile: 'worker.js', sourcemap: 'external', metafile: true },
  })
  const output = (end: string) => outputFiles!.find(({ path }) => path.endsWith(end))!.text
  const imports = new Map(
    Object.entries(metafile!.inputs).map(([path, input]) => [
      nameOf(path),
      input.imports.map(each => nameOf(each.path)),
    ]),
  )
  const all = [...partsOf(output('.js'), JSON.parse(output('.map')) as SourceMapPayload)]
  const codeOf = (isPart: (path: string) => boolean) =>
    all.flatMap(([path, code]) => (isPart(path) ? code : [])).join('')
  // Where a gateway is bundled for another platform, a module that only Workers have cannot be found.
  const canMove = (path: string) => isOfSluice(path) && !allImportedBy(path, imports).some(isOfWorkers)
  return {
    what: worker.what,
    head: codeOf(isPackage),
    parts: new Map(all.filter(([path]) => canMove(path))),
    tail: codeOf(path => !isPackage(path) && !canMove(path)),
    imports,
  }
}

const isPackage = (path: string) => path.startsWith('node_modules/')
const isOfSluice = (path: string) => path.startsWith('src/') && !path.startsWith('src/built/')
const isOfWorkers = (path: string) => path.startsWith('cloudflare:')

/** The path in the project. */
const nameOf = (path: string) => path.replace(/^(\.\.\/)+/, '')

function partsOf(text: string, payload: SourceMapPayload): Map<string, string> {
  const map = new SourceMap(payload)
  const parts = new Map<string, string>()
  const lines = text.split('\n')
  let path = ''
  for (const [row, line] of lines.entries()) {
    const code = row < lines.length - 1 ? `${line}\n` : line
    for (let column = 0; column < code.length; column++) {
      const entry = map.findEntry(row, column)
      if ('originalSource' in entry) path = nameOf(entry.originalSource)
      parts.set(path, (parts.get(path) ?? '') + code[column])
    }
  }
  return parts
}

/** An order for the modules of all bundles, with each module after those that it imports. */
function mergedOrder(all: readonly Bundled[]): string[] {
  const merged: string[] = []
  for (const { parts } of all) {
    let last = -1
    for (const path of parts.keys()) {
      const at = merged.indexOf(path)
      if (at < 0) merged.splice(++last, 0, path)
      else last = at
    }
  }
  const imports = allImports(all)
  const known = new Set(merged)
  const ordered = new Set<string>()
  const begun = new Set<string>()
  const add = (path: string) => {
    if (begun.has(path)) return
    begun.add(path)
    importedBy(path, imports, known).forEach(add)
    ordered.add(path)
  }
  merged.forEach(add)
  return [...ordered]
}

/** Bytes (gzip). */
const sizeIn = (order: readonly string[], { head, parts, tail }: Bundled) =>
  gzipSync([head, ...order.map(path => parts.get(path) ?? ''), tail].join('')).length

function search(start: readonly string[], all: readonly Bundled[], random: Random): readonly string[] {
  const sizeOf = (order: readonly string[]) => all.reduce((sum, bundled) => sum + sizeIn(order, bundled), 0)
  const range = rangesIn(start, all)
  let order = start
  let size = sizeOf(order)
  let best = { order, size }
  for (let step = 0; step < STEPS; step++) {
    const heat = HOTTEST * (1 - step / STEPS) ** 2
    const next = moved(order, range, random)
    if (!next) continue
    const nextSize = sizeOf(next)
    if (nextSize > size && !random.chance(Math.exp((size - nextSize) / heat))) continue
    order = next
    size = nextSize
    if (size < best.size) best = { order, size }
  }
  return best.order
}

type Range = (neighbours: readonly string[], others: readonly string[]) => [first: number, last: number]

/**
 * Where modules can be: a bundler writes a module after those that it imports. Where modules import one another in a circle, it has begun
 * somewhere, and does so again.
 */
function rangesIn(start: readonly string[], all: readonly Bundled[]): Range {
  const position = new Map(start.map((path, i) => [path, i]))
  const importsOf = new Map<string, Set<string>>()
  const importersOf = new Map<string, Set<string>>()
  const add = (map: Map<string, Set<string>>, key: string, value: string) =>
    map.set(key, (map.get(key) ?? new Set()).add(value))
  const imports = allImports(all)
  const known = new Set(start)
  for (const path of start)
    for (const each of importedBy(path, imports, known))
      if (position.get(each)! < position.get(path)!) {
        add(importsOf, path, each)
        add(importersOf, each, path)
      }
  return (neighbours, others) => {
    const at = new Map(others.map((path, i) => [path, i]))
    const positions = (map: Map<string, Set<string>>) =>
      neighbours.flatMap(path => [...(map.get(path) ?? [])].flatMap(each => at.get(each) ?? []))
    return [
      Math.max(0, ...positions(importsOf).map(i => i + 1)),
      Math.min(others.length, ...positions(importersOf)),
    ]
  }
}

const allImports = (all: readonly Bundled[]): Bundled['imports'] =>
  new Map(all.flatMap(({ imports }) => [...imports]))

/** The modules of the order that a module imports, also through modules that are not in the order. */
const importedBy = (path: string, imports: Bundled['imports'], known: ReadonlySet<string>): string[] =>
  allImportedBy(path, imports, each => known.has(each)).filter(each => known.has(each))

/** @param isEnd not to look for the imports of */
function allImportedBy(
  path: string,
  imports: Bundled['imports'],
  isEnd: (path: string) => boolean = () => false,
): string[] {
  const found = new Set<string>()
  const visit = (from: string) => {
    for (const each of imports.get(from) ?? [])
      if (!found.has(each)) {
        found.add(each)
        if (!isEnd(each)) visit(each)
      }
  }
  visit(path)
  return [...found]
}

/** @returns the order with some neighbours elsewhere, or undefined if they have to stay */
function moved(order: readonly string[], range: Range, random: Random): string[] | undefined {
  const from = random.int(0, order.length - 1)
  const count = random.chance(0.5) ? 1 : random.int(1, MOST_NEIGHBOURS)
  const neighbours = order.slice(from, from + count)
  const others = order.toSpliced(from, count)
  const [first, last] = range(neighbours, others)
  if (last < first) return undefined
  const to = random.int(first, last)
  return to === from ? undefined : others.toSpliced(to, 0, ...neighbours)
}

/** The text of a module that has a name for each module. A bundler drops the names, and keeps the order. */
function textOf(order: readonly string[]): string {
  return [
    '// Made by `npm run module-order` (bench/module-order.ts). Edit it only to rename a module, or to remove one.',
    ...order.map((path, i) => `export * as m${i} from '..${path.slice('src'.length)}'`),
    '',
  ].join('\n')
}

const bundles = await Promise.all(BUNDLES.filter(({ isOrdered }) => isOrdered).map(bundle))
const before = mergedOrder(bundles)
const found = search(before, bundles, randomFrom(SEED))
for (const each of bundles)
  console.log(`${each.what}, gzip: ${sizeIn(before, each)} bytes before, ${sizeIn(found, each)} bytes now`)
writeFileSync(join(findProject().root, FILE), textOf(found))
