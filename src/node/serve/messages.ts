/** What the processes of `sluicegate serve` say to each other. */

/** Of a worker, passed in the variable SLUICE_SERVE_SETTINGS. */
export interface WorkerSettings {
  configFile: string
  host: string
  port: number
  drainMs: number
  /** From which receipts of the API get their key, if the store has no secret. */
  secret: string
}

export type FromWorker =
  | { type: 'ready'; url: string }
  /** It cannot start. */
  | { type: 'failed'; message: string }
  /** @param cut requests that were cut off */
  | { type: 'stopped'; cut: number }

export interface ToWorker {
  type: 'stop'
  /** Whether no other process takes over. */
  isFinal: boolean
}

/** Writes a log line, in the form of those of the gateway. */
export function log(
  level: 'info' | 'warn' | 'error',
  event: string,
  fields: Readonly<Record<string, unknown>>,
): void {
  process.stdout.write(`${JSON.stringify({ level, event, ...fields })}\n`)
}

/** Lets this process go on when its log cannot be written: its reader has ended, or the disk is full. Other commands end then. */
export function surviveWithoutLog(): void {
  process.stdout.removeAllListeners('error')
  process.stdout.on('error', () => {})
}
