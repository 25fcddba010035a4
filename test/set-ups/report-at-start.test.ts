/** A Worker without its variables says so when it starts, before its first request. */
import { build } from 'esbuild'
import { expect, it } from 'vitest'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { findProject } from '../../src/node/project.ts'
import { bundleOptions } from '../../src/node/worker-bundle.ts'
import { startWorkerScript } from '../support/workerd.ts'

const { configFile } = findProject()
const MISSING = /^The environment has 2 mistakes:\n {2}UPSTASH_REDIS_REST_URL: is missing\. On Workers: /

async function logOf(entry: string, bindings: Record<string, string> = {}): Promise<string[]> {
  const { entryPoints: _, ...options } = bundleOptions(configFile, () => loadConfig(configFile))
  const stdin = { contents: entry, resolveDir: options.absWorkingDir!, loader: 'ts' as const }
  const { outputFiles } = await build({ ...options, stdin })
  const lines: string[] = []
  const worker = await startWorkerScript(outputFiles![0]!.text, bindings, undefined, line => lines.push(line))
  await worker.close()
  return lines
}

it.each([
  ['a gateway', "export { default } from './src/built/worker.generated.ts'"],
  [
    'a gateway without a build',
    "import { gateway } from './src/set-ups/gateway/whole-worker.ts'; import config from './sluice.config.ts'; export default gateway(config)",
  ],
  [
    'a service binding',
    "export { Limits } from './src/built/binding.generated.ts'; export default { fetch: () => new Response() }",
  ],
])('%s logs missing variables at its start', async (_, entry) => {
  expect(await logOf(entry)).toEqual([expect.stringMatching(MISSING)])
  const bindings = { UPSTASH_REDIS_REST_URL: 'https://db.upstash.io', UPSTASH_REDIS_REST_TOKEN: 't' }
  expect(await logOf(entry, bindings)).toEqual([])
})
