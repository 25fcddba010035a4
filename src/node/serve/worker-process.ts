/** A worker of `sluicegate serve`. The primary process (supervisor.ts) starts it, and asks it to stop. */
import cluster from 'node:cluster'
import type { AgedNews, CallerExchange } from '../../credentials/caller-memory.ts'
import { traceOf } from '../../errors.ts'
import { type Isolate, startIsolate } from './isolate.ts'
import { writeOnlyJson } from './json-output.ts'
import {
  createProcessLog,
  type FromWorker,
  surviveWithoutLog,
  type ToWorker,
  type WorkerSettings,
} from './messages.ts'
import { readServeConfig } from './serve-config.ts'
import type { ServeVariables } from './serve-store.ts'

surviveWithoutLog()
const output = writeOnlyJson()
const log = createProcessLog(output)

const { SLUICE_SERVE_SETTINGS } = process.env
const settings: WorkerSettings = JSON.parse(SLUICE_SERVE_SETTINGS!)
delete process.env.SLUICE_SERVE_SETTINGS

let isolate: Isolate | undefined
let isStopping = false

// The primary process coordinates what Ctrl-C and SIGHUP do.
for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})
process.on('SIGTERM', () => stop(true))

/** What the other workers have sent before this one can learn it. */
const early: AgedNews[] = []
let learn: (news: AgedNews) => void = news => void early.push(news)
const { promise: heardOthers, resolve: haveHeard } = Promise.withResolvers<void>()

process.on('message', (message: ToWorker) => {
  if (message.type === 'stop') stop(message.isFinal)
  else if (message.type === 'caller') learn(message.news)
  else {
    for (const news of message.heard) learn(news)
    haveHeard()
  }
})

/** The primary process passes it on, and keeps it for workers that start later. */
const callers: CallerExchange = {
  publish: news => send({ type: 'caller', news }),
  subscribe(own) {
    learn = own
    for (const news of early.splice(0)) own(news)
  },
}

cluster.worker?.on('disconnect', () => {
  // The primary process has died. Without this, Node would end this one at once.
  cluster.worker!.exitedAfterDisconnect = true
  stop(true)
})
process.on('uncaughtException', error => {
  log('error', 'exception', { error: traceOf(error) })
  process.exit(1)
})

try {
  const config = await readServeConfig(settings.configFile)
  output.bound(config.log.perSecond)
  await heardOthers
  isolate = await startIsolate({
    ...{ config, variables: process.env as ServeVariables },
    ...{ host: settings.host, port: settings.port, secret: settings.secret, replacesGlobals: true },
    ...{ writeLine: output.writeLine, callers },
  })
  send({ type: 'ready', url: isolate.url })
} catch (error) {
  send({ type: 'failed', message: (error as Error).message }, () => process.exit(1))
}

async function stop(isFinal: boolean): Promise<void> {
  if (isStopping) return
  isStopping = true
  const cut = (await isolate?.stop(settings.drainMs, isFinal)) ?? 0
  if (!process.connected) log('info', 'worker-stopped', { pid: process.pid, cut })
  send({ type: 'stopped', cut }, () => process.exit(0))
}

/** @param done called when the message has left, or cannot */
function send(message: FromWorker, done: () => void = () => {}): void {
  if (process.connected) process.send!(message, undefined, undefined, done)
  else done()
}
