/**
 * Lets a process of `sluicegate serve` write JSON lines only: what Node, libraries, and the hooks of a config write as text becomes one line,
 * with the event `console`. Lines that are JSON objects pass as they are. All of them go to standard output.
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
  /** Bounds lines of text as all other events. Before, the default holds. @param perSecond of the config */
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
  let log = createLog(undefined, now)

  function put(level: Level, text: string): boolean {
    const lines = text
      .split('\n')
      .map(line => line.trim())
      .filter(line => line !== '')
    if (lines.every(isJsonObject)) return lines.map(line => write(`${escapeUnsafe(line)}\n`)).every(Boolean)
    log(level, 'console', { detail: text.trimEnd() })
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
    bound(perSecond) {
      log = createLog(perSecond, now)
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

function isJsonObject(line: string): boolean {
  if (!line.startsWith('{')) return false
  try {
    JSON.parse(line)
    return true
  } catch {
    return false
  }
}

const escapeUnsafe = (line: string) =>
  line.replace(UNSAFE, character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
