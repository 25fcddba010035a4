/**
 * `npm run bench:practice`: the figures that others have published about their rate limiters, for Sluice. Prints a section for each, and
 * writes bench/practice.md.
 *
 * - `-- --only restart` runs one and prints it. With `--write`, it replaces its section in the file.
 * - `-- --log <file>` also compares the sliding window with the exact log on a real access log.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { Command, Option } from 'commander'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import { findServer } from '../src/node/start/redis.ts'
import { burntBudget } from './practice/burnt-budget.ts'
import { countingBug } from './practice/counting-bug.ts'
import type { Figure } from './practice/figure.ts'
import { restart } from './practice/restart.ts'
import { onAccessLog, slidingApproximation } from './practice/sliding-approximation.ts'
import { globalLimit } from './practice/workers.ts'
import { commit, machine, versions } from './report.ts'
import { NoRedis, startTestBed, type TestBed } from './test-bed.ts'

const RESULTS = new URL('practice.md', import.meta.url)

interface Program {
  title: string
  /** @param log the file of the option */
  run(log: string): Promise<Figure>
}

const FIGURES = {
  'counting bug': { title: 'Counting before deciding', run: () => onTestBed(countingBug) },
  'burnt budget': { title: 'The wait after a burnt budget', run: burntBudget },
  'sliding window': { title: 'The sliding window against the exact log', run: slidingApproximation },
  'access log': { title: 'The sliding window on a real access log', run: onAccessLog },
  restart: { title: 'Decisions without the store in an hour with a restart', run: restart },
  workers: { title: 'A global limit against a limit for each worker', run: () => onTestBed(globalLimit) },
} satisfies Record<string, Program>
type Name = keyof typeof FIGURES

const { only, write, log } = new Command('npm run bench:practice --')
  .addOption(
    new Option('--only <figure...>', 'run these figures, and write no file').choices(Object.keys(FIGURES)),
  )
  .option('--write', 'with --only: replace their sections in bench/practice.md')
  .option('--log <file>', "an access log in the common log format, as text or gzip, for 'access log'")
  .parse()
  .opts<{ only?: Name[]; write?: true; log?: string }>()

const program = await findServer(['redis-server'])
if (!program) {
  console.error(new NoRedis().message)
  process.exit(1)
}
const sections = writtenSections()
for (const name of Object.keys(FIGURES) as Name[]) {
  if (!(only?.includes(name) ?? true) || (name === 'access log' && log === undefined)) continue
  const startedAt = performance.now()
  const { title, run }: Program = FIGURES[name]
  const section = sectionOf(name, title, await run(log ?? ''))
  console.error(`${name}: ${((performance.now() - startedAt) / 1000).toFixed(0)} s`)
  console.log(`${section}\n`)
  sections.set(title, section)
}
if (!only || write) writeFileSync(RESULTS, pageOf(program.version))

async function onTestBed(run: (bed: TestBed) => Promise<Figure>): Promise<Figure> {
  const bed = await startTestBed()
  try {
    return await run(bed)
  } finally {
    await bed.close()
  }
}

function sectionOf(name: Name, title: string, { sentences, table }: Figure): string {
  const options = name === 'access log' ? ' --log <file>' : ''
  return [
    `## ${title}`,
    ...sentences,
    markdownOf(table, { isAligned: true }),
    `\`npm run bench:practice -- --only '${name}'${options}\` on ${new Date().toISOString().slice(0, 10)}, commit ${commit()}.`,
  ].join('\n\n')
}

/** The sections of the page as it is now, by title. */
function writtenSections(): Map<string, string> {
  const text = existsSync(RESULTS) ? readFileSync(RESULTS, 'utf8') : ''
  const [, ...written] = text.split(/^(?=## )/m)
  return new Map(written.map(section => [/^## (.*)/.exec(section)![1]!, section.trimEnd()]))
}

function pageOf(redisVersion: string): string {
  const titles = Object.values(FIGURES).map(({ title }) => title)
  return [
    '# Published practice',
    'Figures that others have published about their rate limiters, and the same for Sluice. Made by `npm run bench:practice`.',
    ...titles.flatMap(title => sections.get(title) ?? []),
    '## Machine and versions',
    [...machine(), versions(redisVersion, ['redis'])].map(line => `- ${line}`).join('\n'),
    '',
  ].join('\n\n')
}
