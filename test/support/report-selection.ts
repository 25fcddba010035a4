/**
 * The reporter that ends a run with what the run has left out, and the command that runs it. A whole run of `npm run test:all` fails if
 * a test file, or a Redis of this machine, took no part in it.
 */
import { globSync } from 'node:fs'
import { matchesGlob, relative } from 'node:path'
import type { Reporter, TestModule, Vitest } from 'vitest/node'
import { LEFT_OUT, NIGHTLY, randomCases, SELECTION } from '../selection.ts'
import type { FileCosts } from './measure-costs.ts'
import { INSTALLED_KINDS, REDIS_KINDS, titleOf } from './servers.ts'

export default class SelectionReporter implements Reporter {
  readonly #isPart: boolean
  #vitest!: Vitest

  /** @param isPart whether the command line names paths. What else runs is of no interest then. */
  constructor({ isPart = false }: { isPart?: boolean } = {}) {
    this.#isPart = isPart
  }

  onInit(vitest: Vitest): void {
    this.#vitest = vitest
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    if (process.env.TEST_COSTS) console.log(costsOf(modules).join('\n'))
    const { testNamePattern, project, shard } = this.#vitest.config
    if (this.#isPart || testNamePattern || project.length > 0 || shard) return
    const ran = new Set(modules.map(({ moduleId }) => relative(process.cwd(), moduleId)))
    const missing = globSync('test/**/*.test.ts', { exclude: ['**/node_modules/**'] }).filter(
      file => !ran.has(file),
    )
    const isOfNight = (file: string) => NIGHTLY.some(pattern => matchesGlob(file, pattern))
    if (SELECTION === 'all')
      demandAll(
        missing.filter(file => !isOfNight(file)),
        suitesWithout(modules),
      )
    else console.log(leftOut(missing).join('\n'))
  }
}

/** Suites that ran on one server of this machine and not on another, and servers on which nothing ran. */
function suitesWithout(modules: readonly TestModule[]): string[] {
  const servers = INSTALLED_KINDS.map(titleOf)
  const ranOn = new Map<string, Set<string>>()
  for (const module of modules) {
    const file = relative(process.cwd(), module.moduleId)
    for (const { fullName } of module.children.allSuites()) {
      const server = servers.find(server => fullName.endsWith(`, on ${server}`))
      if (server === undefined) continue
      const suite = `${file}: ${fullName.slice(0, -`, on ${server}`.length)}`
      ranOn.set(suite, (ranOn.get(suite) ?? new Set()).add(server))
    }
  }
  const missing = (ran: ReadonlySet<string>) => servers.filter(server => !ran.has(server))
  const all = new Set([...ranOn.values()].flatMap(servers => [...servers]))
  return [
    ...missing(all).map(server => `No test ran on ${server}.`),
    ...[...ranOn].flatMap(([suite, ran]) => missing(ran).map(server => `${suite} did not run on ${server}.`)),
  ]
}

function demandAll(missing: readonly string[], suites: readonly string[]): void {
  const problems = [
    ...missing.map(file => `${file} did not run: no project of vitest.config.ts includes it.`),
    ...suites,
  ]
  for (const problem of problems) console.error(problem)
  if (problems.length > 0) process.exitCode = 1
  const kinds = ['redis-server', 'valkey-server'] as const
  const absent = kinds.filter(kind => !INSTALLED_KINDS.includes(kind))
  console.log(
    [
      'npm run test:all left out:',
      ...absent.map(kind => `  all tests on ${titleOf(kind)}: ${kind} is not installed`),
      '  other versions of frameworks and bundlers: npm run test:package',
      '  most faults in most calls: npm run test:anomalies',
      '  long runs under load, and 100,000 random decisions: npm run test:soak',
      '',
    ].join('\n'),
  )
}

function leftOut(missing: readonly string[]): string[] {
  const servers = INSTALLED_KINDS.filter(kind => !REDIS_KINDS.includes(kind)).map(titleOf)
  const reasons = Object.entries(LEFT_OUT).map(([why, patterns]) => {
    const count = missing.filter(file => patterns.some(pattern => matchesGlob(file, pattern))).length
    return `  ${count} ${count === 1 ? 'file' : 'files'} to ${why}`
  })
  return [
    'npm test left out:',
    ...reasons,
    ...(servers.length > 0 ? [`  the suites on ${servers.join(' and ')}`] : []),
    `  ${100 - randomCases(100)} of 100 random cases of each property`,
    '  the longest lists and runs of other suites',
    '  HTTP between a gateway and its store or origin in the same process, for requests without a body or a fault',
    'npm run test:all runs everything. A file that you name is never left out: npm test -- test/e2e',
    '',
  ]
}

/** How many of the costliest files are listed. */
const COSTLIEST = Number(process.env.TEST_COSTS) > 1 ? Number(process.env.TEST_COSTS) : 30

function costsOf(modules: readonly TestModule[]): string[] {
  const files = modules.flatMap(module => {
    const { costs } = module.meta()
    return costs ? [{ file: relative(process.cwd(), module.moduleId), costs }] : []
  })
  const cpuOf = ({ cpuMs, childCpuMs }: FileCosts) => cpuMs + childCpuMs
  const sum = (value: (costs: FileCosts) => number) => files.reduce((sum, { costs }) => sum + value(costs), 0)
  const row = (name: string, value: (cost: (costs: FileCosts) => number) => number) =>
    [
      ...[
        value(cpuOf),
        value(({ childCpuMs }) => childCpuMs),
        value(({ loadMs }) => loadMs),
        value(({ runMs, cpuMs }) => runMs - cpuMs),
      ].map(ms => (ms / 1000).toFixed(1).padStart(9)),
      ` ${name}`,
    ].join('')
  return [
    'seconds: CPU, of it in other processes, loading modules, waiting',
    row(`all ${files.length} files`, sum),
    ...files
      .sort((one, other) => cpuOf(other.costs) - cpuOf(one.costs))
      .slice(0, COSTLIEST)
      .map(({ file, costs }) => row(file, cost => cost(costs))),
    '',
  ]
}
