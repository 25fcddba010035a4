/**
 * `npm run bench`: compares a decision of Sluice about six limits with six calls of @upstash/ratelimit for the same algorithm, with a single
 * PING, and with limiters that have a direct connection, on one Redis. Also compares each algorithm, and mixtures of them, with their
 * counterparts. Writes bench/results.md.
 *
 * - `-- --only mixtures` measures one part and prints it. With `--write`, it renews the section of the part in the file.
 * - `-- --against <commit>` measures some parts with the source of another commit in turns with this one, and prints what became slower.
 * - `-- --instructions` counts the instructions of Redis in place of times, which needs valgrind and some minutes. With `--write`, it renews
 *   the section "Instructions"; with `--against`, it shows changes that are smaller than the noise of times.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Command, Option } from 'commander'
import { findServer } from '../src/node/start/redis.ts'
import { compareWith } from './against.ts'
import { mergeRuns } from './figures.ts'
import { METHOD, RUNS } from './method.ts'
import {
  commit,
  type Findings,
  INSTRUCTIONS,
  instructionsIn,
  instructionsOf,
  type Part,
  reportOf,
  sectionOf,
  withSections,
} from './report.ts'
import { measureParts, startRun } from './run.ts'
import { ALL, COUNTED, FOR_COMPARISON, FOR_INSTRUCTIONS, type Name } from './sections.ts'
import { NoRedis } from './test-bed.ts'

const RESULTS = new URL('results.md', import.meta.url)
const ROOT = fileURLToPath(new URL('..', import.meta.url))

const command = new Command('npm run bench --')
  .addOption(new Option('--only <part...>', 'measure these parts, and write no file').choices(ALL))
  .option('--write', 'with --only or --instructions: renew the sections in bench/results.md')
  .option('--against <commit>', 'compare with the source of another commit')
  .option('--rounds <n>', 'with --against: how often each of the two is measured', Number, 9)
  .option('--instructions', 'count the instructions of Redis in place of times')
  .addOption(
    new Option('--run <n>', 'measure once, and print the findings as JSON').argParser(Number).hideHelp(),
  )
  .parse()
const options = command.opts<{
  only?: Name[]
  write?: true
  against?: string
  rounds: number
  instructions?: true
  run?: number
}>()

try {
  await main(options)
} catch (error) {
  if (!(error instanceof NoRedis)) throw error
  console.error(error.message)
  process.exitCode = 1
}

async function main({ only, write, against, rounds, instructions, run }: typeof options): Promise<void> {
  if (write && only && instructions)
    command.error('error: --write renews all instructions. Leave out --only.')
  const byDefault = instructions ? FOR_INSTRUCTIONS : against === undefined ? ALL : FOR_COMPARISON
  const parts = only ? ALL.filter(name => only.includes(name)) : byDefault
  if (run !== undefined) console.log(JSON.stringify(await measureParts(parts)))
  else if (against !== undefined)
    console.log(await compareWith(against, { parts, rounds: instructions ? 1 : rounds, instructions }))
  else {
    const redis = await findServer(['redis-server'])
    if (!redis) throw new NoRedis()
    const measured = instructions ? [instructionsOf(await measureParts(parts))] : await measureInRuns(parts)
    const when = `${new Date().toISOString().slice(0, 10)}, commit ${commit()}`
    const report = { when, names: [...ALL, INSTRUCTIONS] }
    const old = readFileSync(RESULTS, 'utf8')
    if (write) writeFileSync(RESULTS, withSections(measured, old, report))
    else if (!only && !instructions)
      writeFileSync(
        RESULTS,
        `${reportOf(measured, { when, method: METHOD, redisVersion: redis.version })}${instructionsIn(old)}`,
      )
    console.log(measured.map(part => sectionOf(part, when)).join('\n\n'))
  }
}

/** Every run is a process of its own, and has processes of its own. */
async function measureInRuns(parts: readonly Name[]): Promise<Part[]> {
  const found = new Map<string, Findings[]>()
  for (let number = 0; number < RUNS; number++) {
    const inThisRun = parts.filter(name => number === 0 || !COUNTED.includes(name))
    if (inThisRun.length === 0) continue
    console.error(`run ${number + 1} of ${RUNS}`)
    for (const { name, findings } of await startRun(ROOT, { parts: inThisRun, number })) {
      const { rounds: _, ...figures } = findings
      found.set(name, [...(found.get(name) ?? []), figures])
    }
  }
  return parts.map(name => ({ name, findings: mergeRuns(found.get(name)!) }))
}
