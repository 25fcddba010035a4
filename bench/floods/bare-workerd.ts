/**
 * Starts the Worker of any checkout of the repository in workerd alone. Miniflare, which runs it in `npm start` and in the other floods,
 * has a Worker of its own in front, which takes more CPU than a request that Sluice refuses.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { pathToFileURL } from 'node:url'
import { type BuildOptions, build } from 'esbuild'
import type { Guardian } from '../../src/node/start/guardian.ts'
import { CONFIG_FILE, type FloodedWorker } from './worker.ts'

/** @param tree folder of the checkout, with its node_modules */
export async function startBareWorkerd(
  tree: string,
  {
    bindings,
    guardian,
    directory,
  }: { bindings: Record<string, string>; guardian: Guardian; directory: string },
): Promise<FloodedWorker> {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  writeFileSync(join(directory, 'worker.mjs'), await bundleOf(tree))
  writeFileSync(join(directory, 'workerd.capnp'), await configOf(tree, bindings))
  const workerd = spawn(programOf(tree), ['serve', 'workerd.capnp', '--control-fd=3'], {
    cwd: directory,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
  })
  if (workerd.pid) guardian.guard({ group: workerd.pid })
  // Until it serves: what is wrong. Then: the log of the Worker.
  let errors = ''
  workerd.stderr!.on('data', text => {
    errors = `${errors}${text}`.slice(0, 2000)
  })
  const exited = once(workerd, 'exit')
  const port = await Promise.race([
    portOf(workerd.stdio[3] as Readable),
    exited.then(([code]) =>
      Promise.reject(new Error(`workerd of ${tree} ended with code ${code}. ${errors}`)),
    ),
  ])
  return {
    url: `http://127.0.0.1:${port}`,
    workerd: workerd.pid!,
    async close() {
      workerd.kill()
      await exited
    },
  }
}

/** workerd reports `{ "event": "listen", "socket": "http", "port": 40000 }`. */
async function portOf(control: Readable): Promise<number> {
  for await (const line of createInterface({ input: control })) {
    const { event, port } = JSON.parse(line)
    if (event === 'listen') return port
  }
  throw new Error('workerd has ended without a port.')
}

function programOf(tree: string): string {
  const require = createRequire(join(tree, 'package.json'))
  return join(dirname(require.resolve('workerd/package.json')), 'bin/workerd')
}

/** The bundle of a deployment, built by the code of the checkout. */
async function bundleOf(tree: string): Promise<Uint8Array> {
  const sourceOf = (name: string) => import(pathToFileURL(join(tree, 'src', name)).href)
  const { bundleOptions } = await sourceOf('node/worker-bundle.ts')
  const { findProject } = await sourceOf('node/project.ts')
  const { checkedConfig } = await sourceOf('config/check/check.ts')
  const config = await import(CONFIG_FILE)
  const options: BuildOptions = bundleOptions(
    CONFIG_FILE,
    async () => checkedConfig(config.default),
    findProject(tree),
  )
  const { outputFiles } = await build({ ...options, minify: true, write: false })
  return outputFiles![0]!.contents
}

async function configOf(tree: string, bindings: Record<string, string>): Promise<string> {
  const { compatibilityIn } = await import(pathToFileURL(join(tree, 'src/node/wrangler-file.ts')).href)
  const { date, flags } = compatibilityIn(readFileSync(join(tree, 'wrangler.toml'), 'utf8'))
  const list = (texts: readonly string[]) => `[${texts.join(', ')}]`
  const named = Object.entries(bindings).map(
    ([name, text]) => `(name = ${JSON.stringify(name)}, text = ${JSON.stringify(text)})`,
  )
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "sluice", worker = (
      modules = [(name = "worker.mjs", esModule = embed "worker.mjs")],
      compatibilityDate = ${JSON.stringify(date)},
      compatibilityFlags = ${list(flags.map((flag: string) => JSON.stringify(flag)))},
      bindings = ${list(named)},
      globalOutbound = "network",
    )),
    (name = "network", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "sluice")],
);
`
}
