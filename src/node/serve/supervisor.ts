/**
 * The primary process of `sluicegate serve`: it accepts connections and hands each to a worker in turn, starts workers again that have died,
 * and stops or replaces them.
 *
 *     SIGTERM, SIGINT   stops the workers, then ends with code 0; the second one ends everything at once
 *     SIGHUP            replaces the workers one after the other: a new one is ready before an old one stops
 */
import cluster, { type Worker } from 'node:cluster'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { traceOf } from '../../errors.ts'
import { moduleFile } from '../project.ts'
import { createHeardCallers } from './heard-callers.ts'
import { listenError } from './listen-error.ts'
import type { CallerMessage, FromWorker, ProcessLog, ToWorker, WorkerSettings } from './messages.ts'
import { passOnUntaken } from './untaken-connections.ts'

export interface SuperviseOptions extends Omit<WorkerSettings, 'secret'> {
  workers: number
  log: ProcessLog
}

/** A worker that has run for this long has not died because of its start (ms). */
const STABLE_MS = 10_000

/** How often in a row a worker can die soon after its start. */
const MAX_CRASHES = 5

/** The pauses before a worker is started again (ms). The first is short, because most workers die only once. */
const PAUSES_MS = [0, 500, 1000, 2000, 4000]

/** How much longer than its requests in flight a worker can take to stop (ms). */
const STOP_MS = 15_000

/** A second signal within this time (ms) is the same one: npm passes on what the terminal sends to both. */
const SAME_SIGNAL_MS = 500

async function freePort(host: string): Promise<number> {
  const server = createServer().listen(0, host)
  await once(server, 'listening').catch(error => Promise.reject(listenError(error, host, 0)))
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** @returns the exit code, when the server has stopped @throws Error if the first workers cannot start */
export async function supervise({ workers, log, ...settings }: SuperviseOptions): Promise<number> {
  const { drainMs } = settings
  process.on('uncaughtException', error => {
    log('error', 'exception', { error: traceOf(error) })
    process.exit(1)
  })
  // If all workers die at once, nothing listens for a moment. Afterwards, they listen on the same port.
  if (settings.port === 0) settings.port = await freePort(settings.host)
  const secret = randomBytes(32).toString('hex')
  const slots: Worker[] = []
  const heardCallers = createHeardCallers()
  const { promise: ended, resolve: end } = Promise.withResolvers<number>()
  let isStopping = false
  let restarting: Promise<void> | undefined
  let restartsAgain = false

  cluster.setupPrimary({
    exec: moduleFile('node/serve/worker-process'),
    args: [],
    execArgv: [...process.execArgv, '--no-warnings'],
    stdio: ['inherit', 'inherit', 'pipe', 'ipc'],
  })

  /** Sends what one worker has learned to the others. */
  function passOn(message: CallerMessage, from: Worker): void {
    heardCallers.add(message.news)
    for (const worker of Object.values(cluster.workers ?? {}))
      if (worker && worker !== from && worker.isConnected()) worker.send(message, () => {})
  }

  /** Starts a worker. @throws Error if it does not become ready */
  function launch(): Promise<{ worker: Worker; url: string }> {
    const worker = cluster.fork({ SLUICE_SERVE_SETTINGS: JSON.stringify({ ...settings, secret }) })
    // The first message: what the others send from now on is passed on to this worker too.
    worker.send({ type: 'callers', heard: heardCallers.all() } satisfies ToWorker, () => {})
    passOnUntaken(worker)
    // Workers write to standard output. Only Node itself writes here, such as that it is out of memory.
    worker.process.stderr?.on('data', chunk => process.stderr.write(chunk))
    return new Promise((resolve, reject) => {
      worker.on('message', (message: FromWorker) => {
        if (message.type === 'ready') resolve({ worker, url: message.url })
        else if (message.type === 'failed') reject(new Error(message.message))
        else if (message.type === 'caller') passOn(message, worker)
        else log('info', 'worker-stopped', { pid: worker.process.pid, cut: message.cut })
      })
      worker.once('exit', (code, signal) =>
        reject(new Error(`The worker ended before it was ready (${signal ?? `code ${code}`}).`)),
      )
    })
  }

  /** Fills a slot with a worker that is ready, and watches over it. */
  function employ(slot: number, worker: Worker, crashes = 0): void {
    const startedAt = performance.now()
    slots[slot] = worker
    worker.once('exit', (code, signal) => {
      // It was replaced.
      if (slots[slot] !== worker || isStopping) return
      const livedMs = performance.now() - startedAt
      log('error', 'worker-died', { pid: worker.process.pid, reason: signal ?? `code ${code}` })
      void replaceDead(slot, worker, livedMs < STABLE_MS ? crashes + 1 : 1)
    })
  }

  async function replaceDead(slot: number, dead: Worker, crashes: number): Promise<void> {
    if (crashes > MAX_CRASHES) {
      log('error', 'crash-loop', {
        detail: `A worker has died ${crashes} times, each time within ${STABLE_MS / 1e3} s of its start.`,
      })
      return await stop(1)
    }
    await new Promise(resolve => setTimeout(resolve, PAUSES_MS[crashes - 1]))
    if (isStopping || slots[slot] !== dead) return
    try {
      const { worker } = await launch()
      // A restart may have filled the slot meanwhile.
      if (isStopping || slots[slot] !== dead) return void stopWorker(worker, isStopping)
      log('info', 'worker-started', { pid: worker.process.pid })
      employ(slot, worker, crashes)
    } catch (error) {
      if (isStopping) return
      log('error', 'worker-failed', { detail: (error as Error).message })
      await replaceDead(slot, dead, crashes + 1)
    }
  }

  /** Resolves when the worker has exited. */
  async function stopWorker(worker: Worker, isFinal: boolean): Promise<void> {
    if (worker.isDead()) return
    const exited = new Promise<void>(resolve => worker.once('exit', () => resolve()))
    if (worker.isConnected()) worker.send({ type: 'stop', isFinal } satisfies ToWorker, () => {})
    const timer = setTimeout(() => worker.process.kill('SIGKILL'), drainMs + STOP_MS)
    await exited
    clearTimeout(timer)
  }

  async function stop(code: number): Promise<void> {
    if (isStopping) return
    isStopping = true
    log('info', 'stopping', { drain_ms: drainMs })
    await Promise.all(Object.values(cluster.workers ?? {}).map(worker => worker && stopWorker(worker, true)))
    log('info', 'stopped', {})
    end(code)
  }

  async function restart(): Promise<void> {
    log('info', 'restarting', { workers: slots.length })
    for (const [slot, old] of [...slots.entries()]) {
      if (isStopping) return
      try {
        const { worker } = await launch()
        log('info', 'worker-started', { pid: worker.process.pid })
        employ(slot, worker)
        if (isStopping) return void stopWorker(worker, true)
      } catch (error) {
        log('error', 'restart-failed', { detail: `The other workers go on. ${(error as Error).message}` })
        return
      }
      await stopWorker(old, false)
    }
    log('info', 'restarted', { workers: slots.length })
  }

  async function restartInTurn(): Promise<void> {
    do {
      restartsAgain = false
      await restart()
    } while (restartsAgain && !isStopping)
    restarting = undefined
  }

  let signalledAt: number | undefined
  function onStopSignal(signal: NodeJS.Signals): void {
    const now = performance.now()
    if (signalledAt === undefined) {
      signalledAt = now
      void stop(0)
    } else if (now - signalledAt > SAME_SIGNAL_MS) {
      for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL')
      end(signal === 'SIGINT' ? 130 : 143)
    }
  }

  process.on('SIGTERM', onStopSignal)
  process.on('SIGINT', onStopSignal)
  process.on('SIGHUP', () => {
    if (restarting) restartsAgain = true
    else if (slots.length > 0) restarting = restartInTurn()
  })

  // The first one alone: if it cannot start, the others cannot either.
  const first = await launch()
  employ(0, first.worker)
  const others = await Promise.all(Array.from({ length: workers - 1 }, launch)).catch(async error => {
    if (isStopping) return []
    await stop(1)
    throw error
  })
  for (const [i, { worker }] of others.entries()) employ(i + 1, worker)
  if (!isStopping) log('info', 'listening', { url: first.url, workers, pid: process.pid })
  return await ended
}
