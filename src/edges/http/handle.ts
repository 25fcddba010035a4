/**
 * One request, from its judgement to its end: judge → report → delay → forward or deny → annotate → finish. Where an admitted request
 * goes is up to the edge: the gateway sends it to the origin, the guard and the middleware run the user's code.
 */
import type { Background } from '../../background.ts'
import { type Clock, elapsed, type Sleep, SYSTEM_CLOCK, SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { switchNameOf } from '../../config/compile-rule.ts'
import { createEngine, type Ending } from '../../limiter/engine.ts'
import { createOwnAnswers } from '../../limiter/own-answers.ts'
import { createProbe } from '../../limiter/probe.ts'
import { createGatewayPolicy } from '../../script/policy.ts'
import type { Store } from '../../store/store.ts'
import { createSwitchBoard, type SwitchBoard } from '../../switches/live.ts'
import { annotate } from './annotate.ts'
import { delay } from './delay.ts'
import { deny } from './deny.ts'
import type { Forward, Forwarded } from './forward.ts'
import { createIdentifier, type Identifier } from './identify.ts'
import { createJudge, type Judged } from './judge.ts'
import type { OriginLoad } from './origin-load.ts'
import { countsLocally, followsOrigin, holdsUnits, type Parts, takesLeases } from './parts.ts'
import { isTooLong } from './path.ts'
import { problem } from './problem.ts'
import { createReporter, type Reporting } from './report.ts'
import type { WithContext } from './trusted-worker.ts'
import { safely } from './unexpected.ts'
import { exposeToScripts } from './web-page.ts'

/** @param platform has the context of the request, where there is one: Hono's `c`, or `{ executionCtx: ctx }` */
export type PeerOf = (request: Request, env: unknown, platform: WithContext) => string | undefined

/** What an edge needs from the platform beside the request. */
export interface Platform {
  /** Variables of the environment, among them the secrets that issuers of tokens share. */
  variables?: Readonly<Record<string, unknown>>
  /** The other end of the connection, for `address: { from: … }` off Cloudflare. */
  peerOf?: PeerOf
  /** Default: that of the machine. */
  clock?: Clock
  /** The isolate's copy of the live switches; tests pass their own. */
  board?: SwitchBoard
  /** Delays a request until its departure; tests pass their own. */
  sleep?: Sleep
  /** For what is sent to the store later; tests pass their own. */
  timer?: Timer
  /** µs by which signals of the origin are summed; absent: the clock of the store, as always in production. */
  reportAt?: () => number
  /** Where decisions are reported to. */
  reporting?: Reporting
}

/** A request, and what its platform knows of it. */
export interface Incoming {
  request: Request
  /** That of the request. */
  url: URL
  /** The other end of the connection, where the platform knows it. */
  peer(): string | undefined
  background: Background
  /** The request as the framework around Sluice has it (in Hono `c`), for hooks of the config. */
  host?: unknown
}

export interface Handler {
  handle(incoming: Incoming, forward: Forward): Promise<Response>
  /** The other end of the connection, as an edge passes it in; or what it says, if that is a trusted Worker. */
  peerOf: PeerOf | undefined
  identifier: Identifier
  clock: Clock
  /** The platform must not end this code before `handle` has resolved, even if the client has left. */
  awaitsEndings: boolean
  /** What is learnt from the origin's replies; absent where nothing follows them. */
  originLoad: OriginLoad | undefined
  /** Gives back what the isolate has leased; from then on the store decides each request. */
  stop(): Promise<void>
}

/** Before anything reads the path. */
export function refuseLongPath({ pathname }: URL): Response | undefined {
  if (!isTooLong(pathname)) return undefined
  return problem({
    status: 414,
    title: 'URI Too Long',
    detail: 'The path is too long. Send a shorter one, or one without encoded characters.',
  })
}

/** @param parts at least those that the config uses */
export function createHandler(config: Config, store: Store, parts: Parts, platform: Platform = {}): Handler {
  const { variables, clock = SYSTEM_CLOCK, sleep, timer = SYSTEM_TIMER, reporting = {} } = platform
  const { board = createSwitchBoard(clock) } = platform
  const timing = { now: () => clock.now(), ...(reporting.sleep && { sleep: reporting.sleep }) }
  const stats = config.stats && parts.createStats(store, { ...timing, ...config.stats })
  const { report, reportStoreChange } = createReporter(config, stats, clock, reporting)
  const identifier = createIdentifier(config, parts, variables)
  const originLoad = followsOrigin(config)
    ? parts.createOriginLoad(config, parts, { clock, board, reportAt: platform.reportAt })
    : undefined
  const hooks = config.hooks && parts.createHooks(config.hooks, config.plans, variables)
  const xRateLimit = config.xRateLimit && parts.createXRateLimit(config.xRateLimit, clock)
  const { trustedWorkers } = config.address
  const engine = createEngine(config, store, {
    clock,
    board,
    switchName: switchNameOf,
    credentials: config.credentials.onStoreFailure,
    probe: createProbe(parts.scriptsOf),
    onCluster: parts.evaluateOnCluster,
    onStoreChange: reportStoreChange,
    onFinish: reporting.onFinish,
    createLocal: countsLocally(config) ? parts.createLocalLimiter : undefined,
    kept: holdsUnits(config)
      ? parts.createHoldings({ now: () => clock.now(), timer, script: parts.syncScript })
      : undefined,
    ownAnswers: createOwnAnswers(
      config.refusals && parts.createRefusalMemory(config.refusals.rememberForMs, () => elapsed(clock)),
      takesLeases(config) ? parts.createLeases({ now: () => elapsed(clock), timer }) : undefined,
    ),
    originLoad,
  })
  const judge = createJudge(config, {
    policy: createGatewayPolicy(config, parts.scriptsOf),
    engine,
    identifier,
    classFor: parts.classFor,
    matchEach: parts.matchEach,
    shedder: originLoad?.shedder,
    hooks,
  })

  return {
    handle: config.credentials.webSocketKeys ? parts.withWebSocketKeys(handle) : handle,
    peerOf: trustedWorkers ? parts.clientOfWorker(trustedWorkers) : platform.peerOf,
    identifier,
    clock,
    awaitsEndings: engine.awaitsEndings,
    originLoad,
    stop: engine.stop,
  }

  async function handle(incoming: Incoming, forward: Forward): Promise<Response> {
    const { request, background } = incoming
    const refusal = refuseLongPath(incoming.url)
    if (refusal) return refusal
    const requestId = crypto.randomUUID()
    const judged = await judge(request, incoming.peer, background, incoming.host)
    const { ruling, matched, storeMs } = judged
    const route = matched?.route?.name
    safely(() => report(ruling, { requestId, route, storeMs, shed: judged.shed }, background))

    const finish = (ending: Ending) => safely(() => judged.finish(ending))
    try {
      const { response: reply, isOwn, isDecoded } = await replyTo(incoming, judged, requestId, forward)
      safely(() => annotate(reply, ruling, requestId, xRateLimit))
      const isRefused = ruling.kind !== 'allowed'
      const response = hooks && isRefused ? await hooks.refuse(incoming, judged, reply) : reply
      safely(() => exposeToScripts(request, response, { isOwn, cors: config.cors, parts, xRateLimit }))
      if (judged.awaitsEnding)
        return parts.whenOver(response, background, finish, {
          isOwn,
          isDecoded,
          timer,
          clientGone: request.signal,
        })
      finish('complete')
      return response
    } catch (error) {
      finish('failed')
      throw error
    }
  }

  async function replyTo(
    { request, url }: Incoming,
    { ruling, caller, matched }: Judged,
    requestId: string,
    forward: Forward,
  ): Promise<Forwarded> {
    if (ruling.kind === 'denied') safely(() => originLoad?.observeRefusal(ruling))
    if (ruling.kind !== 'allowed') return { response: deny(ruling), isOwn: true }
    await delay(ruling.delay, sleep)
    // Its client may have left while it waited. Where nothing awaits its end, the platform has ended it then.
    if (engine.awaitsEndings && request.signal.aborted) {
      return { response: new Response(null, { status: 499 }), isOwn: true }
    }
    const startedAt = clock.now()
    const behalf = {
      requestId,
      url,
      route: matched?.route?.name,
      ...(caller && { caller }),
      decision: ruling,
    }
    const forwarded = await forward(request, behalf)
    const latencyMs = clock.now() - startedAt
    safely(() => originLoad?.observeReply({ request, ...forwarded, latencyMs, decision: ruling }))
    return forwarded
  }
}
