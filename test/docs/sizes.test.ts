/** The sizes of Workers on the pages are those that `npm run size` measures, within 1.5 %. */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { BUNDLES, sizeOf } from '../../bench/bundle-sizes.ts'
import { PART_KB } from '../../docs/programs/api/part-sizes.ts'

const SHIPPED = 'Worker with the shipped config'
const BINDING = 'Service binding for four limits alone'
const BESIDE = `${SHIPPED} and a service binding for four limits`
const WHOLE_BINDING = 'Service binding without a build'

/** Lines of pages that contain sizes: the page, the line, and the Workers that have these sizes, in the order of the line. */
const LINES: readonly [page: string, line: RegExp, ...bundles: string[]][] = [
  ['README', /^\| what `npx sluicegate build` generates \|/, SHIPPED],
  ['README', /^\| `sluicegate\/guard` \|/, 'Guard'],
  ['README', /^\| `sluicegate\/hono` \|/, 'Hono middleware, with Hono'],
  ['README', /^\| `sluicegate\/rpc` \|/, WHOLE_BINDING, BINDING, BESIDE],
  ['README', /^\| `createLimiter` \|/, 'Limits by name'],
  ['README', /^\| `sluicegate\/worker` /, 'Gateway without a build'],
  ['deploy', /^npm run build /, SHIPPED],
]

/** The size of each Worker, by its name. Each Worker is bundled once. */
const sizes = new Map<string, Promise<number>>()
function measure(what: string): Promise<number> {
  const size = sizes.get(what) ?? sizeOf(BUNDLES.find(bundle => bundle.what === what)!)
  sizes.set(what, size)
  return size
}

it.each(LINES)('docs/%s.md has the measured sizes in the line %s', async (page, pattern, ...bundles) => {
  const lines = readFileSync(new URL(`../../docs/${page}.md`, import.meta.url), 'utf8').split('\n')
  const line = lines.find(each => pattern.test(each))!
  const written = [...line.matchAll(/([\d.]+) kB/g)].map(([, size]) => Number(size))
  expect(written).toHaveLength(bundles.length)
  for (const [i, what] of bundles.entries()) {
    const size = await measure(what)
    const isClose = Math.abs(written[i]! - size) <= 0.015 * size
    expect([what, isClose ? 'as measured' : `${size.toFixed(1)} kB`]).toEqual([what, 'as measured'])
  }
})

it('docs/api-reference.md has the sizes of the parts of the API', { timeout: 120_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-'))
  const shipped = fileURLToPath(new URL('../../sluice.config.ts', import.meta.url))
  const without = await measure(SHIPPED)
  for (const [part, written] of Object.entries(PART_KB)) {
    const file = join(folder, `${part}.config.ts`)
    const api = part === 'usual' ? {} : { routes: part === 'all' ? part : [part] }
    writeFileSync(
      file,
      `import shipped from ${JSON.stringify(shipped)}\nexport default { ...shipped, api: ${JSON.stringify(api)} }\n`,
    )
    const entry = "export { default } from './src/built/worker.generated.ts'"
    const added = (await sizeOf({ file, entry })) - without
    const isClose = Math.abs(added - written) <= 0.05 * written
    expect.soft([part, isClose ? 'as measured' : added.toFixed(1)]).toEqual([part, 'as measured'])
  }
})

it('the rows of the table about sizes are all compared', () => {
  const page = readFileSync(new URL('../../docs/README.md', import.meta.url), 'utf8')
  const [, table] = /(\| import \| Worker bundle.*?)\n\n/s.exec(page)!
  const rows = table!.split('\n').filter(line => /\d kB/.test(line))
  for (const row of rows)
    expect(
      LINES.some(([, pattern]) => pattern.test(row)),
      row,
    ).toBe(true)
})
