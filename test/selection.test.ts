/** `npm test` and `npm run test:all` together run every file, and `npm run test:all` runs every suite on every Redis. */
import { execFile } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { matchesGlob } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it, vi } from 'vitest'
import {
  enginesOf,
  excludedFiles,
  LEFT_OUT,
  NIGHTLY,
  type RedisKind,
  randomCases,
  sized,
} from './selection.ts'

const FILES = globSync('test/**/*.test.ts', { exclude: ['**/node_modules/**'] }).sort()

const isIn = (patterns: readonly string[]) => (file: string) =>
  patterns.some(pattern => matchesGlob(file, pattern))

it('npm run test:all runs every test file once, except for those of the night', async () => {
  vi.stubEnv('TEST_SELECTION', 'all')
  // Not through the module cache, which the next test files share.
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', PRINT_PROJECTS],
    { env: process.env },
  )
  const projects = JSON.parse(stdout) as { include: string[]; exclude?: string[] }[]
  const files = projects.flatMap(({ include, exclude = [] }) =>
    FILES.filter(file => isIn(include)(file) && !isIn(exclude)(file)),
  )
  expect(files.sort()).toEqual(FILES.filter(file => !isIn(NIGHTLY)(file)))
})

const PRINT_PROJECTS = `
  const { default: config } = await import('./vitest.config.ts')
  console.log(JSON.stringify(config.test.projects.map(({ test: { include, exclude } }) => ({ include, exclude }))))
`

it('npm test leaves out files, unless the command line names paths', () => {
  expect(excludedFiles('all', false)).toEqual(NIGHTLY)
  expect(excludedFiles('all', true)).toEqual([])
  expect(excludedFiles('quick', true)).toEqual([])
  const leftOut = FILES.filter(isIn(excludedFiles('quick', false)))
  expect(leftOut.length).toBeGreaterThan(10)
  expect(leftOut.length).toBeLessThan(FILES.length / 4)
})

it('every pattern of a reason matches a file', () => {
  for (const pattern of [...Object.values(LEFT_OUT).flat(), ...NIGHTLY])
    expect(FILES.some(isIn([pattern])), pattern).toBe(true)
})

describe('the servers of a run', () => {
  it.each<[RedisKind[], RedisKind]>([
    [['embedded', 'redis-server', 'valkey-server'], 'redis-server'],
    [['embedded', 'valkey-server'], 'valkey-server'],
    [['embedded'], 'embedded'],
  ])('of %j are all with npm run test:all, and %s with npm test', (installed, one) => {
    expect(enginesOf('all', installed)).toEqual(installed)
    expect(enginesOf('quick', installed)).toEqual([one])
  })
})

it('npm run test:all runs all random cases on real servers', () => {
  expect(randomCases(1000, 'redis-server', 'all')).toBe(1000)
  expect(randomCases(1000, 'embedded', 'all')).toBe(250)
  expect(randomCases(1000, 'redis-server', 'quick')).toBe(84)
  expect(randomCases(1000, 'embedded', 'quick')).toBe(84)
  expect(randomCases(1, 'embedded', 'quick')).toBe(1)
  expect([sized(9, 2, 'all'), sized(9, 2, 'quick')]).toEqual([9, 2])
})

it('.ci/run runs npm run test:all', () => {
  expect(readFileSync('.ci/run', 'utf8')).toContain('npm run test:all')
})
