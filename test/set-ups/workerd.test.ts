/** Behavior of the set-ups around the user's code that only workerd shows. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'

const TEXT = 'hello '.repeat(2000)

let store: FastStore
let upstream: Server
let miniflare: Miniflare
let url: string
/** @param name of a Worker in test/worker/guard */
async function running(name: string, bindings: Record<string, string>): Promise<Miniflare> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`../worker/guard/${name}.ts`, import.meta.url))],
    ...{ bundle: true, write: false, format: 'esm', target: 'es2024' },
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*'],
  })
  return new Miniflare(
    convertV4MiniflareOptions({
      ...{ name, modules: true, script: outputFiles![0]!.text, compatibilityDate: '2026-10-01' },
      compatibilityFlags: ['enable_request_signal'],
      bindings: { ...(store.env as unknown as Record<string, string>), ...bindings },
      ...{ cf: false, log: new Log(LogLevel.NONE), handleStructuredLogs: () => {} },
    }),
  )
}

beforeAll(async () => {
  store = await startFastStore()
  upstream = createServer((_, res) => {
    const body = gzipSync(TEXT)
    res.writeHead(200, { 'content-encoding': 'gzip', 'content-length': body.length }).end(body)
  })
  await new Promise<void>(resolve => upstream.listen(0, '127.0.0.1', resolve))
  miniflare = await running('worker', {
    UPSTREAM: `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`,
  })
  url = (await miniflare.ready).origin
})
afterAll(async () => {
  await miniflare.dispose()
  upstream.closeAllConnections()
  await new Promise(resolve => upstream.close(resolve))
  await store.close()
})

describe('in workerd', () => {
  it('a reply that workerd has decoded arrives whole while its end is observed, and releases its unit', async () => {
    for (let i = 0; i < 4; i++) {
      const reply = await fetch(url)
      expect([reply.status, await reply.text()]).toEqual([200, TEXT])
    }
  })

  it('HEAD requests to a Hono app release their unit', async () => {
    for (let i = 0; i < 6; i++) expect((await fetch(`${url}/hono`, { method: 'HEAD' })).status).toBe(200)
  })

  it('other isolates learn at once that a unit of a limit by name is free', async () => {
    expect(await (await fetch(`${url}/task`)).json()).toBe(true)
    const limits = { tasks: [{ name: 'at-once', algorithm: 'concurrency', limit: 2, ttl: '60s' }] } as const
    const elsewhere = createLimiter({ limits: { tasks: [...limits.tasks] } }, { env: store.env })
    // The ttl would release it only after a minute.
    await vi.waitFor(
      async () => {
        const { rules } = await elsewhere.peek('tasks')
        expect(rules[0]!.remaining).toBe(2)
      },
      { timeout: 20_000 },
    )
  })

  it('the gateway runs from a config without a build', async () => {
    const gateway = await running('gateway', {
      ORIGIN_URL: `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`,
    })
    try {
      const { origin } = await gateway.ready
      const statuses = []
      for (let i = 0; i < 3; i++) {
        const reply = await fetch(origin)
        statuses.push(reply.status)
        if (reply.ok) expect(await reply.text()).toBe(TEXT)
      }
      expect(statuses).toEqual([200, 200, 429])
    } finally {
      await gateway.dispose()
    }
  })

  it('a Redis that a Worker cannot reach is refused when the Worker starts, with what to do', async () => {
    const worker = await running('own-redis', {})
    try {
      const messages = (await (await fetch((await worker.ready).origin)).json()) as string[]
      expect(messages).toHaveLength(3)
      for (const message of messages) expect(message).toMatch(/REST_URL.*sluicegate bridge/)
    } finally {
      await worker.dispose()
    }
  })
})
