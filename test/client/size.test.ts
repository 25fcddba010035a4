/** The size of `sluicegate/client` in a bundle, and what it imports. */
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { expect, it } from 'vitest'

it('is at most 4.9 kB (minified and compressed), and has no dependencies', async () => {
  const { outputFiles, metafile } = await build({
    entryPoints: [fileURLToPath(new URL('../../src/client/index.ts', import.meta.url))],
    ...{ bundle: true, minify: true, write: false, metafile: true, format: 'esm', target: 'es2024' },
  })
  expect(Object.keys(metafile.inputs).every(path => path.includes('src/client/'))).toBe(true)
  expect(gzipSync(outputFiles[0]!.contents).length).toBeLessThanOrEqual(4900)
})
