/**
 * Passes requests on to an API of language models, and reports what they have cost: GET /reports, by the header X-Case. X-Settings has
 * the settings as JSON.
 */
import { SYSTEM_TIMER } from '../../src/clock.ts'
import { observeEnd } from '../../src/set-ups/http/ending.ts'
import { createReadOnSlots, createTapPump } from '../../src/set-ups/http/tap-pump.ts'
import { acceptEncoding } from '../../src/usage/encodings.ts'
import { type LlmRequestSettings, readLlmRequest } from '../../src/usage/llm-request.ts'
import type { Tokens } from '../../src/usage/tokens.ts'
import type { UsageReport } from '../../src/usage/usage.ts'
import { createUsageReader } from '../../src/usage/usage-reader.ts'
import { UNBOUNDED_LOG } from './log.ts'

/** What the Worker tells about a request. */
export interface UsageCase {
  how: string
  estimate: Tokens
  /** Of the request that was forwarded. */
  isSignalAborted: boolean
  reports: UsageReport[]
}

interface Settings extends LlmRequestSettings {
  readOnMs?: number
}

const begin = createReadOnSlots(10)

const cases: Record<string, UsageCase> = {}

export default {
  async fetch(
    request: Request,
    env: { ORIGIN_URL: string },
    context: { waitUntil(task: Promise<unknown>): void },
  ): Promise<Response> {
    const { pathname } = new URL(request.url)
    if (pathname === '/reports') return Response.json(cases)
    const { readOnMs, ...settings } = JSON.parse(request.headers.get('x-settings') ?? '{}') as Settings
    const llm = await readLlmRequest(request, settings)
    const reports: UsageReport[] = []
    const state = { how: llm.how, estimate: llm.tokens(), isSignalAborted: false, reports }
    cases[request.headers.get('x-case') ?? 'unnamed'] = state
    llm.request.signal.addEventListener('abort', () => {
      state.isSignalAborted = true
    })
    const headers = new Headers(llm.request.headers)
    headers.set(
      'accept-encoding',
      acceptEncoding(headers.get('accept-encoding'), llm.mayHideUsage || llm.hidesUsage()),
    )
    const init = { headers, encodeResponseBody: 'manual', signal: llm.bodyFailed } as RequestInit
    const target = new Request(env.ORIGIN_URL + pathname, llm.request)
    const response = await fetch(target, init)
    const usage = pathname === '/v1/messages' ? 'anthropic' : 'openai'
    const reader = createUsageReader({ tokens: { usage } }, response, { hidesUsage: llm.hidesUsage() })
    const reply = new Response(response.body, response)
    reader.cleanHeaders(reply.headers)
    const background = (task: Promise<unknown>) => context.waitUntil(task)
    return observeEnd(
      reply,
      background,
      ending => background(reader.end(ending).then(report => reports.push(report))),
      {
        ...{ clientGone: request.signal, timer: SYSTEM_TIMER, log: UNBOUNDED_LOG, idleMs: 60_000 },
        pump: createTapPump(reader, { readOn: readOnMs ? { forMs: readOnMs, begin } : undefined }),
      },
    )
  },
}
