/** The messages to the process that runs the Worker, and those that it sends. */

export interface WorkerSettings {
  host: string
  port: number
  /** Bindings of the Worker: secrets and variables. */
  bindings: Record<string, string>
  /** Build again and reload when a source file changes. */
  watch: boolean
  /** The file to take the place of sluice.config.ts (tests). */
  configFile?: string
  /** Bundle without names and spaces, as for a deployment; error messages then name no function (benchmarks). */
  minify?: boolean
  /** Without what stands in for Cloudflare's edge, which costs CPU that a deployment does not pay (benchmarks). */
  isBare?: boolean
  /** Serve the inspector of V8, on any free port (tests: what the heap holds). */
  inspect?: boolean
}

/** Which API keys the Worker takes. */
export interface KeySettings {
  environment: string | undefined
  keyPrefix: string
  /** That of a key whose plan is not said. */
  plan: string
}

export type WorkerMessage =
  | { type: 'ready'; url: string; inspectorUrl?: string }
  /** @param warnings about the config, a line each */
  | { type: 'reloaded'; keys: KeySettings; warnings: readonly string[] }
  /** The sources or the config cannot be used; the Worker goes on as it was. */
  | { type: 'rejected'; message: string }
  /** The Worker was stopped by a change that does not start; it comes back with the next one that does. */
  | { type: 'stopped'; message: string }
  /** The Worker cannot be started. */
  | { type: 'failed'; message: string }
  /** A line the Worker logged. */
  | { type: 'log'; level: string; message: string }
