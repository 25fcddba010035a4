/**
 * Compares the source of this folder with that of another commit. Both are measured in turns by the benchmark of this folder, each in
 * processes of its own.
 */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import { medianAndRange, ratiosOf, times } from './figures.ts'
import { median } from './measure.ts'
import type { Part } from './report.ts'
import { startRun } from './run.ts'

const HERE = fileURLToPath(new URL('..', import.meta.url))
const run = promisify(execFile)

/** A change below this is never reported, because it matters to no user. Counts of the same source differ by less than 1.01. */
const SMALLEST = 1.03

interface Plan {
  parts: readonly string[]
  /** How often each of the two is measured. */
  rounds: number
  /** Whether instructions of Redis are counted. They need no comparison in the same round. */
  instructions?: boolean | undefined
}

/** The values of Sluice by what was measured. Times are multiples of its comparison, which ran in the same rounds. Lower is better. */
type Values = Map<string, number>

/**
 * @param commit anything that git can resolve
 * @returns a table of what was measured, with the ratio of now to then
 * @throws Error if git does not know the commit, or the benchmark does not run with its source
 */
export async function compareWith(commit: string, { rounds, ...plan }: Plan): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'sluice-against-'))
  const then = join(directory, 'then')
  const git = (...words: string[]) => run('git', words, { cwd: HERE })
  const { stdout } = await git('rev-parse', '--short', `${commit}^{commit}`).catch(() => {
    throw new Error(`--against ${commit}: git knows no such commit. Use a hash, a tag or a branch.`)
  })
  await git('worktree', 'add', '--detach', then, commit)
  try {
    // The same benchmark measures both. It needs the helpers of the tests and of the pages, too.
    for (const folder of ['bench', 'test/support', 'docs']) {
      cpSync(join(HERE, folder), join(then, folder), { recursive: true })
    }
    symlinkSync(join(HERE, 'node_modules'), join(then, 'node_modules'))
    const [before, now]: Values[][] = [[], []]
    for (let round = 0; round < rounds; round++) {
      const both = [
        [before!, then],
        [now!, HERE],
      ] as const
      for (const [values, folder] of round % 2 === 0 ? both : both.toReversed()) {
        console.error(`round ${round + 1} of ${rounds}: ${folder === HERE ? 'now' : commit}`)
        values.push(valuesOf(await startRun(folder, { ...plan, number: round }), plan.instructions))
      }
    }
    const name = stdout.trim()
    return plan.instructions ? countsOf(name, before![0]!, now![0]!) : tableOf(name, before!, now!)
  } finally {
    await git('worktree', 'remove', '--force', then)
    rmSync(directory, { recursive: true, force: true })
  }
}

function valuesOf(parts: readonly Part[], instructions: boolean | undefined): Values {
  const values: Values = new Map()
  for (const { title, columns } of parts.flatMap(({ findings }) => findings.rounds ?? [])) {
    const { Sluice: own, ...others } = columns
    const [theirs] = Object.values(others)
    if (own && theirs && !instructions) values.set(title, median(ratiosOf(own, theirs)))
    // Tables about Sluice only, such as callers by kind: each column is a value.
    // The titles name the unit of times.
    else
      for (const [name, column] of Object.entries(own ? { Sluice: own } : columns))
        values.set(`${instructions ? title.replace(/,? µs.*/, '') : title}: ${name}`, median(column))
  }
  return values
}

/** A change counts if it is larger than what the values of the same source differ by. */
export function tableOf(commit: string, before: readonly Values[], now: readonly Values[]): string {
  const rows = [...(before[0]?.keys() ?? [])].flatMap(what => {
    const [then, today] = [before, now].map(all => all.flatMap(values => values.get(what) ?? []))
    if (then!.length === 0 || today!.length === 0) return []
    const ratios = ratiosOf(today!, then!)
    const change = median(ratios)
    const noise = Math.max(spreadOf(then!), spreadOf(today!), SMALLEST)
    return [[what, medianAndRange(ratios), times(noise), verdictOf(change, noise)]]
  })
  return markdownOf({ head: ['what', `now ÷ ${commit}`, 'noise', 'verdict'], rows }, { isAligned: true })
}

/** Counts hardly differ from run to run, so each is made once. Instructions are in thousands. */
function countsOf(commit: string, before: Values, now: Values): string {
  const rows = [...before].flatMap(([what, then]) => {
    const today = now.get(what)
    if (today === undefined) return []
    return [[what, then.toFixed(1), today.toFixed(1), times(today / then), verdictOf(today / then, SMALLEST)]]
  })
  const head = ['thousands of instructions of Redis, or commands', commit, 'now', 'ratio', 'verdict']
  return markdownOf({ head, rows }, { isAligned: true })
}

/** How far the middle half of the values is apart, as a ratio of at least 1. */
function spreadOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const at = (share: number) => sorted[Math.round(share * (sorted.length - 1))]!
  return at(0.75) / at(0.25)
}

function verdictOf(change: number, noise: number): string {
  if (change > noise) return 'slower'
  return change < 1 / noise ? 'faster' : '-'
}
