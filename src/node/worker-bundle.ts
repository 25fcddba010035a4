/** How the Worker is bundled here: as wrangler does it for a deployment, but for any config file. */
import { readFileSync } from 'node:fs'
import { basename, dirname, resolve } from 'node:path'
import type { BuildOptions, Plugin } from 'esbuild'
import type { Config } from '../config/compile.ts'
import { builtFiles } from './build-worker.ts'
import { devVarsFile } from './dev-vars.ts'
import { type Project, projectWith, WORKER_ENTRY } from './project.ts'

/**
 * @param configFile replaces sluice.config.ts
 * @param readConfig reads and checks the config, and throws if it is invalid
 */
export function bundleOptions(
  configFile: string,
  readConfig: () => Promise<Config>,
  project: Project = projectWith(configFile),
): BuildOptions {
  return {
    absWorkingDir: project.root,
    entryPoints: [WORKER_ENTRY],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['node:*', 'cloudflare:*'],
    logLevel: 'silent',
    plugins: [useConfigFile(configFile, project), useBuiltModules(configFile, readConfig, project)],
  }
}

const CONFIG_NAME = /[\\/]sluice\.config\.m?[jt]s$/

function useConfigFile(configFile: string, project: Project): Plugin {
  return {
    name: 'config-file',
    setup(build) {
      const ofConfig = new Set([configFile])
      build.onResolve({ filter: /^\.{0,2}\// }, ({ path, resolveDir, importer }) => {
        const file = resolve(resolveDir, path)
        // A config, and what it imports, can import another one, also that of the project.
        if (ofConfig.has(importer)) ofConfig.add(file)
        else if (dirname(file) === project.root && CONFIG_NAME.test(file))
          return { path: configFile, watchFiles: [devVarsFile(project)] }
        return undefined
      })
    },
  }
}

/** Replaces a built module if the config has a mistake. The build reads the config once more, and reports the mistake. */
const NEVER_RUN = 'export default undefined; export const scriptsOf = undefined, Limits = undefined'

/** Replaces the files that `npx sluicegate build` writes with modules made from the current config, so that no file is written. */
function useBuiltModules(
  configFile: string,
  readConfig: () => Promise<Config>,
  { packageName }: Project,
): Plugin {
  return {
    name: 'built-modules',
    setup(build) {
      let reading: Promise<Config> | undefined
      build.onStart(() => {
        reading = undefined
      })
      build.onLoad({ filter: /[\\/]src[\\/]built[\\/]\w+\.generated\.ts$/ }, async ({ path }) => {
        // Once for all modules of a build.
        reading ??= readConfig()
        return {
          contents: await reading.then(
            config => builtFiles(config, { packageName }).get(basename(path)) ?? readFileSync(path, 'utf8'),
            () => NEVER_RUN,
          ),
          loader: 'ts',
          watchFiles: [configFile],
        }
      })
    },
  }
}
