/** How the Worker is bundled here: as wrangler does it for a deployment, but for any config file. */
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { BuildOptions, Plugin } from 'esbuild'
import type { Config } from '../config/compile.ts'
import { workerModule } from './build-worker.ts'

export const ROOT = fileURLToPath(new URL('../../', import.meta.url))
export const CONFIG_FILE = resolve(ROOT, 'sluice.config.ts')

/**
 * @param configFile in the place of sluice.config.ts
 * @param readConfig checks it, and throws when it is wrong
 */
export function bundleOptions(configFile: string, readConfig: () => Promise<Config>): BuildOptions {
  return {
    absWorkingDir: ROOT,
    entryPoints: ['src/index.ts'],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['node:*', 'cloudflare:*'],
    logLevel: 'silent',
    plugins: [useConfigFile(configFile), useBuiltModule(configFile, readConfig)],
  }
}

function useConfigFile(configFile: string): Plugin {
  return {
    name: 'config-file',
    setup(build) {
      build.onResolve({ filter: /\/sluice\.config\.ts$/ }, () => ({ path: configFile }))
    },
  }
}

/** What `npx sluice build` writes for a deployment, from the config as it is now, without writing it. */
function useBuiltModule(configFile: string, readConfig: () => Promise<Config>): Plugin {
  return {
    name: 'built-module',
    setup(build) {
      build.onLoad({ filter: /[\\/]src[\\/]built[\\/]worker\.generated\.ts$/ }, async () => ({
        // Whoever builds reads the config once more, and says what is wrong with it; then nothing of this is run.
        contents: await readConfig().then(workerModule, () => 'export let algorithms, parts'),
        loader: 'ts',
        watchFiles: [configFile],
      }))
    },
  }
}
