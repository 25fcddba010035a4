/**
 * Processes of the benchmark's own. What is measured runs beside the client and not in it: two parties in one
 * event loop would wait for each other. Each is in the guardian's care and ends with its connection to the parent.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Guardian } from '../src/node/start/guardian.ts'

export interface Child<Ready> {
  pid: number
  /** What it said once it served. */
  ready: Ready
  close(): Promise<void>
}

/** @throws when it ends before it is ready */
export async function startChild<Ready>(
  file: string,
  settings: object,
  { guardian, directory }: { guardian: Guardian; directory: string },
): Promise<Child<Ready>> {
  const child = spawn(
    process.execPath,
    ['--no-warnings', fileURLToPath(new URL(file, import.meta.url)), JSON.stringify(settings)],
    {
      detached: true,
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: { ...process.env, TMPDIR: directory },
    },
  )
  if (child.pid) guardian.guard({ group: child.pid })
  const exited = once(child, 'exit')
  const ready = await new Promise<Ready>((resolve, reject) => {
    child.once('message', message => resolve(message as Ready))
    child.once('exit', code => reject(new Error(`${file} ended with code ${code}.`)))
  })
  return {
    pid: child.pid!,
    ready,
    async close() {
      if (child.connected) child.disconnect()
      await exited
    },
  }
}

/** What worker-process.ts is started with. */
export interface BenchWorker {
  /** A file beside this one. */
  entry: string
  bindings: Record<string, string>
}

/** A Worker in workerd, bundled and set up as it would be deployed. */
export function startBenchWorker(
  worker: BenchWorker,
  bed: { guardian: Guardian; directory: string },
): Promise<Child<{ url: string }>> {
  return startChild('worker-process.ts', worker, bed)
}

/** The other end: what a child was started with. */
export function childSettings<Settings>(): Settings {
  return JSON.parse(process.argv[2] ?? '{}')
}

/** Tells the parent that this child serves; from then on it ends with the parent. */
export function sayReady(ready: object, stop: () => Promise<void> = async () => {}): void {
  process.on('disconnect', () => void stop().finally(() => process.exit(0)))
  process.send?.(ready)
}
