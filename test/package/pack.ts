/** Packs the package once for all tests of this folder: each `npm pack` begins by deleting `dist/`. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { npm, ROOT, versionOf } from './installed.ts'

export default async function setup({ provide }: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-packed-'))
  await npm(ROOT, 'pack', '--pack-destination', folder)
  provide('tarball', join(folder, `sluicegate-${versionOf()}.tgz`))
  return () => rmSync(folder, { recursive: true, force: true })
}
