/**
 * A Worker that proxies and counts how each reply ended: GET /endings shows the endings of each request by its header
 * X-Case. With X-Unobserved the reply goes out as proxy() returns it; with X-Throw a step after it throws.
 */
import { checkedConfig } from '../../src/config/check/check.ts'
import type { Config } from '../../src/config/compile.ts'
import { discard, type Ending, whenOver } from '../../src/gateway/ending.ts'
import { proxy } from '../../src/gateway/proxy.ts'

interface Environment {
  ORIGIN_URL: string
}
interface Context {
  waitUntil(task: Promise<unknown>): void
}

const endings: Record<string, Ending[]> = {}
let config: Config | undefined

export default {
  async fetch(request: Request, env: Environment, context: Context): Promise<Response> {
    if (new URL(request.url).pathname === '/endings') return Response.json(endings)
    config ??= checkedConfig({
      origin: env.ORIGIN_URL,
      originDeadline: '2s',
      rules: [{ name: 'none', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' }],
    })
    const reply = handle(request, config, context)
    // A client that leaves before the reply has begun would end this request's code at once.
    context.waitUntil(reply.catch(() => {}))
    return await reply
  },
}

async function handle(request: Request, config: Config, context: Context): Promise<Response> {
  const { response, isOwn } = await proxy(request, config, { requestId: 'test' })
  if (request.headers.has('x-unobserved')) return response
  const over = (ending: Ending) => {
    const name = request.headers.get('x-case') ?? 'unnamed'
    endings[name] = [...(endings[name] ?? []), ending]
  }
  const reply = whenOver(response, task => context.waitUntil(task), over, {
    isOwn,
    clientGone: request.signal,
  })
  try {
    if (request.headers.has('x-throw')) throw new Error('a later step')
    return reply
  } catch {
    discard(reply)
    return new Response('a later step has thrown', { status: 500 })
  }
}
