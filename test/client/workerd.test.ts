/** The client in workerd, where the calls of several requests wait for each other. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { listen } from '../support/listen.ts'
import { startTestWorker } from '../support/workerd.ts'

/** Before and after the date from which a request can settle a promise of another one (handle_cross_request_promise_resolution). */
it.each(['2024-09-01', '2025-06-01'])('answers all requests of a Worker of %s', async date => {
  let times: number[] = []
  const api = createServer((_, response) => {
    const now = performance.now()
    times = times.filter(at => now - at < 1000)
    const isFull = times.length >= 5
    if (!isFull) times.push(now)
    response.setHeader('ratelimit-policy', '"five";q=5;w=1')
    response.setHeader('ratelimit', `"five";r=${5 - times.length};t=1`)
    if (isFull) response.writeHead(429, { 'retry-after': '1' })
    setTimeout(() => response.end('ok'), 30)
  })
  await listen(api, 0)
  const url = `http://127.0.0.1:${(api.address() as AddressInfo).port}`
  const worker = await startTestWorker('client-worker.ts', { API: url }, date)
  onTestFinished(async () => {
    await worker.close()
    api.closeAllConnections()
    api.close()
  })
  const calls = Array.from({ length: 20 }, async (_, i) => {
    const signal = AbortSignal.timeout(30_000)
    return await fetch(`${worker.url}/${i % 2}`, { signal }).then(
      ({ status }) => status,
      (error: Error) => error.name,
    )
  })
  expect(await Promise.all(calls)).toEqual(Array(20).fill(200))
})
