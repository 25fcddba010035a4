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
  /**
   * For a child that calls `answerQuestions`.
   * @throws when the child cannot answer, or ends before it does
   */
  ask<Answer>(question: object): Promise<Answer>
  close(): Promise<void>
}

interface Question {
  id: number
  question: unknown
}

interface Answer {
  id: number
  answer?: unknown
  error?: string
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
  const waiting = new Map<number, PromiseWithResolvers<unknown>>()
  let asked = 0
  child.on('message', message => {
    const { id, answer, error } = message as Answer
    const question = waiting.get(id)
    waiting.delete(id)
    if (error === undefined) question?.resolve(answer)
    else question?.reject(new Error(`${file}: ${error}`))
  })
  child.once('exit', code => {
    for (const { reject } of waiting.values()) reject(new Error(`${file} ended with code ${code}.`))
  })
  return {
    pid: child.pid!,
    ready,
    ask<T>(question: object) {
      const resolvers = Promise.withResolvers<unknown>()
      asked += 1
      waiting.set(asked, resolvers)
      child.send({ id: asked, question } satisfies Question)
      return resolvers.promise as Promise<T>
    },
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
  /** Rate limiting bindings, by name. */
  ratelimits?: Record<string, { namespace_id: string; simple: { limit: number; period: 10 | 60 } }>
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

/** The other end of `ask`. To be called before `sayReady`. */
export function answerQuestions<Asked>(answer: (question: Asked) => unknown): void {
  process.on('message', async message => {
    const { id, question } = message as Question
    const reply: Answer = { id }
    try {
      reply.answer = await answer(question as Asked)
    } catch (error) {
      reply.error = error instanceof Error ? error.message : String(error)
    }
    process.send?.(reply)
  })
}
