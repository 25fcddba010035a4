/** What the processes of `sluicegate serve` say to each other. */
import type { Writable } from 'node:stream'
import type { AgedNews, CallerNews } from '../../credentials/caller-memory.ts'
import type { JsonOutput } from './json-output.ts'

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
  | CallerMessage

/** What the store has answered about a caller. The primary process passes it on to the other workers. */
export interface CallerMessage {
  type: 'caller'
  news: CallerNews
}

export type ToWorker =
  /** @param isFinal no other process takes over */
  | { type: 'stop'; isFinal: boolean }
  | CallerMessage
  /** The first message to a worker: what the others have sent so far. */
  | { type: 'callers'; heard: AgedNews[] }

/** Writes a log line, in the form of those of the gateway. */
export type ProcessLog = (
  level: 'info' | 'warn' | 'error',
  event: string,
  fields: Readonly<Record<string, unknown>>,
) => void

export const createProcessLog =
  ({ writeLine }: Pick<JsonOutput, 'writeLine'>): ProcessLog =>
  (level, event, fields) =>
    writeLine(JSON.stringify({ level, event, ...fields }))

/** The bytes of the log that wait for its reader at most. */
export const MAX_WAITING_LOG = 1e6

/**
 * Lets this process go on when its log cannot be written: its reader has ended, or the disk is full. Other commands end then. If the
 * reader does not read, lines are dropped, because they would take more and more memory.
 */
export function surviveWithoutLog(stdout: Writable = process.stdout): void {
  stdout.removeAllListeners('error')
  stdout.on('error', () => {})
  const write = stdout.write.bind(stdout) as (...args: unknown[]) => boolean
  stdout.write = (...args: unknown[]) => stdout.writableLength < MAX_WAITING_LOG && write(...args)
}
