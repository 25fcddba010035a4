/** Reads properties of processes from /proc. On other systems than Linux, all results are undefined. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'

/** The child of a process with this name, if there is one. */
export function childOf(parent: number, name: string): number | undefined {
  return childrenOf(parent).find(pid => statusOf(pid)?.Name === name)
}

/** Also a child of a child. */
export function descendantOf(ancestor: number, name: string): number | undefined {
  const children = childrenOf(ancestor)
  return children.map(pid => (statusOf(pid)?.Name === name ? pid : descendantOf(pid, name))).find(Boolean)
}

function childrenOf(parent: number): number[] {
  if (!existsSync('/proc')) return []
  return readdirSync('/proc')
    .map(Number)
    .filter(pid => statusOf(pid)?.PPid === String(parent))
}

export function residentBytes(pid: number): number | undefined {
  const size = statusOf(pid)?.VmRSS
  return size === undefined ? undefined : Number.parseInt(size, 10) * 1024
}

function statusOf(pid: number): Record<string, string> | undefined {
  try {
    const lines = readFileSync(`/proc/${pid}/status`, 'utf8').split('\n')
    return Object.fromEntries(lines.map(line => line.split(/:\s+/)))
  } catch {
    // The process has ended, or the entry is not a process.
    return undefined
  }
}
