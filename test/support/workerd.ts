/** Runs a Worker of the tests in workerd, with the compatibility date and flags that wrangler.toml deploys with. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'

export interface TestWorker {
  url: string
  close(): Promise<void>
}

/**
 * @param entry a file, relative to this folder
 * @param compatibilityDate replaces the date of wrangler.toml. Its flags are left out then.
 */
export async function startTestWorker(
  entry: string,
  bindings: Record<string, string>,
  compatibilityDate?: string,
): Promise<TestWorker> {
  const { outputFiles } = await build({
    entryPoints: [pathOf(entry)],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'],
  })
  return await startWorkerScript(outputFiles[0]!.text, bindings, compatibilityDate)
}

/**
 * @param script a bundle: one module
 * @param onLog gets each line that the Worker logs
 */
export async function startWorkerScript(
  script: string,
  bindings: Record<string, string>,
  compatibilityDate?: string,
  onLog: (message: string) => void = () => {},
): Promise<TestWorker> {
  const toml = readFileSync(pathOf('../../wrangler.toml'), 'utf8')
  const listed = /^compatibility_flags\s*=\s*\[([^\]]*)\]/m.exec(toml)?.[1] ?? ''
  const flags = compatibilityDate === undefined ? listed : ''
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      name: 'test',
      modules: true,
      script,
      compatibilityDate: compatibilityDate ?? /^compatibility_date\s*=\s*"([^"]+)"/m.exec(toml)![1]!,
      compatibilityFlags: [...flags.matchAll(/"([^"]+)"/g)].map(([, flag]) => flag!),
      bindings,
      cf: false,
      log: new Log(LogLevel.NONE),
      handleStructuredLogs: ({ message }) => onLog(message),
    }),
  )
  const url = await miniflare.ready
  return { url: url.origin, close: () => miniflare.dispose() }
}

const pathOf = (name: string) => fileURLToPath(new URL(name, import.meta.url))
