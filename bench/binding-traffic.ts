/** Cloudflare's rate limiting binding as miniflare simulates it, under traffic of hot callers that exceeds their limit. */
import { type IncomingMessage, request } from 'node:http'
import { json } from 'node:stream/consumers'
import type { BindingCall, BindingLoad } from './binding-worker.ts'
import { type BenchWorker, startBenchWorker } from './child.ts'
import { type Load, SHAPES, type Shape, startOfWindow } from './hot-traffic.ts'
import type { TestBed } from './test-bed.ts'

/** How long requests are sent: the shortest window of the binding, and some of the next one. */
const BINDING_MS = 12_000
const WARM_UP_CALLS = 50

/** The limit of the binding that is nearest to that of a shape. */
export function bindingLimitOf({ limit, period }: Shape): { limit: number; period: 10 | 60 } {
  return period === '1s' ? { limit: 10 * limit, period: 10 } : { limit, period: 60 }
}

const bindingNameOf = (shape: Shape) => `LIMIT_${SHAPES.indexOf(shape)}`

/** Starts a Worker with a binding for each shape. */
export async function startBinding(
  bed: TestBed,
): Promise<{ run(shape: Shape): Promise<Pick<Load, 'admittedAt'>>; close(): Promise<void> }> {
  const ratelimits: BenchWorker['ratelimits'] = {}
  for (const shape of SHAPES) {
    const name = bindingNameOf(shape)
    ratelimits[name] = { namespace_id: name, simple: bindingLimitOf(shape) }
  }
  const worker = await startBenchWorker({ entry: 'binding-worker.ts', bindings: {}, ratelimits }, bed)

  async function send(load: BindingLoad): Promise<BindingCall[]> {
    // Not fetch, which waits for at most five minutes.
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const sent = request(worker.ready.url, { method: 'POST' }, resolve).on('error', reject)
      sent.end(JSON.stringify(load))
    })
    if (response.statusCode !== 200)
      throw new Error(`The Worker with the binding failed: ${response.statusCode}`)
    return (await json(response)) as BindingCall[]
  }

  return {
    async run(shape) {
      const binding = bindingNameOf(shape)
      // Not the keys of the callers, so that their limits stay whole.
      const warmUp = Array.from({ length: WARM_UP_CALLS }, () => 0)
      await send({ binding, prefix: 'warm', callers: 1, dueMs: warmUp })
      await startOfWindow(bindingLimitOf(shape).period * 1000)
      const calls = await send({ binding, prefix: 'caller', callers: 1, dueMs: dueTimes(shape) })
      return { admittedAt: calls.flatMap(({ isAdmitted, repliedAt }) => (isAdmitted ? repliedAt : [])) }
    },
    close: () => worker.close(),
  }
}

/** When each request of a shape is due, in ms after the start. */
function dueTimes({ arrived }: Shape): number[] {
  const times: number[] = []
  for (let ms = 0; ms < BINDING_MS; ms++) {
    const due = Math.ceil(arrived(Math.min(ms + 1, BINDING_MS)))
    while (times.length < due) times.push(ms)
  }
  return times
}
