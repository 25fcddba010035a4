/**
 * Measures what each test file costs, for `TEST_COSTS=1 npm test` and `TEST_COSTS=1 npm run test:all`: CPU of this process and of the
 * programs that it has started, time to load modules, and time spent waiting. report-selection.ts prints the sums and the costliest files.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll } from 'vitest'

/** All in ms. */
export interface FileCosts {
  loadMs: number
  runMs: number
  cpuMs: number
  childCpuMs: number
}

declare module 'vitest' {
  interface TaskMeta {
    costs?: FileCosts
  }
}

/** Linux counts CPU time in hundredths of a second. */
const MS_PER_TICK = 10

const ownCpuMs = () => {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

/** CPU time of all programs that this process has started, and that they have started, also of those that have ended. */
function childCpuMs(): number {
  const processes = new Map<number, { parent: number; own: number; ended: number }>()
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
      // After the name, which is in parentheses and can contain spaces: state, parent, … (see proc_pid_stat(5)).
      const fields = text
        .slice(text.lastIndexOf(')') + 2)
        .split(' ')
        .map(Number)
      const [, parent, , , , , , , , , , utime, stime, cutime, cstime] = fields as number[] & { length: 15 }
      processes.set(Number(pid), {
        parent: parent!,
        own: MS_PER_TICK * (utime! + stime!),
        ended: MS_PER_TICK * (cutime! + cstime!),
      })
    } catch {
      // This process has just ended.
    }
  }
  let sum = processes.get(process.pid)?.ended ?? 0
  for (const { parent, own, ended } of processes.values()) {
    let ancestor: number | undefined = parent
    while (ancestor && ancestor !== process.pid) ancestor = processes.get(ancestor)?.parent
    if (ancestor === process.pid) sum += own + ended
  }
  return sum
}

const atStart = { time: performance.now(), cpu: ownCpuMs(), children: childCpuMs() }
let loadedAt = atStart.time

beforeAll(() => {
  loadedAt = performance.now()
})

// biome-ignore lint/correctness/noEmptyPattern: vitest demands a destructuring pattern here.
afterAll(({}, { file }) => {
  const endedAt = performance.now()
  file.meta.costs = {
    loadMs: loadedAt - atStart.time,
    runMs: endedAt - loadedAt,
    cpuMs: ownCpuMs() - atStart.cpu,
    childCpuMs: childCpuMs() - atStart.children,
  }
})
