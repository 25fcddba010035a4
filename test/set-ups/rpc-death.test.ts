/** The process of the Worker that has the limits is killed while another Worker holds units. Each Worker has a workerd of its own. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { startTestStore, type TestStore } from '../../src/node/testing.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { PATIENT } from '../support/patience.ts'
import config from '../worker/rpc/short-ttl.config.ts'

/** Holds a unit, leaves a mark in the store, and reports the error of the first call that fails. */
const CALLER = `
  export default {
    async fetch(_, { LIMITS }) {
      const report = []
      try {
        using units = await LIMITS.acquire('jobs', { account: '42' })
        report.push(await units.allowed)
        await LIMITS.limit('marks', { account: '42' })
        for (;;) {
          await LIMITS.peek('jobs', { account: '42' })
          await new Promise(resolve => setTimeout(resolve, 20))
        }
      } catch (error) {
        report.push(error instanceof Error, error.suppressed === undefined)
      }
      return Response.json(report)
    },
  }`

const registry = mkdtempSync(join(tmpdir(), 'sluice-registry-'))
const workers: Miniflare[] = []
let store: TestStore

beforeAll(async () => {
  store = await startTestStore()
})
afterAll(async () => {
  for (const worker of workers) await worker.dispose()
  await store.close()
  rmSync(registry, { recursive: true, force: true })
})

function start(worker: Record<string, unknown>): Miniflare {
  const options = {
    ...{ cf: false, log: new Log(LogLevel.NONE), handleStructuredLogs: () => {} },
    unsafeDevRegistryPath: registry,
    workers: [{ modules: true, compatibilityDate: '2026-10-01', ...worker }],
  }
  const miniflare = new Miniflare(
    convertV4MiniflareOptions(options as unknown as Parameters<typeof convertV4MiniflareOptions>[0]),
  )
  workers.push(miniflare)
  return miniflare
}

it('a Worker whose limits die gets an error, and its units are free after the ttl', async () => {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL('../worker/rpc/short-ttl.ts', import.meta.url))],
    ...{ bundle: true, write: false, format: 'esm', target: 'es2024', external: ['cloudflare:*'] },
    conditions: ['workerd', 'worker', 'browser'],
  })
  const socket = { host: '127.0.0.1', port: 0 }
  const limits = start({
    ...{ name: 'limits', script: outputFiles[0]!.text, bindings: store.env },
    unsafeDirectSockets: [{ ...socket, entrypoint: 'Limits' }, socket],
  })
  await limits.ready
  const caller = start({
    ...{ name: 'caller', script: CALLER },
    serviceBindings: { LIMITS: { name: 'limits', entrypoint: 'Limits' } },
  })
  const url = await caller.ready
  const limiter = createLimiter(config, { env: store.env })
  const remaining = async (name: string) => (await limiter.peek(name, { account: '42' })).rules[0]!.remaining

  const report = fetch(url).then(reply => reply.json())
  await vi.waitFor(async () => expect(await remaining('marks')).toBe(9), PATIENT)
  expect(await remaining('jobs')).toBe(0)
  await limits.dispose()
  expect(await report).toEqual([true, true, true])
  await vi.waitFor(async () => expect(await remaining('jobs')).toBe(1), PATIENT)
})
