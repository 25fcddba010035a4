/** `npx sluicegate openapi`. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { api as apiParts } from '../../src/set-ups/api/index.ts'
import { gateway as createWholeWorker } from '../../src/set-ups/gateway/whole-worker.ts'
import { runInProcess } from '../support/command-line.ts'

const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
afterAll(() => rmSync(directory, { recursive: true }))

let files = 0

function openapiOf(config: ConfigInput) {
  files += 1
  const file = join(directory, `${files}.config.ts`)
  writeFileSync(file, `export default ${JSON.stringify(config)}\n`)
  return runInProcess(['openapi', '--config', file])
}

it('prints the document that a gateway with the config serves', async () => {
  const config: ConfigInput = { origin: 'route', api: { routes: ['openapi', 'keys', 'stats'] } }
  const { code, stdout } = await openapiOf(config)
  // Its routes have no use for the store.
  const env = { UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:1', UPSTASH_REDIS_REST_TOKEN: 'any' }
  const request = new Request('https://a.test/_sluice/v1/openapi.json')
  const reply = await createWholeWorker(config, apiParts).fetch(request, env, { waitUntil: () => {} })
  expect(code).toBe(0)
  expect(JSON.parse(stdout)).toEqual(await reply.json())
})

it('leaves out what the config does not serve', async () => {
  const { paths } = JSON.parse((await openapiOf({ origin: 'route', api: {} })).stdout)
  expect(Object.keys(paths)).toContain('/keys')
  for (const path of ['/keys/import', '/limits/{name}', '/stats', '/openapi.json'])
    expect(Object.keys(paths)).not.toContain(path)
})

it('refuses a config without the API', async () => {
  const { code, stdout, stderr } = await openapiOf({ origin: 'route' })
  expect([code, stdout]).toEqual([1, ''])
  expect(stderr).toBe('The config has no HTTP API. Add api: {} to it.\n')
})
