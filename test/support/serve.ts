/** `sluicegate serve` in the process of a test, or as a user starts it, and clients for it. */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { type Isolate, type IsolateOptions, startIsolate } from '../../src/node/serve/isolate.ts'
import { checkServeConfig } from '../../src/node/serve/serve-config.ts'
import { environmentWith, SLUICE } from './command-line.ts'
import { PATIENT } from './patience.ts'

export const ANY_CALLER = { accept: ['anonymous'] } satisfies ConfigInput['credentials']

export const WIDE_LIMIT = [
  { name: 'address-minute', by: 'address', algorithm: 'gcra', limit: 1000, period: '1m' },
] satisfies ConfigInput['rules']

/** Starts an isolate of `serve` on any free port. */
export function serveInProcess(
  config: Partial<ConfigInput>,
  variables: IsolateOptions['variables'],
  options: Pick<IsolateOptions, 'serverOptions' | 'replacesGlobals'> = {},
): Promise<Isolate> {
  const checked = checkServeConfig({
    credentials: ANY_CALLER,
    rules: WIDE_LIMIT,
    store: { deadline: '20s' },
    log: { perSecond: 0 },
    ...config,
  })
  return startIsolate({ config: checked, variables, host: '127.0.0.1', port: 0, ...options })
}

export interface Reply {
  status: number
  headers: IncomingHttpHeaders
  body: Buffer
}

export interface SendOptions {
  method?: string
  headers?: OutgoingHttpHeaders
  body?: string | Buffer
  agent?: Agent
  signal?: AbortSignal
}

/** Sends a request as it is: `fetch` would decompress the reply, and does not send every header. */
export function send(
  url: string,
  { method = 'GET', headers = {}, body, agent, signal }: SendOptions = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const sent = request(
      url,
      { method, headers, agent: agent ?? new Agent(), ...(signal && { signal }) },
      async message => {
        try {
          const chunks: Buffer[] = []
          for await (const chunk of message) chunks.push(chunk)
          resolve({ status: message.statusCode!, headers: message.headers, body: Buffer.concat(chunks) })
        } catch (error) {
          reject(error)
        }
      },
    )
    sent.on('error', reject)
    sent.end(body)
  })
}

/** `sluicegate serve` as a user starts it. */
export interface RunningServer {
  url: string
  /** Of the primary process. */
  pid: number
  /** The events of the log, oldest first. */
  events(): { event: string; [field: string]: unknown }[]
  /** What it has written to its standard error. */
  errors(): string
  /** Waits for an event. @param count how many of it there must be */
  until(event: string, count?: number): Promise<void>
  /** The process ids of the workers. */
  workers(): number[]
  kill(signal: NodeJS.Signals): void
  /** Reads its log no more. */
  closeLog(): void
  /** Resolves with its exit code. */
  exited: Promise<number | null>
}

const CONFIG = fileURLToPath(new URL('./serve.config.ts', import.meta.url))

/**
 * @param env at least the store and ORIGIN_URL
 * @param config default: serve.config.ts
 */
export async function startServer(
  env: Record<string, string>,
  args: readonly string[] = ['--workers', '2'],
  config = CONFIG,
): Promise<RunningServer> {
  const child = spawn(process.execPath, [SLUICE, 'serve', '--config', config, '--port', '0', ...args], {
    env: environmentWith(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let errors = ''
  child.stderr.on('data', data => {
    errors += String(data)
    process.stderr.write(data)
  })
  const lines: string[] = []
  createInterface({ input: child.stdout }).on('line', line => lines.push(line))
  const exited = new Promise<number | null>(resolve => child.once('exit', code => resolve(code)))
  const events = () => lines.map(line => JSON.parse(line))
  const until = async (event: string, count = 1) =>
    void (await vi.waitFor(
      () => {
        if (events().filter(each => each.event === event).length < count)
          throw new Error(`No ${count} × ${event} in:\n${lines.join('\n')}`)
      },
      { ...PATIENT, timeout: 2 * PATIENT.timeout },
    ))
  await Promise.race([
    until('listening'),
    exited.then(code => Promise.reject(new Error(`serve has ended with code ${code}.`))),
  ])
  return {
    url: events().find(({ event }) => event === 'listening').url,
    pid: child.pid!,
    ...{ events, until, exited, errors: () => errors },
    workers: () =>
      readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ').map(Number),
    kill: signal => void child.kill(signal),
    closeLog: () => void child.stdout.destroy(),
  }
}

/** What became of the requests of a load. */
export interface Load {
  /** Replies by status, and failures by their code. */
  results: Record<string, number>
  /** Stops it. Resolves when the requests in flight have ended. */
  stop(): Promise<void>
  /** Resolves when there were so many more replies. */
  replies(more: number): Promise<void>
}

/** Sends one request after the other on each of some connections that are kept. */
export function startLoad(url: string, connections = 8): Load {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const results: Record<string, number> = {}
  let isStopped = false
  const total = () => Object.values(results).reduce((sum, count) => sum + count, 0)
  const clients = Array.from({ length: connections }, async () => {
    while (!isStopped) {
      // As a client gives up on a connection without a reply.
      const signal = AbortSignal.timeout(20_000)
      const result = await send(url, { agent, signal }).then(
        ({ status }) => String(status),
        error => String(error.code),
      )
      results[result] = (results[result] ?? 0) + 1
    }
  })
  return {
    results,
    async stop() {
      isStopped = true
      await Promise.all(clients)
      agent.destroy()
    },
    async replies(more) {
      const enough = total() + more
      await vi.waitUntil(() => total() >= enough, PATIENT)
    },
  }
}
