/** src/set-ups/module-order.generated.ts (bench/module-order.ts). */
import { readFileSync } from 'node:fs'
import { build } from 'esbuild'
import { expect, it } from 'vitest'
import { BUNDLES, optionsOf } from '../../bench/bundle-sizes.ts'

const FILE = new URL('../../src/set-ups/module-order.generated.ts', import.meta.url)
const order = [...readFileSync(FILE, 'utf8').matchAll(/ from '\.\.\/(.*)'/g)].map(([, path]) => `src/${path}`)

it('names each module once', () => {
  expect(order.length).toBeGreaterThan(200)
  expect(new Set(order).size).toBe(order.length)
})

it.each(BUNDLES.filter(({ isOrdered }) => isOrdered))('has the order of modules in: $what', async bundle => {
  const { outputFiles } = await build({ ...optionsOf(bundle), minify: false })
  // A class that extends the result of a call is in two places.
  const bundled = new Set([...outputFiles![0]!.text.matchAll(/^\/\/ (src\/.*)$/gm)].map(([, path]) => path!))
  const known = order.filter(path => bundled.has(path))
  expect(known.length).toBeGreaterThan(100)
  expect([...bundled].filter(path => known.includes(path))).toEqual(known)
})
