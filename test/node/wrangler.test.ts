/** How `wrangler dev` reads wrangler.toml and .dev.vars. */
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { unstable_getVarsForDev, unstable_readConfig } from 'wrangler'
import type { Environment } from '../../src/config/environment.ts'

let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'sluice-'))
})
afterEach(() => rmSync(directory, { recursive: true }))

it.each([
  ['this repository', '../../wrangler.toml', undefined],
  ['this repository', '../../wrangler.toml', 'staging'],
  ['the template', '../../template/wrangler.toml', undefined],
])('wrangler dev provides every variable that Sluice reads: in %s (%s --env %s)', (_, file, env) => {
  const variables: Required<Omit<Environment, 'SLUICE_ANALYTICS' | 'REDIS_URL'>> & Record<string, string> = {
    UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:8079',
    UPSTASH_REDIS_REST_TOKEN: 'a token',
    ORIGIN_URL: 'http://127.0.0.1:8788',
    SLUICE_ENVIRONMENT: 'dev',
    SLUICE_UTILIZATION_SECRET: 'a secret',
    SLUICE_KEY_SECRET: 'a1:a secret of keys',
    SLUICE_METRICS_TOKEN: 'a secret of metrics',
    // The config chooses this name.
    JWT_SECRET: 'another secret',
  }
  const configPath = join(directory, 'wrangler.toml')
  copyFileSync(fileURLToPath(new URL(file, import.meta.url)), configPath)
  const lines = Object.entries(variables).map(([name, value]) => `${name}="${value}"`)
  writeFileSync(join(directory, '.dev.vars'), lines.join('\n'))

  const { vars, secrets } = unstable_readConfig({ config: configPath, env })
  const passed = unstable_getVarsForDev(configPath, undefined, vars, env, true, secrets)
  expect(Object.fromEntries(Object.entries(passed).map(([name, { value }]) => [name, value]))).toEqual(
    variables,
  )
})
