/** How the Worker is bundled here: as wrangler does it for a deployment, but for any config file. */
import type { BuildOptions, Plugin } from 'esbuild'
import type { Config } from '../config/compile.ts'
import { workerModule } from './build-worker.ts'
import { devVarsFile } from './dev-vars.ts'
import { type Project, projectWith } from './project.ts'

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
    entryPoints: ['src/index.ts'],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['node:*', 'cloudflare:*'],
    logLevel: 'silent',
    plugins: [useConfigFile(configFile, project), useBuiltModule(configFile, readConfig, project)],
  }
}

function useConfigFile(configFile: string, project: Project): Plugin {
  return {
    name: 'config-file',
    setup(build) {
      build.onResolve({ filter: /\/sluice\.config\.m?[jt]s$/ }, () => ({
        path: configFile,
        watchFiles: [devVarsFile(project)],
      }))
    },
  }
}

/** Replaces the file that `npx sluicegate build` writes with a module made from the current config, so that no file is written. */
function useBuiltModule(
  configFile: string,
  readConfig: () => Promise<Config>,
  { packageName }: Project,
): Plugin {
  return {
    name: 'built-module',
    setup(build) {
      build.onLoad({ filter: /[\\/]src[\\/]built[\\/]worker\.generated\.ts$/ }, async () => ({
        // The build reads the config once more and reports its mistakes; this module then never runs.
        contents: await readConfig().then(
          config => workerModule(config, { packageName }),
          () => 'export default undefined',
        ),
        loader: 'ts',
        watchFiles: [configFile],
      }))
    },
  }
}
