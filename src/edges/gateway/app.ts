/** The gateway in the order a request meets it. This file wires; it decides nothing. */

import { Hono } from 'hono/tiny'
import type { Background } from '../../background.ts'
import { type Clock, type Sleep, SYSTEM_CLOCK, SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { switchNameOf } from '../../config/compile-rule.ts'
import { createEngine, type Ending } from '../../limiter/engine.ts'
import { createProbe } from '../../limiter/probe.ts'
import { createGatewayPolicy } from '../../script/policy.ts'
import type { Store } from '../../store/store.ts'
import { createSwitchBoard, type SwitchBoard } from '../../switches/live.ts'
import { annotate } from './annotate.ts'
import { backgroundOf } from './background.ts'
import { delay } from './delay.ts'
import { deny } from './deny.ts'
import { healthCheck } from './health.ts'
import { createIdentifier } from './identify.ts'
import { createJudge, type Judged } from './judge.ts'
import { countsLocally, followsOrigin, holdsUnits, type Parts } from './parts.ts'
import { isReserved } from './path.ts'
import { problem } from './problem.ts'
import { type OnBehalfOf, type Proxied, proxy } from './proxy.ts'
import { createReporter, type Reporting } from './report.ts'
import { safely, unexpected } from './unexpected.ts'
import { exposeToScripts, isPreflight } from './web-page.ts'

/** What the app needs from the platform beside the request. */
export interface Platform {
  /** Variables of the environment, among them the secrets that issuers of tokens share. */
  variables?: Readonly<Record<string, unknown>>
  /** The other end of the connection, for `address: { from: … }` off Cloudflare. */
  peerOf?: (request: Request, env: unknown) => string | undefined
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

/** @param parts at least those that the config uses */
export function createApp(config: Config, store: Store, parts: Parts, platform: Platform = {}): Hono {
  const { variables, peerOf, clock = SYSTEM_CLOCK, sleep, timer = SYSTEM_TIMER, reporting = {} } = platform
  const { board = createSwitchBoard(clock) } = platform
  const app = new Hono()
  const health = healthCheck(store, clock)
  const timing = { now: () => clock.now(), ...(reporting.sleep && { sleep: reporting.sleep }) }
  const stats = config.stats && parts.createStats(store, { ...timing, ...config.stats })
  const { report, reportStoreChange } = createReporter(config, stats, clock, reporting)
  const identifier = createIdentifier(config, parts, variables)
  const originLoad = followsOrigin(config)
    ? parts.createOriginLoad(config, parts, { clock, board, reportAt: platform.reportAt })
    : undefined
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
    originLoad,
  })
  const judge = createJudge(config, {
    policy: createGatewayPolicy(config, parts.scriptsOf),
    engine,
    identifier,
    classFor: parts.classFor,
    shedder: originLoad?.shedder,
  })

  app.get('/_sluice/health', health)

  const { pushes } = config.shedding?.workerUtilization ?? {}
  if (pushes) {
    const receive = parts.receivePushes(store, pushes, variables, parts.signalScript)
    app.all('/_sluice/utilization', c => receive(c.req.raw))
  }

  // One handler: several would be middleware of each other, which Hono composes for each request.
  app.all('*', c => {
    const request = c.req.raw
    // Nothing under /_sluice/ ever reaches the origin, however it is spelled.
    const url = new URL(request.url)
    if (isReserved(url.pathname)) return notFound()
    if (isPreflight(request)) return passPreflight(request, c.env)
    const background = backgroundOf(c)
    const reply = handle(request, url, c.env, background)
    // Otherwise the platform ends this code when a client leaves before the reply has begun.
    if (engine.awaitsEndings) background(reply)
    return reply
  })

  app.onError(unexpected)

  return app

  async function passPreflight(request: Request, env: unknown): Promise<Response> {
    const address = identifier.addressOf(request, peerOf?.(request, env))
    const refusal = identifier.refuse(request, address)
    if (refusal) return deny(refusal)
    if (config.cors) return parts.answerPreflight(request, config.cors)
    const { response } = await proxy(request, config, {
      requestId: crypto.randomUUID(),
      ...(address !== undefined && { address }),
    })
    safely(() => originLoad?.hideSignal(response.headers))
    return response
  }

  async function handle(request: Request, url: URL, env: unknown, background: Background): Promise<Response> {
    const requestId = crypto.randomUUID()
    const judged = await judge(request, () => peerOf?.(request, env), background)
    const { ruling, matched, storeMs } = judged
    const route = matched?.route?.name
    safely(() => report(ruling, { requestId, route, storeMs, shed: judged.shed }, background))

    const finish = (ending: Ending) => safely(() => judged.finish(ending))
    try {
      const { response, isOwn } = await replyTo(request, judged, { requestId, url })
      safely(() => annotate(response, ruling, requestId))
      safely(() => exposeToScripts(request, response, { isOwn, cors: config.cors, parts }))
      if (judged.awaitsEnding)
        return parts.whenOver(response, background, finish, { isOwn, clientGone: request.signal })
      finish('complete')
      return response
    } catch (error) {
      finish('failed')
      throw error
    }
  }

  async function replyTo(
    request: Request,
    { ruling, caller }: Judged,
    behalf: Pick<OnBehalfOf, 'requestId' | 'url'>,
  ): Promise<Proxied> {
    if (ruling.kind === 'denied') safely(() => originLoad?.observeRefusal(ruling))
    if (ruling.kind !== 'allowed') return { response: deny(ruling), isOwn: true }
    await delay(ruling.delay, sleep)
    // Its client may have left while it waited. Where nothing awaits its end, the platform has ended it then.
    if (engine.awaitsEndings && request.signal.aborted) {
      return { response: new Response(null, { status: 499 }), isOwn: true }
    }
    const startedAt = clock.now()
    const proxied = await proxy(request, config, { ...behalf, ...(caller && { caller }), decision: ruling })
    const latencyMs = clock.now() - startedAt
    safely(() => originLoad?.observeReply({ request, ...proxied, latencyMs, decision: ruling }))
    return proxied
  }
}

function notFound(): Response {
  return problem({
    status: 404,
    title: 'Not Found',
    detail: 'The gateway serves nothing at this path. GET /_sluice/health shows its health.',
  })
}
