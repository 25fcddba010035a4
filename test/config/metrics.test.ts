/** The setting `metrics` and its secret. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { checkConfig } from '../../src/config/check/check.ts'
import { weaknessOf } from '../../src/config/metrics-token.ts'
import { locatedWarnings } from '../../src/node/config-warnings.ts'

it('metrics need statistics', () => {
  expect(() => checkConfig({ metrics: {}, stats: { keep: false } })).toThrow(
    'metrics: has no effect with stats: { keep: false }. Leave one of them out.',
  )
  expect(checkConfig({ metrics: {} })).toEqual({ metrics: {} })
})

it('a secret of fewer than 16 characters can be guessed', () => {
  expect([undefined, '', 'x'.repeat(16)].map(weaknessOf)).toEqual([undefined, undefined, undefined])
  expect(weaknessOf('x'.repeat(15))).toEqual({
    path: 'SLUICE_METRICS_TOKEN',
    message: 'has 15 characters, so it can be guessed. Use at least 16, as from openssl rand -hex 16.',
  })
})

it('npx sluicegate check warns of such a secret in .dev.vars', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
  writeFileSync(join(directory, '.dev.vars'), 'SLUICE_METRICS_TOKEN=secret\n')
  writeFileSync(join(directory, 'sluice.config.ts'), '')
  const warningsFor = (input: object) =>
    locatedWarnings(input, join(directory, 'sluice.config.ts')).map(({ path }) => path)
  expect(warningsFor({ metrics: {} })).toContain('SLUICE_METRICS_TOKEN')
  expect(warningsFor({})).not.toContain('SLUICE_METRICS_TOKEN')
  rmSync(directory, { recursive: true })
})
