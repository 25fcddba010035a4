/**
 * A request holds its unit while the app works on it, in every set-up on Node, whatever the method, the status and the end of the request.
 * Then the unit is free again. test/e2e/at-once.test.ts has the same list in workerd.
 */
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { afterAll, beforeAll } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { expressGuard, nodeListener } from '../../src/node/express.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { sized } from '../selection.ts'
import { AT_ONCE_CONFIG, answer, METHODS, type Method } from '../support/ending-list.ts'
import {
  askFunction,
  describeSetUp,
  listening,
  replyToError,
  type StartSetUp,
  serveApp,
} from '../support/endings.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store?.close())

/** For set-ups that share their guard with Express: with `npm test`, only Express and the gateway get HEAD requests. */
const describeLikeExpress = (title: string, start: StartSetUp) =>
  describeSetUp(title, start, sized<readonly Method[]>(METHODS, ['POST']))

describeSetUp('expressGuard', async turns => {
  const limits = expressGuard(AT_ONCE_CONFIG, { env: store.env })
  return await listening((req, res) =>
    limits(req, res, error => {
      if (error) replyToError(res)
      else serveApp(req, res, turns).catch(() => replyToError(res))
    }),
  )
})

describeLikeExpress('nodeListener of a guard', async turns => {
  const limits = guard(AT_ONCE_CONFIG, { env: store.env })
  return await listening(nodeListener(limits((request: Request) => answer(request, turns))))
})

describeLikeExpress('Hono middleware', async turns => {
  const app = new Hono()
  app.use(sluice(AT_ONCE_CONFIG, { env: store.env }))
  app.all('*', c => answer(c.req.raw, turns))
  app.onError((_, c) => c.text('failed', 500))
  return await listening(getRequestListener(app.fetch))
})

describeLikeExpress('guard as a function', async turns => {
  const limits = guard(AT_ONCE_CONFIG, { env: store.env })
  return { ask: askFunction(limits((request: Request) => answer(request, turns))), close: async () => {} }
})

describeSetUp('gateway', async turns => {
  const origin = await listening((req, res) => void serveApp(req, res, turns).catch(() => replyToError(res)))
  const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token } = store.env
  const config = checkedConfig({ ...AT_ONCE_CONFIG, origin: origin.url })
  const { storeDeadlineMs: deadlineMs, keyLocking } = config
  const app = createApp(config, upstashStore({ url, token, deadlineMs, keyLocking }), ALL_PARTS)
  const gateway = await listening(getRequestListener(app.fetch))
  return {
    ask: gateway.ask,
    async close() {
      await gateway.close()
      await origin.close()
    },
  }
})
