/**
 * The gateway in workerd, which records the endings of requests. GET /endings shows them by the header X-Case of the request. With
 * X-Unobserved, nothing depends on how the request ends. With X-Throw, annotating the reply throws an exception. With X-Abort, the
 * gateway waits ten minutes for the origin, unless the client leaves. With X-Idle, it cuts off bodies that are silent for a second.
 */

import { checkedConfig } from '../../src/config/check/check.ts'
import type { Ending } from '../../src/limiter/engine-shape.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { upstashStore } from '../../src/store/upstash.ts'

interface Environment {
  ORIGIN_URL: string
  STORE_URL: string
  STORE_TOKEN: string
}
interface Context {
  waitUntil(task: Promise<unknown>): void
  passThroughOnException(): void
  props: unknown
}

const endings: Record<string, Ending[]> = {}

export default {
  async fetch(request: Request, env: Environment, context: Context): Promise<Response> {
    if (new URL(request.url).pathname === '/endings') return Response.json(endings)
    const { headers } = request
    const name = headers.get('x-case') ?? 'unnamed'
    const app = appOf(env, headers.has('x-unobserved') ? undefined : name, {
      aborts: headers.has('x-abort'),
      isImpatient: headers.has('x-idle'),
    })
    if (!headers.has('x-throw')) return await app.fetch(request, env, context)

    // Only annotate() calls append().
    const { append } = Headers.prototype
    Object.assign(Headers.prototype, {
      append() {
        throw new TypeError('for the test')
      },
    })
    try {
      return await app.fetch(request, env, context)
    } finally {
      Object.assign(Headers.prototype, { append })
    }
  },
}

/** A new app for each request, so that endings are certain to belong to this request. */
function appOf(
  { ORIGIN_URL: origin, STORE_URL: url, STORE_TOKEN: token }: Environment,
  name: string | undefined,
  { aborts, isImpatient }: { aborts: boolean; isImpatient: boolean },
) {
  const config = checkedConfig({
    origin,
    originDeadline: aborts ? '10m' : '2s',
    onClientGone: aborts ? 'abort' : 'wait',
    ...(isImpatient && { idleDeadline: '1s' }),
    credentials: { accept: ['anonymous'] },
    rules: [{ name: 'all', by: 'global', algorithm: 'gcra', limit: 1e6, period: '1s' }],
    stats: { keep: false },
    store: { deadline: '20s' },
  })
  const { storeDeadlineMs: deadlineMs, keyLocking } = config
  const onFinish = (_: unknown, ending: Ending) => {
    if (name !== undefined) endings[name] = [...(endings[name] ?? []), ending]
  }
  return createApp(config, upstashStore({ url, token, deadlineMs, keyLocking }), ALL_PARTS, {
    reporting: name === undefined ? {} : { onFinish },
  })
}
