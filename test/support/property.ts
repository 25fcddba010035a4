/**
 * Runs properties, which must hold for every value that fast-check generates. A failure is shrunk to a short case, which is printed
 * with the command that repeats it.
 */
import { relative } from 'node:path'
import * as fc from 'fast-check'
import { expect } from 'vitest'
import { fnv1a } from '../../src/hash.ts'
import { FC_PATH, SEED } from './random.ts'

/** Shrinking stops after this time, so that the test can still report. Each decision of the embedded Redis takes milliseconds. */
const SHRINKING_MS = 30_000

/** @param property must use new keys for each value, so that runs do not depend on each other */
export async function forEvery<T>(
  values: fc.Arbitrary<T>,
  runs: number,
  property: (value: T) => Promise<void>,
): Promise<void> {
  let failedAt: number | undefined
  const checked = fc.asyncProperty(values, async value => {
    if (failedAt !== undefined && performance.now() - failedAt > SHRINKING_MS) return
    try {
      await property(value)
    } catch (error) {
      failedAt ??= performance.now()
      throw error
    }
  })
  const repeat = FC_PATH ? { path: FC_PATH, endOnFailure: true } : {}
  const report = await fc.check(checked, { seed: seedOfTest(), numRuns: runs, ...repeat })
  if (!report.failed) return
  const { numRuns, numShrinks, counterexample, counterexamplePath, errorInstance } = report
  const lines = [
    `fails in run ${numRuns} of ${runs}, shrunk ${numShrinks} times to:`,
    ...linesOf(counterexample?.[0]),
    `To repeat it: ${commandFor(counterexamplePath)}`,
  ]
  throw new Error(lines.join('\n'), { cause: errorInstance })
}

/** Fails if an outcome is so rare or so common that the runs prove little. Does nothing if a single case is repeated. */
export function expectShare(what: string, part: number, whole: number, low: number, high = 1): void {
  if (FC_PATH) return
  const share = part / whole
  expect(share, `share of ${what}`).toBeGreaterThan(low)
  expect(share, `share of ${what}`).toBeLessThanOrEqual(high)
}

/** Formats a value with a line for each field and for each item of a list. */
function linesOf(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [`  ${fc.stringify(value)}`]
  return Object.entries(value).flatMap(([name, field]) =>
    Array.isArray(field)
      ? [`  ${name}:`, ...field.map(item => `    ${fc.stringify(item)}`)]
      : [`  ${name}: ${fc.stringify(field)}`],
  )
}

/** The version of a Redis in the name of its suite. It is left out of the seed, so that every machine generates the same cases. */
const VERSION = /\d+\.\d+\.\d+/

/** Each test has its own seed. Otherwise all suites with few runs would get the same values. */
function seedOfTest(): number {
  const { currentTestName = '' } = expect.getState()
  return (SEED ^ fnv1a(currentTestName.replace(VERSION, ''))) | 0
}

function commandFor(path: string | null): string {
  const { testPath = '', currentTestName = '' } = expect.getState()
  // The option is a regular expression, so special characters are replaced by dots.
  const name = currentTestName.replace(VERSION, '.*').replace(/[^\w >,.*-]/g, '.')
  const file = relative(process.cwd(), testPath)
  return `SEED=${SEED} FC_PATH=${path} npx vitest run --project node ${file} -t '${name}'`
}
