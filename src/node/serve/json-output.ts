/**
 * Lets a process of `sluicegate serve` write JSON lines only: what Node, libraries, and the hooks of a config write becomes one line, with
 * the event `console`. All of them go to standard output. JSON is wrapped, too: a hook may write what a caller has sent, and no reader of
 * the log could tell a line of the caller from one of ours. Only `writeLine` writes ours.
 *
 * Node itself, and other programs that a hook starts, write past it. The primary process reads the standard error of its workers
 * (supervisor.ts), so only its own end, such as without memory, is text.
 */
import { Console } from 'node:console'
import type { Writable } from 'node:stream'
import { SYSTEM_CLOCK } from '../../clock.ts'
import { createLog, type Log } from '../../log.ts'

type Level = Parameters<Log>[0]

export interface JsonOutput {
  /** Writes a line of ours. @param line JSON */
  writeLine(line: string): void
  /** Bounds the lines of others as all other events. Before, the default holds. @param perSecond of the config */
  bound(perSecond: number): void
  /** Writes as before. */
  end(): void
}

/** What a terminal or a reader of lines could take for a command, or the end of a line, although JSON allows it in a text. */
const UNSAFE = /[\u007f-\u009f\u2028\u2029]/g

/** @param now ms since the epoch */
export function writeOnlyJson(
  { stdout, stderr }: { stdout: Writable; stderr: Writable } = process,
  now = SYSTEM_CLOCK.now,
): JsonOutput {
  const before = { console: globalThis.console, stdout: stdout.write, stderr: stderr.write }
  const write = stdout.write.bind(stdout) as (text: string) => boolean
  const writeLine = (line: string) => void write(`${escapeUnsafe(line)}\n`)
  const logWith = (perSecond?: number) => createLog(perSecond, now, (_, line) => writeLine(line))
  let log = logWith()

  function put(level: Level, text: string): boolean {
    const detail = text.trimEnd()
    if (detail !== '') log(level, 'console', { detail })
    return true
  }

  const sink = (level: Level) => ({ write: (text: string) => put(level, text) }) as unknown as Writable
  const consoleFor = (stdout: Level, stderr: Level) =>
    new Console({ stdout: sink(stdout), stderr: sink(stderr), ignoreErrors: false })
  globalThis.console = Object.assign(consoleFor('info', 'warn'), {
    error: consoleFor('error', 'error').error,
  })
  stdout.write = writerTo(text => put('info', text))
  stderr.write = writerTo(text => put('warn', text))

  // One of them writes text.
  const listeners = process.listeners('warning')
  process.removeAllListeners('warning')
  const onWarning = ({ name, message }: Error) => {
    if (name !== 'ExperimentalWarning') log('warn', 'warning', { detail: `${name}: ${message}` })
  }
  process.on('warning', onWarning)

  return {
    writeLine,
    bound(perSecond) {
      log = logWith(perSecond)
    },
    end() {
      globalThis.console = before.console
      stdout.write = before.stdout
      stderr.write = before.stderr
      process.off('warning', onWarning)
      for (const listener of listeners) process.on('warning', listener)
    },
  }
}

/** As the method `write` of a stream, for one line of text. */
function writerTo(put: (text: string) => boolean): Writable['write'] {
  return (chunk: string | Uint8Array, ...rest: unknown[]) => {
    const done = rest.find(each => typeof each === 'function')
    if (done) process.nextTick(done as () => void)
    return put(typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString())
  }
}

const escapeUnsafe = (line: string) =>
  line.replace(UNSAFE, character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
