/** Fetches issuers' keys in workerd, where a request that waits for another request's I/O never ends. */
import { readFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { compileJwt } from '../../src/config/compile-jwt.ts'
import { type KeyServer, type SigningKey, sign, signingKey, startKeyServer } from '../support/key-server.ts'

const ISSUER = 'https://issuer.example.com/'
const fileOf = (path: string) => fileURLToPath(new URL(path, import.meta.url))

let key: SigningKey
let server: KeyServer
let miniflare: Miniflare
let url: URL

beforeAll(async () => {
  key = await signingKey('ES256', 'first')
  server = await startKeyServer(key.jwk)
  const { outputFiles } = await build({
    entryPoints: [fileOf('../support/jwt-worker.ts')],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'],
  })
  const toml = readFileSync(fileOf('../../wrangler.toml'), 'utf8')
  const issuer = { jwks: server.url, algorithms: ['ES256' as const], issuer: ISSUER, audience: 'api' }
  miniflare = new Miniflare(
    convertV4MiniflareOptions({
      name: 'jwt',
      modules: true,
      script: outputFiles[0]!.text,
      compatibilityDate: /^compatibility_date\s*=\s*"([^"]+)"/m.exec(toml)![1]!,
      bindings: { ISSUER: JSON.stringify(compileJwt('auth0', issuer)) },
      cf: false,
      log: new Log(LogLevel.NONE),
    }),
  )
  url = await miniflare.ready
})

afterAll(async () => {
  await miniflare?.dispose()
  await server?.close()
})

it('each request fetches the keys itself, waits for no other request, and leaves no state when it is cancelled', async () => {
  const now = Math.floor(Date.now() / 1e3)
  const token = await sign({ iss: ISSUER, aud: 'api', sub: 'alice', exp: now + 60 }, key)
  const ask = async (init?: RequestInit) =>
    (await (await fetch(url, { method: 'POST', body: token, ...init })).json()) as { kind: string }
  const held: ServerResponse[] = []
  const PATIENT = { timeout: 30_000 }
  const answer = server.answer
  server.answer = response => held.push(response)

  const cancelled = new AbortController()
  const first = ask({ signal: cancelled.signal }).catch(error => error.name)
  await vi.waitFor(() => expect(held.length).toBe(1), PATIENT)
  cancelled.abort()
  expect(await first).toBe('AbortError')

  // The first fetch is never answered; the other two are answered once both have arrived.
  const others = [ask(), ask()]
  await vi.waitFor(() => expect(held.length).toBe(3), PATIENT)
  for (const response of held.slice(1)) answer(response)
  for (const other of others) {
    expect(await other).toMatchObject({ kind: 'verified', consumer: 'auth0~alice' })
  }

  // All requests now use the fetched keys.
  expect(await Promise.all([ask(), ask()])).toMatchObject([{ kind: 'verified' }, { kind: 'verified' }])
  expect(server.fetches).toBe(3)
})
