/**
 * Under `npm start` and `npx sluicegate …`, npm and a shell are the ancestors of this process. If npm is killed, neither of them sends a
 * signal to this process, so it polls whether they are alive.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const EVERY_MS = 500

/** Calls back once when npm, or the shell between them, has exited. Never calls back if npm did not start this process. */
export async function whenNpmIsGone(callback: () => void): Promise<void> {
  if (!process.env.npm_lifecycle_event) return
  const shell = process.ppid
  const parents = [shell, await parentOf(shell)].filter(pid => pid !== undefined && pid > 1) as number[]
  const timer = setInterval(() => {
    if (parents.every(isAlive)) return
    clearInterval(timer)
    callback()
  }, EVERY_MS)
  timer.unref()
}

async function parentOf(pid: number): Promise<number | undefined> {
  try {
    const { stdout } = await promisify(execFile)('ps', ['-o', 'ppid=', '-p', String(pid)])
    return Number(stdout) || undefined
  } catch {
    // No ps here: then only the shell is watched.
    return undefined
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
