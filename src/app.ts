/** The gateway in the order a request meets it. This file wires; it decides nothing. */
import { Hono } from 'hono/tiny'
import type { Config } from './config/compile.ts'
import { annotate } from './gateway/annotate.ts'
import { backgroundOf } from './gateway/background.ts'
import { answerPreflight, exposeToScripts, isPreflight } from './gateway/cors.ts'
import { deny } from './gateway/deny.ts'
import { healthCheck } from './gateway/health.ts'
import { hold, type Sleep } from './gateway/hold.ts'
import { createJudge, type Surroundings } from './gateway/judge.ts'
import { isReserved } from './gateway/path.ts'
import { problem } from './gateway/problem.ts'
import { proxy } from './gateway/proxy.ts'
import { createSettle, type Telling } from './gateway/settle.ts'
import { logException, unexpected } from './gateway/unexpected.ts'
import type { Store } from './store/store.ts'

/** What the app needs of the platform beside the request. */
export interface Platform extends Surroundings {
  /** How it is told what was decided. */
  telling?: Telling
  /** Holds a request until its departure; tests pass their own. */
  sleep?: Sleep
}

export function createApp(config: Config, store: Store, platform: Platform = {}): Hono {
  const { peerOf, telling = {}, sleep } = platform
  const app = new Hono()
  const health = healthCheck(store)
  const { settle, tellOfStore } = createSettle(config, store, telling)
  const { judge, refuse, recover } = createJudge(config, store, platform, tellOfStore)

  app.get('/_sluice/health', health)

  // Nothing under /_sluice/ ever reaches the origin, however it is spelled.
  app.use('*', async (c, next) => (isReserved(new URL(c.req.url).pathname) ? notFound() : next()))

  app.use('*', async (c, next) => {
    const request = c.req.raw
    if (!isPreflight(request)) return next()
    const peer = peerOf?.(request, c.env)
    const refusal = refuse(request, peer)
    if (refusal) return deny(refusal)
    if (config.cors) return answerPreflight(request, config.cors)
    const { response } = await proxy(request, config, {
      requestId: crypto.randomUUID(),
      ...(peer !== undefined && { peer }),
    })
    return response
  })

  app.all('*', async c => {
    const request = c.req.raw
    const requestId = crypto.randomUUID()
    const background = backgroundOf(c)

    const judged = await judge(request, c.env)
    const { caller, decision, route, storeMs } = judged
    safely(() => settle(decision, { requestId, route, storeMs }, background))
    safely(() => recover(judged, background))

    if (decision.kind === 'allowed') await hold(decision.delay, sleep)
    const { response, isOwn } =
      decision.kind === 'allowed'
        ? await proxy(request, config, { ...(caller && { caller }), decision, requestId })
        : { response: deny(decision), isOwn: true }

    safely(() => annotate(response, decision, requestId))
    safely(() => exposeToScripts(request, response, config.cors, { isOwn }))
    return response
  })

  app.onError(unexpected)

  return app
}

/** What is said about a request must not cost it its answer. */
function safely(say: () => void): void {
  try {
    say()
  } catch (error) {
    logException(error)
  }
}

function notFound(): Response {
  return problem({
    status: 404,
    title: 'Not Found',
    detail: 'The gateway has nothing at this path. GET /_sluice/health says how it is.',
  })
}
