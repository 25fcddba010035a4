/**
 * Cleans up after its owner, the process that started it, even if the owner was killed. A guardian is a separate process that gets a list
 * of process groups and directories. Its input closes when the owner is done or has died. It then ends the groups, removes the directories
 * and exits.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

type Charge = { group: number } | { directory: string }

export interface Guardian {
  /** Adds a directory or a process group. For a group, spawn the child with `detached: true` and give its pid. */
  guard(charge: Charge): void
  /** Ends all guarded groups and removes all guarded directories. Resolves when that is done. */
  dismiss(): Promise<void>
}

const FILE = fileURLToPath(import.meta.url)

/** How long a process may take to exit before it is killed. */
const GRACE_MS = 1500

export function startGuardian(): Guardian {
  // A group of its own, so that Ctrl-C in the terminal reaches the owner and not the guardian.
  const child: ChildProcess = spawn(process.execPath, [FILE], {
    detached: true,
    stdio: ['pipe', 'ignore', 'inherit'],
  })
  const exited = once(child, 'exit')
  child.unref()
  child.stdin!.on('error', () => {})
  return {
    guard: charge => void child.stdin!.write(`${JSON.stringify(charge)}\n`),
    async dismiss() {
      child.ref()
      child.stdin!.end()
      await exited
    },
  }
}

async function keepWatch(): Promise<void> {
  const charges: Charge[] = []
  for await (const line of createInterface({ input: process.stdin })) charges.push(JSON.parse(line))

  const groups = charges.flatMap(charge => ('group' in charge ? [charge.group] : []))
  for (const group of groups) signal(group, 'SIGTERM')
  const killAt = Date.now() + GRACE_MS
  while (groups.some(isAlive) && Date.now() < killAt) await new Promise(resolve => setTimeout(resolve, 20))
  for (const group of groups) signal(group, 'SIGKILL')
  for (const charge of charges) {
    if ('directory' in charge) rmSync(charge.directory, { recursive: true, force: true, maxRetries: 5 })
  }
}

function signal(group: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, name)
  } catch {
    return false
  }
}

const isAlive = (group: number) => signal(group, 0)

if (process.argv[1] === FILE) {
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => {})
  // Without `await`, which would make a module that `require` refuses.
  void keepWatch()
}
