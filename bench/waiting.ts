/**
 * `npm run bench:waiting`: calls that wait for units in flight, with short jobs. Compares `limiter.acquire` with a semaphore as it is
 * usually published: a sorted set that each waiting call polls. Then calls of `sluicegate/client` through `sluicegate serve`. `-- --write` writes
 * bench/waiting.md.
 */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import { startGuardian } from '../src/node/start/guardian.ts'
import { findServer, startPrivateServer } from '../src/node/start/redis.ts'
import { startChild } from './child.ts'
import { times } from './figures.ts'
import { median } from './measure.ts'
import { loadAverage, machine, versions } from './report.ts'
import { NoRedis } from './test-bed.ts'
import { AT_ONCE } from './waiting/client.config.ts'
import { ROUNDS as CLIENT_ROUNDS, HEAD, JOB_MS, measureClient } from './waiting/client.ts'
import type { Settings, Used, Way } from './waiting/process.ts'

const RESULTS = new URL('waiting.md', import.meta.url)
const ROUNDS = 5
const LIMIT = 10
const SECONDS = 4
/** The time in which all processes start (ms). */
const START_MS = 2500
const WAYS: readonly Way[] = ['acquire', 'polling']

const SHAPES = [
  { jobMs: 20, processes: 1, callers: 50 },
  { jobMs: 20, processes: 4, callers: 52 },
  { jobMs: 100, processes: 1, callers: 50 },
  { jobMs: 100, processes: 4, callers: 52 },
]

const { write } = new Command().option('--write').parse().opts<{ write?: true }>()
const program = await findServer(['redis-server'])
if (!program) throw new NoRedis()
const guardian = startGuardian()
const directory = mkdtempSync(join(tmpdir(), 'sluice-waiting-'))
guardian.guard({ directory })
const server = await startPrivateServer(program, { guardian, directory: join(directory, 'r') })

let keys = 0

/** The used part of the limit, trips for each job, and the jobs of the process that had the fewest, as a part of its share. */
async function measure(way: Way, { jobMs, processes, callers }: (typeof SHAPES)[number]) {
  const settings: Settings = {
    ...{ url: server.url, way, jobMs, limit: LIMIT, seconds: SECONDS },
    ...{ key: `k${++keys}`, callers: callers / processes, startAt: Date.now() + START_MS },
  }
  const children = await Promise.all(
    Array.from({ length: processes }, () =>
      startChild<Used>('waiting/process.ts', settings, { guardian, directory }),
    ),
  )
  const all = children.map(({ ready }) => ready)
  await Promise.all(children.map(child => child.close()))
  const sum = (get: (used: Used) => number) => all.reduce((total, used) => total + get(used), 0)
  const jobs = sum(used => used.jobs)
  return {
    used: sum(({ busyMs }) => busyMs) / (LIMIT * SECONDS * 1e3),
    trips: sum(used => used.trips) / jobs,
    fewest: (Math.min(...all.map(used => used.jobs)) * processes) / jobs,
  }
}

const percent = (share: number) => `${Math.round(100 * share)} %`
const rows: string[][] = []
try {
  for (const shape of SHAPES) {
    const runs = { acquire: [], polling: [] } as Record<Way, Awaited<ReturnType<typeof measure>>[]>
    for (let round = 0; round < ROUNDS; round++)
      for (const way of WAYS) runs[way].push(await measure(way, shape))
    const of = (way: Way, what: 'used' | 'trips' | 'fewest') => median(runs[way].map(run => run[what]))
    const side = (what: 'used' | 'trips', format: (value: number) => string) =>
      `${format(of('acquire', what))} : ${format(of('polling', what))} = ${times(of('acquire', what) / of('polling', what))}`
    rows.push([
      ...[`${shape.jobMs} ms`, String(shape.processes), String(shape.callers)],
      side('used', percent),
      side('trips', value => value.toFixed(2)),
      `${percent(of('acquire', 'fewest'))} : ${percent(of('polling', 'fewest'))}`,
      loadAverage(),
    ])
    console.error(rows.at(-1)!.join(' | '))
  }
  const head = [
    'jobs',
    'processes',
    'callers',
    'used of the limit',
    'trips for each job',
    'process with the fewest jobs',
    'load average',
  ]
  const clientRows = await measureClient({ guardian, directory }, server.url)
  const page = [
    '# Waiting for units in flight\n\nMade by `npm run bench:waiting -- --write`.\n\n## Calls of `acquire`\n',
    markdownOf({ head, rows }, { isAligned: true }),
    '\n## Calls of `sluicegate/client` through `sluicegate serve`\n',
    markdownOf({ head: HEAD, rows: clientRows }, { isAligned: true }),
    '\n## Machine and versions\n',
    ...[...machine(), versions(program.version, ['redis']), new Date().toISOString().slice(0, 10)].map(
      line => `- ${line}`,
    ),
    '- Load average: processes that run or could run, with those of the measurement. Above 2, they wait for each other.',
    '\n## Method\n',
    `- One rule \`concurrency\` with a limit of ${LIMIT}. The callers take a unit, keep it for the time of a job, release it, and begin again. Cells show "\`limiter.acquire\` : polling = ratio", medians of ${ROUNDS} rounds of ${SECONDS} s in turns.`,
    '- Polling: a sorted set with a member for each unit ([published](published/concurrency.lua)). A caller that is refused asks again after 10 ms, and removes its member at the end.',
    '- All processes and redis-server are on one machine, with a direct connection. 100 % used: a released unit is taken at once.',
    '- The process with the fewest jobs: its part of an equal share. With both ways, a process that holds all units keeps them as long as it has callers. `acquire` hands a released unit to the next caller of its process. A polling caller that is new takes the unit that its process has just released, before callers that wait.',
    `- \`sluicegate/client\`: the calls go out at once to a gateway with one worker and a limit of ${AT_ONCE} in flight, and the origin takes ${JOB_MS} ms for each. The processes are new, so their first calls find out what the limit is. Ideal: the limit is in use without a gap. Medians of ${CLIENT_ROUNDS} rounds.\n`,
  ].join('\n')
  console.log(page)
  if (write) writeFileSync(RESULTS, page)
} finally {
  await server.close()
  await guardian.dismiss()
}
