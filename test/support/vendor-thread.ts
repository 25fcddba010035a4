/** The server of vendor.ts, in a thread of its own: what else the test does must not delay the times of arrival. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parentPort, workerData } from 'node:worker_threads'
import { type Arrival, monotonicMs, type Refusal, type VendorLimit } from './vendor.ts'

const limits: readonly VendorLimit[] = workerData
const counted = new Map<string, number[]>()
const refusals = new Map<string, number>()
const closedUntil = new Map<string, number>()

parentPort!.on('message', ({ account, seconds }: Refusal) => refusals.set(account, seconds * 1000))

const server = createServer((request, response) => {
  const at = monotonicMs()
  const [account, sendBy] = request.url!.slice(1).split('?') as [string, string]
  const arrivals = counted.get(account) ?? []
  counted.set(account, arrivals)
  const refusal = refusals.get(account)
  if (refusal !== undefined) {
    refusals.delete(account)
    closedUntil.set(account, at + refusal)
  }
  const leftMs = (closedUntil.get(account) ?? 0) - at
  const isFull = limits.some(({ limit, periodMs }) => (arrivals.at(-limit) ?? 0) > at - periodMs)
  arrivals.push(at)
  const isRefused = isFull || leftMs > 0
  // 400 to 1600, in the mean 1000.
  const tokens = isRefused ? 0 : 400 + (arrivals.length % 7) * 200
  parentPort!.postMessage({ account, at, sendBy: Number(sendBy) * 1000, isRefused, tokens } satisfies Arrival)
  if (isRefused) response.writeHead(429, { 'retry-after': `${Math.max(1, Math.ceil(leftMs / 1000))}` }).end()
  else response.writeHead(200, { 'x-tokens': `${tokens}` }).end()
})
server.listen(0, '127.0.0.1', () => parentPort!.postMessage((server.address() as AddressInfo).port))
