/** Starts the services of the tests that run in workerd, in another process, and provides their addresses and keys to the tests. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { ProvidedContext } from 'vitest'
import type { TestProject } from 'vitest/node'

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const services = fileURLToPath(new URL('worker-services.ts', import.meta.url))
  const child = spawn(process.execPath, [services], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const exited = once(child, 'exit')
  const [message] = await Promise.race([once(child, 'message'), exited.then(() => [])])
  if (!message) throw new Error("The services of the Worker's tests did not start.")
  for (const [name, value] of Object.entries(message as ProvidedContext)) {
    project.provide(name as keyof ProvidedContext, value)
  }
  return async () => {
    child.disconnect()
    await exited
  }
}
