/** `npm test` and `npm run test:all` together run every file, and `npm run test:all` runs every suite on every Redis. */
import { globSync, readFileSync } from 'node:fs'
import { matchesGlob } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { enginesOf, LEFT_OUT, type RedisKind, randomCases, type Selection } from './selection.ts'

const FILES = globSync('test/**/*.test.ts').sort()

/** The files of each project of vitest.config.ts, as the command line would choose them. */
async function filesOf(selection: Selection, ...paths: string[]): Promise<string[]> {
  vi.resetModules()
  vi.stubEnv('TEST_SELECTION', selection)
  const argv = process.argv
  process.argv = [...argv.slice(0, 2), 'run', ...paths]
  try {
    const { default: config } = await import('../vitest.config.ts')
    return config.test!.projects!.flatMap(project => {
      const { include = [], exclude = [] } = (project as { test: { include?: string[]; exclude?: string[] } })
        .test
      return FILES.filter(
        file =>
          include.some(pattern => matchesGlob(file, pattern)) &&
          !exclude.some(pattern => matchesGlob(file, pattern)),
      )
    })
  } finally {
    process.argv = argv
  }
}

it('npm run test:all runs every test file once', async () => {
  expect((await filesOf('all')).sort()).toEqual(FILES)
})

it('npm test runs every file that is not listed as left out', async () => {
  const leftOut = FILES.filter(file =>
    Object.values(LEFT_OUT)
      .flat()
      .some(pattern => matchesGlob(file, pattern)),
  )
  expect((await filesOf('quick')).sort()).toEqual(FILES.filter(file => !leftOut.includes(file)))
})

it('npm test leaves out no file if the command line names paths', async () => {
  expect((await filesOf('quick', 'test/e2e')).sort()).toEqual(FILES)
})

it('every pattern of a reason matches a file', () => {
  for (const pattern of Object.values(LEFT_OUT).flat())
    expect(
      FILES.some(file => matchesGlob(file, pattern)),
      pattern,
    ).toBe(true)
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
  expect(randomCases(1000, 'redis-server', 'quick')).toBe(250)
  expect(randomCases(1000, 'embedded', 'quick')).toBe(250)
  expect(randomCases(1, 'embedded', 'quick')).toBe(1)
})

it('.ci/run runs npm run test:all', () => {
  expect(readFileSync('.ci/run', 'utf8')).toContain('npm run test:all')
})
