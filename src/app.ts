/** The gateway in the order a request meets it. This file wires; it decides nothing. */
import { Hono } from 'hono/tiny'
import type { Config } from './config/compile.ts'
import { annotate } from './gateway/annotate.ts'
import { answerPreflight, exposeToScripts, isPreflight } from './gateway/cors.ts'
import { deny } from './gateway/deny.ts'
import { healthCheck } from './gateway/health.ts'
import { hold } from './gateway/hold.ts'
import { type Caller, createIdentifier } from './gateway/identify.ts'
import { type Matched, match } from './gateway/match.ts'
import { isReserved } from './gateway/path.ts'
import { problem } from './gateway/problem.ts'
import { proxy } from './gateway/proxy.ts'
import { question } from './gateway/question.ts'
import { settle } from './gateway/settle.ts'
import { unexpected } from './gateway/unexpected.ts'
import { type Decision, decide } from './limiter/decide.ts'
import { evaluate } from './limiter/evaluate.ts'
import type { Store } from './store/store.ts'

/** What the app needs of the platform beside the request. */
export interface Platform {
  /** Variables of the environment, among them the secrets that issuers of tokens share. */
  variables?: Readonly<Record<string, unknown>>
  /** The other end of the connection, for `address: { from: … }` off Cloudflare. */
  peerOf?: (request: Request, env: unknown) => string | undefined
}

export function createApp(config: Config, store: Store, { peerOf, variables }: Platform = {}): Hono {
  const app = new Hono()
  const health = healthCheck(store)
  const identifier = createIdentifier(config, variables)

  app.get('/_sluice/health', health)

  // Nothing under /_sluice/ ever reaches the origin, however it is spelled.
  app.use('*', async (c, next) => (isReserved(new URL(c.req.url).pathname) ? notFound() : next()))

  app.use('*', async (c, next) => {
    const request = c.req.raw
    if (!isPreflight(request)) return next()
    const peer = peerOf?.(request, c.env)
    const refusal = identifier.refuse(request, peer)
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

    const matched = match(config, request)
    const caller = await identifier.identify(request, matched, peerOf?.(request, c.env))
    const decision = caller.refusal ?? (await decisionOn(request, caller, matched))

    if (decision.kind === 'allowed') await hold(decision.delay)
    const { response, isOwn } =
      decision.kind === 'allowed'
        ? await proxy(request, config, { caller, decision, requestId })
        : { response: deny(decision), isOwn: true }

    annotate(response, decision, requestId)
    exposeToScripts(request, response, config.cors, { isOwn })
    settle(decision, requestId)
    return response
  })

  async function decisionOn(request: Request, caller: Caller, matched: Matched): Promise<Decision> {
    const outcome = await evaluate(store, await question(request, caller, matched, config))
    identifier.learn(caller, outcome)
    return decide(outcome)
  }

  app.onError(unexpected)

  return app
}

function notFound(): Response {
  return problem({
    status: 404,
    title: 'Not Found',
    detail: 'The gateway has nothing at this path. GET /_sluice/health says how it is.',
  })
}
