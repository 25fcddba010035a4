/** Starts the Worker of any checkout of the repository, in the same way as src/node/start/worker.ts. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Guardian } from '../../src/node/start/guardian.ts'
import type { WorkerMessage, WorkerSettings } from '../../src/node/start/worker-messages.ts'
import { childNamed } from '../cpu-time.ts'

export const CONFIG_FILE = fileURLToPath(new URL('config.ts', import.meta.url))
const STOP_MS = 2000
const OUT_OF_FILES = /Too many open files/

export interface FloodedWorker {
  url: string
  /** Process id of workerd. */
  workerd: number
  close(): Promise<void>
}

/** @param tree folder of the checkout, with its node_modules */
export async function startWorkerOf(
  tree: string,
  {
    bindings,
    guardian,
    directory,
    configFile = CONFIG_FILE,
  }: { bindings: Record<string, string>; guardian: Guardian; directory: string; configFile?: string },
): Promise<FloodedWorker> {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const settings: WorkerSettings = {
    ...{ host: '127.0.0.1', port: 0, watch: false, isBare: true, minify: true },
    bindings,
    configFile,
  }
  const child = spawn(process.execPath, ['--no-warnings', join(tree, 'src/node/start/worker-process.ts')], {
    // The process builds the project of its working directory.
    cwd: tree,
    detached: true,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    env: { ...process.env, TMPDIR: directory, SLUICE_WORKER_SETTINGS: JSON.stringify(settings) },
  })
  if (child.pid) guardian.guard({ group: child.pid })
  const exited = once(child, 'exit')
  const url = await new Promise<string>((resolve, reject) => {
    child.on('message', (message: WorkerMessage) => {
      if (message.type === 'ready') resolve(message.url)
      else if (message.type === 'failed') reject(new Error(`${tree}: ${message.message}`))
      else if (message.type === 'log' && OUT_OF_FILES.test(message.message)) warnOutOfFiles()
    })
    child.once('exit', code => reject(new Error(`The Worker of ${tree} ended with code ${code}.`)))
  })
  return {
    url,
    workerd: childNamed('workerd', child.pid!),
    async close() {
      if (child.connected) child.disconnect()
      // The guardian kills what is left.
      await Promise.race([exited, new Promise(resolve => setTimeout(resolve, STOP_MS).unref())])
    },
  }
}

let hasWarned = false

/** Prints the reason, because workerd then ends with an error that does not mention it. */
function warnOutOfFiles(): void {
  if (!hasWarned) console.error('workerd has run out of file descriptors. Raise their number with ulimit -n.')
  hasWarned = true
}

/** The commit that is checked out, for the report. */
export function nameOfTree(tree: string): string {
  const git = (...args: string[]) => execFileSync('git', ['-C', tree, ...args], { encoding: 'utf8' }).trim()
  try {
    const commit = git('rev-parse', '--short', 'HEAD')
    return git('status', '--porcelain', '--', 'src') ? `${commit} with changes` : commit
  } catch {
    return basename(tree)
  }
}
