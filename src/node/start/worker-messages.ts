/** The messages to the process that runs the Worker, and those that it sends. */

export interface WorkerSettings {
  host: string
  port: number
  /** Bindings of the Worker: secrets and variables. */
  bindings: Record<string, string>
  /** Build again and reload when a source file changes. */
  watch: boolean
  /** A file to use instead of sluice.config.ts (tests). */
  configFile?: string
  /** Bundle without names and spaces, as for a deployment; error messages then name no function (benchmarks). */
  minify?: boolean
  /** Leave out the simulation of Cloudflare's edge (edge.ts), because it uses CPU that a deployment does not use (benchmarks). */
  isBare?: boolean
  /** Serve the inspector of V8, on any free port (tests: what the heap holds). */
  inspect?: boolean
}

/** Which API keys the Worker accepts. */
export interface KeySettings {
  environment: string | undefined
  keyPrefix: string
}

export type WorkerMessage =
  | { type: 'ready'; url: string; inspectorUrl?: string }
  /** @param warnings about the config, a line each */
  | { type: 'reloaded'; keys: KeySettings; hasApi: boolean; warnings: readonly string[] }
  /** The changed sources or the changed config cannot be used. The Worker keeps running with the previous version. */
  | { type: 'rejected'; message: string }
  /** After a change, the Worker does not start. It starts again after the next change that works. */
  | { type: 'stopped'; message: string }
  /** The Workers runtime has ended unexpectedly, and serves again with a new isolate. */
  | { type: 'restarted' }
  /** The Worker cannot be started. */
  | { type: 'failed'; message: string }
  /** A line that the Worker has logged. */
  | { type: 'log'; level: string; message: string }
