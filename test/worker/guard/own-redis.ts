/** A Worker of a team with a Redis of its own, which it cannot reach: what the set-ups say to that. */
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import { guard } from '../../../src/set-ups/guard/index.ts'
import { sluice } from '../../../src/set-ups/hono/middleware.ts'
import { createLimiter } from '../../../src/set-ups/limits/create-limiter.ts'

const CONFIG = {
  limits: { job: [{ name: 'day', algorithm: 'fixed-window', limit: 2, period: '1d' }] },
} satisfies ConfigInput
const redis = 'redis://10.0.0.5:6379'

const messageOf = (create: () => unknown): string => {
  try {
    create()
    return 'taken'
  } catch (error) {
    return (error as Error).message
  }
}

// At the start of the Worker, where the variables are not known yet.
const AT_START = [() => guard(CONFIG, { redis }), () => sluice(CONFIG, { redis })].map(messageOf)

export default {
  fetch: () =>
    Response.json([...AT_START, messageOf(() => createLimiter(CONFIG, { env: { REDIS_URL: redis } }))]),
}
