/** One process of `sluicegate serve`: the gateway with its API, its store, and its server. It counts as one isolate. */
import { hash, randomBytes } from 'node:crypto'
import { createServer, type Server, type ServerOptions } from 'node:http'
import type { AddressInfo } from 'node:net'
import { SYSTEM_CLOCK } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { applyOwnVariables } from '../../config/environment.ts'
import type { CallerExchange } from '../../credentials/caller-memory.ts'
import { createLog, type Log } from '../../log.ts'
import { api } from '../../set-ups/api/index.ts'
import { createGateway } from '../../set-ups/gateway/app.ts'
import { METRICS_PARTS } from '../../set-ups/gateway/metrics.ts'
import { ALL_PARTS } from '../../set-ups/http/all-parts.ts'
import { logException } from '../../set-ups/http/unexpected.ts'
import { sleepBy } from '../../set-ups/limits/settings.ts'
import { replaceSha256 } from '../../sha256.ts'
import { createSwitchBoard } from '../../switches/live.ts'
import { trackBackgroundWork } from './background-work.ts'
import { trackConnections } from './connections.ts'
import { MAX_CONNECTIONS, SERVER_OPTIONS, SILENCE_MS } from './limits-of-connections.ts'
import { listenError } from './listen-error.ts'
import { createListeners, peerOf } from './listener.ts'
import { connectToOrigin } from './origin-fetch.ts'
import { connectServeStore, type ServeStore, type ServeVariables } from './serve-store.ts'
import { ignoreUpgrades } from './upgrade.ts'

export interface IsolateOptions {
  /** As checked by serve-config.ts. */
  config: Config
  variables: ServeVariables
  host: string
  /** 0: any free one. */
  port: number
  /** From which receipts of the API get their key, if the store has no secret. Default: random. */
  secret?: string
  /** Writes a line of the log. Default: the console. */
  writeLine?: (line: string) => void
  /** Shares admitted callers with the other workers. */
  callers?: CallerExchange
  /** As in listener.ts. */
  replacesGlobals?: boolean
  /** Replace those of limits-of-connections.ts; tests are more impatient. */
  serverOptions?: ServerOptions
}

export interface Isolate {
  url: string
  /**
   * Stops, once: accepts no more connections, waits for the requests in flight, then sends what the store does not have yet. Never rejects.
   * @param drainMs after which requests in flight are cut off
   * @param isFinal no other process takes over, so `/_sluice/health` is not ready
   * @returns the number of requests that were cut off
   */
  stop(drainMs: number, isFinal: boolean): Promise<number>
}

// A fifth of the time of the portable one.
replaceSha256(data => hash('sha256', data))

/** How long work after the last reply can take (ms). */
const FINISH_MS = 5000

/** @throws if the variables are not valid, or the port cannot be listened on */
export async function startIsolate(options: IsolateOptions): Promise<Isolate> {
  const { variables, host, port, writeLine, replacesGlobals = false } = options
  const config = applyOwnVariables(options.config, variables)
  const connected = await connectServeStore(config, variables)
  const { store, admin, secret = options.secret ?? randomBytes(32).toString('hex') } = connected
  const work = trackBackgroundWork()
  const log = createLog(config.log.perSecond, SYSTEM_CLOCK.now, writeLine && ((_, line) => writeLine(line)))
  const origin = connectToOrigin({
    connectTimeoutMs: config.originDeadlineMs,
    reuse: config.originConnections,
  })
  let isStopping = false
  const { timer, waitUntil } = work
  const parts = { ...ALL_PARTS, ...METRICS_PARTS, ...api }
  const gateway = createGateway(config, store, parts, {
    ...{ variables: { ...variables }, peerOf, timer, secret, fetchOrigin: origin.fetchOrigin },
    ...{ log, board: createSwitchBoard(SYSTEM_CLOCK) },
    reporting: { timer },
    ...(options.callers && { callers: options.callers }),
    limiter: { waitUntil, clock: { sleep: sleepBy(timer), timer } },
    ...(admin && { connection: admin }),
  })
  const listeners = createListeners(gateway, {
    ...{ log, address: config.address, waitUntil, replacesGlobals },
    isStopping: () => isStopping,
  })
  const server = createServer({ ...SERVER_OPTIONS, ...options.serverOptions })
  // The listener refuses requests with too many headers. Node (22.18) would drop some.
  server.maxHeadersCount = 0
  const connections = trackConnections(server, MAX_CONNECTIONS)
  server.on('request', connections.inTurn(listeners.request))
  server.on('checkContinue', connections.inTurn(listeners.checkContinue))
  ignoreUpgrades(server, connections)
  server.timeout = Math.max(config.originDeadlineMs, config.idleDeadlineMs) + SILENCE_MS
  try {
    await listen(server, host, port, log)
  } catch (error) {
    await connected.close()
    throw error
  }
  reportStore(connected, log)

  let stopped: Promise<number> | undefined
  async function stop(drainMs: number, isFinal: boolean): Promise<number> {
    isStopping = isFinal
    connections.stopAccepting()
    const cut = await connections.drain(drainMs)
    // The work that goes on waits for leases, which this gives back. What it leaves behind is sent by the second call.
    await gateway.stop()
    await work.finish(FINISH_MS)
    await gateway.stop()
    origin.close()
    await connected.close()
    return cut
  }

  return {
    url: urlOf(server),
    stop(...how) {
      stopped ??= stop(...how)
      return stopped
    },
  }
}

function listen(server: Server, host: string, port: number, log: Log): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', error => reject(listenError(error, host, port)))
    server.listen({ host, port }, () => {
      server.removeAllListeners('error')
      // A server without a listener ends the process.
      server.on('error', error => logException(log, error))
      resolve()
    })
  })
}

function urlOf(server: Server): string {
  const { address, family, port } = server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}

/** Logs if the store does not answer yet. Then the fallbacks of the config decide. */
function reportStore({ store, ready }: ServeStore, log: Log): void {
  store.ping().catch(async ({ code, message }) => {
    const detail = await ready?.().catch(({ message }) => message)
    log('warn', 'store-lost', { cause: code, detail: detail ?? message })
  })
}
