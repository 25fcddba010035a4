/** The set-ups of test/e2e/at-once.test.ts in workerd. The app reports its turns to the test by HTTP requests. */
import { Hono } from 'hono'
import { gateway } from '../../src/set-ups/gateway/whole-worker.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { AT_ONCE_CONFIG, answer, type Turns, type Work } from './ending-list.ts'

interface Environment {
  SETUP: 'gateway' | 'guard' | 'hono'
  /** Where the test waits for turns. */
  TURNS_URL: string
  ORIGIN_URL: string
  UPSTASH_REDIS_REST_URL: string
  UPSTASH_REDIS_REST_TOKEN: string
}

interface Context {
  waitUntil(task: Promise<unknown>): void
  passThroughOnException(): void
  props: unknown
}

type Fetch = (request: Request, env: Environment, context: Context) => Response | Promise<Response>

function turnsOf({ TURNS_URL: url }: Environment): Turns {
  const tell = async (what: string, work: Work) =>
    void (await (await fetch(`${url}/${what}`, { method: 'POST', body: JSON.stringify(work) })).text())
  return {
    begin: work => tell('begin', work),
    turn: (work, isLast) => tell(isLast ? 'last-turn' : 'turn', work),
    stop: work => void tell('stop', work).catch(() => {}),
  }
}

const guarded = guard(AT_ONCE_CONFIG)((request: Request, env: Environment, _: Context) =>
  answer(request, turnsOf(env)),
)

const app = new Hono<{ Bindings: Environment }>()
app.use(sluice(AT_ONCE_CONFIG))
app.all('*', c => answer(c.req.raw, turnsOf(c.env)))
app.onError((_, c) => c.text('failed', 500))

const proxying = gateway(AT_ONCE_CONFIG)

const SETUPS: Record<Environment['SETUP'], Fetch> = {
  gateway: (request, env, context) => proxying.fetch(request, env as never, context),
  async guard(request, env, context) {
    try {
      return await guarded(request, env, context)
    } catch {
      return new Response(null, { status: 500 })
    }
  },
  hono: (request, env, context) => app.fetch(request, env, context),
}

export default {
  fetch: (request: Request, env: Environment, context: Context) => SETUPS[env.SETUP](request, env, context),
}
