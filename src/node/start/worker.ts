/** Starts the process that runs the Worker, and waits until it serves. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { moduleFile } from '../project.ts'
import type { Guardian } from './guardian.ts'
import type { WorkerMessage, WorkerSettings } from './worker-messages.ts'

const PROCESS = moduleFile('node/start/worker-process')

/** Longer than STOP_MS of worker-process.ts, which waits for requests in flight. */
const STOP_MS = 2000

export interface RunningWorker {
  url: string
  /** The parent process of workerd. */
  pid: number
  /** With `inspect`. */
  inspectorUrl?: string
  close(): Promise<void>
}

export interface WorkerOptions extends WorkerSettings {
  guardian: Guardian
  /** A private directory of this run, for workerd's temporary files. */
  directory: string
  onMessage?: (message: WorkerMessage) => void
}

/** @throws Error with the mistakes of the config, or with another reason why the Worker does not start */
export async function startWorker(options: WorkerOptions): Promise<RunningWorker> {
  const { guardian, directory, onMessage, ...settings } = options
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const child = spawn(process.execPath, ['--no-warnings', PROCESS], {
    detached: true,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    env: {
      ...process.env,
      TMPDIR: directory,
      SLUICE_WORKER_SETTINGS: JSON.stringify(settings satisfies WorkerSettings),
    },
  })
  if (child.pid) guardian.guard({ group: child.pid })
  guardian.guard({ directory })
  const exited = once(child, 'exit')

  const ready = await new Promise<Pick<RunningWorker, 'url' | 'inspectorUrl'>>((resolve, reject) => {
    child.on('message', (message: WorkerMessage) => {
      if (message.type === 'ready') resolve(message)
      else if (message.type === 'failed') reject(new Error(message.message))
      else onMessage?.(message)
    })
    child.once('exit', code =>
      reject(
        new Error(
          `The Worker process ended with code ${code} before it was ready. The lines above may show the cause.`,
        ),
      ),
    )
  }).catch(error => {
    child.kill('SIGKILL')
    throw error
  })

  const { url, inspectorUrl } = ready
  return {
    url,
    ...(inspectorUrl !== undefined && { inspectorUrl }),
    pid: child.pid!,
    async close() {
      if (child.connected) child.disconnect()
      // The guardian kills what is left.
      await Promise.race([exited, new Promise(resolve => setTimeout(resolve, STOP_MS).unref())])
    },
  }
}
