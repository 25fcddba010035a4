/**
 * Handles one request: decide → report → delay → forward or deny → annotate → finish. Each set-up forwards in its own
 * way: the gateway sends the request to the origin, the guard and the middleware run the user's code.
 */
import type { Background } from '../../background.ts'
import { type Clock, elapsed, type Sleep, SYSTEM_CLOCK, SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { switchNameOf } from '../../config/compile-rule.ts'
import { countsByField } from '../../config/identity-parts.ts'
import type { CallerExchange } from '../../credentials/caller-memory.ts'
import type { Ending } from '../../limiter/engine-shape.ts'
import { createEngineWithParts } from '../../limiter/engine-with-parts.ts'
import { logStoreChange } from '../../limiter/outage/log-store-change.ts'
import { createLog, type Log } from '../../log.ts'
import { createMetrics } from '../../metrics/create-metrics.ts'
import type { MetricsSource } from '../../metrics/metrics-reader.ts'
import { createGatewayRuleSet } from '../../script/rule-set.ts'
import type { ProcessUsage } from '../../shedding/process-pressure.ts'
import type { Store } from '../../store/store.ts'
import { createSwitchBoard, type SwitchBoard } from '../../switches/live.ts'
import { annotate } from './annotate.ts'
import type { DecideRequestParts } from './decide-request.ts'
import type { DecidedRequest } from './decided-request.ts'
import { delay } from './delay.ts'
import { deny } from './deny.ts'
import { createEmptyStoreCheck } from './empty-store.ts'
import { type Forward, type Forwarded, replyToGoneClient } from './forward.ts'
import { createIdentifier, type Identifier } from './identify.ts'
import { createMatch } from './match.ts'
import type { OriginLoad } from './origin-load.ts'
import { followsOrigin, hasErrorShapes, type Parts } from './parts.ts'
import { readingsOf } from './path.ts'
import { type ErrorShape, problem } from './problem.ts'
import { createReporter, type Reporter, type Reporting } from './report.ts'
import type { WithContext } from './trusted-worker.ts'
import { runOrLog } from './unexpected.ts'
import { exposeToScripts } from './web-page.ts'

/**
 * Returns the address of the other end of the connection.
 *
 * @param platform has the context of the request, if there is one: Hono's `c`, or `{ executionCtx: ctx }`
 */
export type PeerOf = (request: Request, env: unknown, platform: WithContext) => string | undefined

/** What a set-up passes in beside config and store. */
export interface Platform {
  /** Variables of the environment, including the secrets of issuers. */
  variables?: Readonly<Record<string, unknown>>
  /** The other end of the connection, for `address: { from: … }` off Cloudflare. */
  peerOf?: PeerOf
  /** Default: that of the machine. */
  clock?: Clock
  /** The isolate's copy of the live switches; tests pass their own. */
  board?: SwitchBoard
  /** Delays a request until its departure; tests pass their own. */
  sleep?: Sleep
  /** Timer for messages to the store that are sent later; tests pass their own. */
  timer?: Timer
  /** The time of reports about the origin (µs); absent: the clock of the store, as always in production. */
  reportAt?: () => number
  /** Shares admitted callers with other processes of the same server. Default: each process remembers its own. */
  callers?: CallerExchange
  /** How busy this process is; tests pass their own. */
  processUsage?: ProcessUsage
  /** Default: a log of its own, bounded by the config. */
  log?: Log
  /** Receives decisions. */
  reporting?: Reporting
}

/** A request with the data of its platform. */
export interface Incoming {
  request: Request
  /** The parsed URL of the request. */
  url: URL
  /** The other end of the connection, if the platform reports it. */
  peer(): string | undefined
  background: Background
  /** Returns a signal that fires when the client has left. Default: that of the request. */
  gone?: () => AbortSignal
  /** The request object of the framework around Sluice (in Hono `c`), for hooks of the config. */
  host?: unknown
}

/** What decides requests, for paths of the gateway that show a caller its own limits. */
export interface DecisionSource
  extends Pick<DecideRequestParts, 'ruleSet' | 'engine' | 'identifier' | 'classOfRequest' | 'hooks' | 'log'> {
  report: Reporter['report']
}

export interface Handler {
  handle(incoming: Incoming, forward: Forward): Promise<Response>
  /** The `peerOf` of the platform; with `trustedWorkers`, the address that a trusted Worker reports. */
  peerOf: PeerOf | undefined
  identifier: Identifier
  clock: Clock
  log: Log
  /** If true, the platform must not end this code before `handle` has resolved, even if the client has left. */
  awaitsEndings: boolean
  /** Measurements of the origin; absent if no limit depends on them. */
  originLoad: OriginLoad | undefined
  /** Absent without `metrics`. */
  metrics: MetricsSource | undefined
  decisions: DecisionSource
  /** Sends the counters, and gives back the units that the isolate has leased. From then on the store decides each request. */
  stop(): Promise<void>
}

/** Refuses a path with too many readings to match them. Called before anything else reads the path. */
export function refuseAmbiguousPath({ pathname }: URL): Response | undefined {
  if (readingsOf(pathname)) return undefined
  return problem({
    status: 400,
    title: 'Bad Request',
    detail:
      'The path can be read in too many ways. Send a shorter path, or one in which %, ; and // are not nested.',
  })
}

/**
 * Creates the handler of a set-up, one for each isolate.
 *
 * @param parts at least those that the config uses
 */
export function createHandler(
  config: Config,
  bareStore: Store,
  parts: Parts,
  platform: Platform = {},
): Handler {
  const { variables, clock = SYSTEM_CLOCK, sleep, timer = SYSTEM_TIMER, reporting = {} } = platform
  const { board = createSwitchBoard(clock), log = createLog(config.log.perSecond, clock.now) } = platform
  const elapsedMs = () => elapsed(clock)
  const timing = { now: () => clock.now(), ...(reporting.timer && { timer: reporting.timer }) }
  const measurements = createMetrics(config, parts, log, variables, () => clock.now())
  const store = measurements?.watch(bareStore) ?? bareStore
  const topCallers = config.stats?.topCallers && parts.createTopCallers(config.stats.topCallers)
  const stats =
    config.stats && parts.createStatsRecorder(store, { ...timing, ...config.stats, topCallers, measurements })
  const { report, reportUnknownAddress, reportEmptyStore } = createReporter(config, stats, log, reporting)
  const identifier = createIdentifier(config, parts, variables, () => clock.now())
  if (platform.callers) identifier.shareWith(platform.callers)
  const originLoad = followsOrigin(config)
    ? parts.createOriginLoad(config, parts, {
        ...{ clock, board, reportAt: platform.reportAt, processUsage: platform.processUsage },
      })
    : undefined
  const hooks = config.hooks && parts.createHookRunner(config.hooks, config, log, variables)
  const errorShapeOf = hasErrorShapes(config) ? parts.createErrorShapes(config.units!) : undefined
  const xRateLimit = config.xRateLimit && parts.createXRateLimit(config.xRateLimit, clock)
  const { trustedWorkers } = config.address
  const readFields = countsByField(config.rules)
    ? parts.createFieldReader(config, variables ?? {}, timer)
    : undefined
  const emptyStore = createEmptyStoreCheck(store, () => elapsed(clock), reportEmptyStore)
  const engine = createEngineWithParts(config, config.rules, store, parts, {
    ...{ clock, timer, board, log, signals: originLoad?.riders },
    switchName: switchNameOf,
    credentials: config.credentials.onStoreFailure,
    onStoreChange(change) {
      emptyStore.noteOutage()
      measurements?.noteStoreChange(change.isOpen)
      logStoreChange(log, change)
    },
    stats,
    onFinish: reporting.onFinish,
  })
  const ruleSet = createGatewayRuleSet(config, parts.scriptsOf)
  const deciding = { ruleSet, engine, identifier, classOfRequest: parts.classOfRequest, hooks, log }
  const decideRequest = parts.createDecideRequest(config, {
    ...deciding,
    match: createMatch(config, parts.createMatchByRequest),
    ...{ originLoad, emptyStore, readFields },
    ...{ parts, now: elapsedMs, wallClock: clock.now, timer, onFinish: reporting.onFinish },
  })

  /** One request is enough: if its address is known, the platform reports addresses. */
  let isAddressChecked = !usesAddresses(config)

  return {
    handle: config.credentials.webSocketKeys ? parts.withWebSocketKeys(handle) : handle,
    peerOf: trustedWorkers ? parts.createClientAddressReader(trustedWorkers) : platform.peerOf,
    identifier,
    clock,
    log,
    awaitsEndings: engine.awaitsEndings,
    originLoad,
    metrics: measurements && stats && { store, stats, measurements, ruleSet },
    decisions: { ...deciding, report },
    // What the engine settles last is counted, too.
    async stop() {
      await engine.stop()
      await stats?.flush()
    },
  }

  async function handle(incoming: Incoming, forward: Forward): Promise<Response> {
    const { request, background } = incoming
    const refusal = refuseAmbiguousPath(incoming.url)
    if (refusal) return refusal
    const requestId = crypto.randomUUID()
    const decided = await decideRequest(request, incoming.peer, background, incoming.host)
    const { ruling, matched, caller, storeMs, shed, trafficClass } = decided
    const route = matched?.route?.name
    if (!isAddressChecked && caller) {
      isAddressChecked = true
      if (caller.address === undefined) runOrLog(log, reportUnknownAddress)
    }
    runOrLog(log, () => report(ruling, { requestId, route, caller, storeMs, shed, trafficClass }, background))

    const finish = (ending: Ending) => runOrLog(log, () => decided.finish(ending))
    try {
      const forwarded = await replyTo(incoming, decided, requestId, forward)
      const { response: reply, isFromSluice, ended, awaitsEnding = decided.awaitsEnding } = forwarded
      runOrLog(log, () => annotate(reply, ruling, requestId, xRateLimit))
      const isRefused = ruling.kind !== 'allowed'
      const response = hooks && isRefused ? await hooks.refuse(incoming, decided, reply) : reply
      runOrLog(log, () =>
        exposeToScripts(request, response, { isFromSluice, cors: config.cors, parts, xRateLimit }),
      )
      if (!awaitsEnding) finish('complete')
      else if (ended) background(ended.then(finish))
      else
        return parts.observeEnd(response, background, finish, {
          ...forwarded,
          ...{ timer, log },
          idleMs: config.idleDeadlineMs,
          clientGone: incoming.gone?.() ?? request.signal,
        })
      return response
    } catch (error) {
      // The origin or the user's code has failed without a reply.
      finish('failed')
      throw error
    }
  }

  async function replyTo(
    { request, url, background }: Incoming,
    decided: DecidedRequest,
    requestId: string,
    forward: Forward,
  ): Promise<Forwarded> {
    const { ruling, caller, matched } = decided
    if (ruling.kind === 'denied') runOrLog(log, () => originLoad?.observeRefusal(ruling))
    let errorShape: ErrorShape | undefined
    if (matched && errorShapeOf) runOrLog(log, () => (errorShape = errorShapeOf(matched.rules)))
    if (ruling.kind !== 'allowed') return { response: deny(ruling, errorShape), isFromSluice: true }
    const isDelayed = ruling.delay > 0
    if (isDelayed) await delay(ruling.delay, request, sleep)
    // Reading the signal takes time on Workers. If nothing awaits the end of requests, the platform itself ends this code.
    if ((isDelayed || engine.awaitsEndings) && request.signal.aborted) return replyToGoneClient()
    const startedAt = elapsedMs()
    const context = {
      requestId,
      url,
      route: matched?.route?.name,
      ...(caller && { caller }),
      ...{ decision: ruling, errorShape },
    }
    const forwarded = await (decided.forward?.(request, context, forward) ?? forward(request, context))
    const observeReply = () => {
      const latencyMs = elapsedMs() - startedAt
      measurements?.recordOrigin(latencyMs)
      const { response = forwarded.response, isLarge = false } = forwarded.sent?.() ?? {}
      const reply = { request, ...forwarded, response, isLarge, latencyMs, decision: ruling }
      runOrLog(log, () => originLoad?.observeReply(reply))
    }
    if (forwarded.ended) background(forwarded.ended.then(observeReply))
    else observeReply()
    return forwarded
  }
}

function usesAddresses({ rules, allow, block }: Config): boolean {
  return rules.some(({ by }) => by.includes('address')) || allow.addresses.length + block.addresses.length > 0
}
