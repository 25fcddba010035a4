/**
 * Child processes of the benchmark. Each measured part runs in its own process, because parts in one event loop would wait for each
 * other. A child ends when its connection to the parent closes. If it does not, the guardian ends it (src/node/start/guardian.ts).
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Guardian } from '../src/node/start/guardian.ts'

export interface Child<Ready> {
  pid: number
  /** The message with which the child reported that it was ready. */
  ready: Ready
  /**
   * Sends a command to a child that has called `handleCommands`, and returns its answer.
   * @throws Error if the command fails, or the child ends before it answers
   */
  send<Answer>(command: object): Promise<Answer>
  close(): Promise<void>
}

interface CommandMessage {
  id: number
  command: unknown
}

interface Answer {
  id: number
  answer?: unknown
  error?: string
}

/**
 * @param flags options of Node
 * @throws Error if the child ends before it is ready
 */
export async function startChild<Ready>(
  file: string,
  settings: object,
  { guardian, directory, flags = [] }: { guardian: Guardian; directory: string; flags?: readonly string[] },
): Promise<Child<Ready>> {
  const child = spawn(
    process.execPath,
    ['--no-warnings', ...flags, fileURLToPath(new URL(file, import.meta.url)), JSON.stringify(settings)],
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
  const waiting = new Map<number, PromiseWithResolvers<unknown>>()
  let lastId = 0
  child.on('message', message => {
    const { id, answer, error } = message as Answer
    const sent = waiting.get(id)
    waiting.delete(id)
    if (error === undefined) sent?.resolve(answer)
    else sent?.reject(new Error(`${file}: ${error}`))
  })
  child.once('exit', code => {
    for (const { reject } of waiting.values()) reject(new Error(`${file} ended with code ${code}.`))
  })
  return {
    pid: child.pid!,
    ready,
    send<T>(command: object) {
      const resolvers = Promise.withResolvers<unknown>()
      lastId += 1
      waiting.set(lastId, resolvers)
      child.send({ id: lastId, command } satisfies CommandMessage)
      return resolvers.promise as Promise<T>
    },
    async close() {
      if (child.connected) child.disconnect()
      await exited
    },
  }
}

/** The settings of worker-process.ts. */
export interface BenchWorker {
  /** A file in this folder. */
  entry: string
  bindings: Record<string, string>
  /** Rate limiting bindings, by name. */
  ratelimits?: Record<string, { namespace_id: string; simple: { limit: number; period: 10 | 60 } }>
}

/** Starts a Worker in workerd, bundled and configured as for a deployment. */
export function startBenchWorker(
  worker: BenchWorker,
  bed: { guardian: Guardian; directory: string },
): Promise<Child<{ url: string }>> {
  return startChild('worker-process.ts', worker, bed)
}

/** In the child: the settings that the parent passed to `startChild`. */
export function childSettings<Settings>(): Settings {
  return JSON.parse(process.argv[2] ?? '{}')
}

/** In the child: reports to the parent that it is ready. From then on, the child ends when the parent does. */
export function reportReady(ready: object, stop: () => Promise<void> = async () => {}): void {
  process.on('disconnect', () => void stop().finally(() => process.exit(0)))
  process.send?.(ready)
}

/** In the child: handles the commands of `send`. Call it before `reportReady`. */
export function handleCommands<C>(handle: (command: C) => unknown): void {
  process.on('message', async message => {
    const { id, command } = message as CommandMessage
    const reply: Answer = { id }
    try {
      reply.answer = await handle(command as C)
    } catch (error) {
      reply.error = error instanceof Error ? error.message : String(error)
    }
    process.send?.(reply)
  })
}
