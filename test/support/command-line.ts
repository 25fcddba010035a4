/** Runs the command line: in a child process, as for a user, or in this process, which takes a tenth of the time. */
import { execFile } from 'node:child_process'
import { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { format } from 'node:util'
import { vi } from 'vitest'
import { run } from '../../src/node/cli/run.ts'

export const SLUICE = fileURLToPath(new URL('../../src/node/cli/sluice.ts', import.meta.url))

export interface Result {
  code: number
  stdout: string
  stderr: string
}

type Environment = Record<string, string | undefined>

/** The environment of this process without the variables that commands read, plus `extra`. */
export function environmentWith(extra: Environment): NodeJS.ProcessEnv {
  const { UPSTASH_REDIS_REST_URL: _, UPSTASH_REDIS_REST_TOKEN: __, ...others } = process.env
  const { REDIS_URL: ___, SLUICE_ENVIRONMENT: ____, SLUICE_BRIDGE_TOKEN: _____, ...another } = others
  // Tests compare the output without colors, whatever the terminal of the test runner can show.
  const { FORCE_COLOR: ______, NO_COLOR: _______, ...more } = another
  const { SLUICE_API_URL: ________, SLUICE_API_TOKEN: _________, ...rest } = more
  return { ...rest, NODE_NO_WARNINGS: '1', ...extra }
}

/** @param input standard input, which is not a terminal */
export function runProcess(args: string[], env: Environment = {}, input = '', cwd?: string): Promise<Result> {
  return new Promise(resolve => {
    const child = execFile(
      process.execPath,
      [SLUICE, ...args],
      { env: environmentWith(env), cwd },
      (error, stdout, stderr) => {
        resolve({ code: error ? Number(error.code) : 0, stdout, stderr })
      },
    )
    child.stdin!.end(input)
  })
}

/**
 * Runs a command in this process, one at a time. Not for commands that listen to signals, nor for messages of Node itself.
 * @param input standard input, which is not a terminal
 */
export async function runInProcess(args: string[], env: Environment = {}, input = ''): Promise<Result> {
  const written = { stdout: '', stderr: '' }
  const before = { ...process.env }
  const spies = [
    vi.spyOn(console, 'log').mockImplementation((...all) => {
      written.stdout += `${format(...all)}\n`
    }),
    vi.spyOn(console, 'error').mockImplementation((...all) => {
      written.stderr += `${format(...all)}\n`
    }),
    ...(['stdout', 'stderr'] as const).map(name =>
      vi.spyOn(process[name], 'write').mockImplementation(text => {
        written[name] += String(text)
        return true
      }),
    ),
    vi.spyOn(process, 'stdin', 'get').mockReturnValue(Readable.from([input]) as typeof process.stdin),
  ]
  try {
    setEnvironment(environmentWith(env))
    return { code: await run(args), ...written }
  } finally {
    setEnvironment(before)
    for (const spy of spies) spy.mockRestore()
  }
}

/** Changes process.env in place, because modules may hold a reference to it. */
function setEnvironment(wanted: Environment): void {
  for (const name of Object.keys(process.env)) if (wanted[name] === undefined) delete process.env[name]
  for (const [name, value] of Object.entries(wanted)) if (value !== undefined) process.env[name] = value
}
