/** For the examples of consumers of queues: their code, and what they must print. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { ROOT } from './pages.ts'
import { PATIENT_MS } from './patience.ts'
import { writeModules } from './snippet-modules.ts'

/** For `vi.waitFor`. A task that was refused three or four times comes back many seconds later. */
export const FOR_DELAYS = { timeout: 3 * PATIENT_MS, interval: 20 }

/** One line that an example prints: a call of the third party, and when its units were spent, by the clock of Redis (µs). */
export interface Call {
  account: string
  ticket: number
  delivery: number
  at: number
}

/** Copies the modules of an example, with the sources of this repository as `sluicegate`. */
export function copyExample(name: string, folder: string): void {
  const cwd = join(ROOT, 'examples', name)
  const files = globSync('**/*.ts', { cwd, exclude: ['**/node_modules/**'] })
  writeModules(folder, Object.fromEntries(files.map(file => [file, readFileSync(join(cwd, file), 'utf8')])))
}

/** The call that a line reports, if it does. */
export const callIn = (line: string): Call[] => (line.startsWith('{"account":') ? [JSON.parse(line)] : [])

/** Expects what the examples promise about their 30 tasks of account 42 and ten tasks of account 7. */
export function expectWithinLimits(calls: readonly Call[]): void {
  expect(calls.map(({ ticket }) => ticket).toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: 40 }, (_, i) => i + 1),
  )
  const of = (account: string) =>
    calls.filter(call => call.account === account).toSorted((a, b) => a.at - b.at)
  const [busy, quiet] = [of('42'), of('7')]
  // Ten in each second, wherever it begins.
  const tenLater = busy.slice(10).map(({ at }, i) => at - busy[i]!.at)
  expect(Math.min(...tenLater)).toBeGreaterThanOrEqual(1e6)
  // The refused tasks went back to the queue, and the consumer took those behind them.
  expect(busy.some(({ delivery }) => delivery > 1)).toBe(true)
  expect(quiet.every(({ delivery }) => delivery === 1)).toBe(true)
  expect(quiet.at(-1)!.at).toBeLessThan(busy.at(-1)!.at)
}
