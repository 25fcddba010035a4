/**
 * Bundles the Worker for the tests that run in workerd. Starts their services in another process, and provides their addresses and keys
 * to the tests.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import type { ProvidedContext } from 'vitest'
import type { TestProject } from 'vitest/node'

/** One module, as in a deployment: Vitest takes seconds to load the modules of the sources one by one. */
export const WORKER_BUNDLE = fileURLToPath(new URL('../../.wrangler/tests/worker.js', import.meta.url))

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const services = fileURLToPath(new URL('worker-services.ts', import.meta.url))
  const child = spawn(process.execPath, [services], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const exited = once(child, 'exit')
  const ready = once(child, 'message')
  await build({
    entryPoints: [fileURLToPath(new URL('../../src/index.ts', import.meta.url))],
    outfile: WORKER_BUNDLE,
    bundle: true,
    format: 'esm',
    target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'],
  })
  const [message] = await Promise.race([ready, exited.then(() => [])])
  if (!message) throw new Error("The services of the Worker's tests did not start.")
  for (const [name, value] of Object.entries(message as Omit<ProvidedContext, 'tarball'>)) {
    project.provide(name as keyof ProvidedContext, value)
  }
  return async () => {
    child.disconnect()
    await exited
  }
}
