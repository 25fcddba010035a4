/** Reads the CPU time of another process from /proc. Linux only. */
import { readdirSync, readFileSync } from 'node:fs'

/** `sysconf(_SC_CLK_TCK)`: the unit of times in /proc, the same on every architecture that Node runs on. */
const TICKS_PER_SECOND = 100

/** CPU time of a process in seconds, user and system together. */
export function cpuSeconds(pid: number): number {
  const { userTicks, systemTicks } = statOf(pid)
  return (userTicks + systemTicks) / TICKS_PER_SECOND
}

/** The process id of a child process. @throws Error unless the parent has exactly one child of this name */
export function childNamed(name: string, parent: number): number {
  const children = readdirSync('/proc')
    .filter(entry => /^\d+$/.test(entry))
    .flatMap(entry => {
      try {
        const stat = statOf(Number(entry))
        return stat.parent === parent && stat.name === name ? [Number(entry)] : []
      } catch {
        // The process has ended since.
        return []
      }
    })
  const [child] = children
  if (child === undefined || children.length > 1) {
    throw new Error(`Process ${parent} has ${children.length} children ${name}.`)
  }
  return child
}

function statOf(pid: number) {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  // A name can contain spaces and parentheses. The last parenthesis ends it.
  const end = text.lastIndexOf(')')
  const fields = text.slice(end + 2).split(' ')
  return {
    name: text.slice(text.indexOf('(') + 1, end),
    parent: Number(fields[1]),
    userTicks: Number(fields[11]),
    systemTicks: Number(fields[12]),
  }
}
