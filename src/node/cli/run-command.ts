/** Runs a command of the user as a child process, and becomes it as far as its caller can see: its signals and its exit code. */
import { spawn } from 'node:child_process'
import { constants } from 'node:os'

/** Those that a shell, a terminal or an init system sends. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const

/** What shells return for a command that cannot be executed, or does not exist. */
const NOT_EXECUTABLE = 126
const NOT_FOUND = 127

export interface CommandEnd {
  /** Of a command that a signal has ended: 128 and the number of the signal. */
  code: number
  /** Set if the command was not started. */
  error?: string
}

/** Runs a command without a shell, on the terminal and the streams of this process. */
export function runCommand([file = '', ...args]: readonly string[]): Promise<CommandEnd> {
  const child = spawn(file, args, { stdio: 'inherit' })
  const passOn = (signal: NodeJS.Signals) => {
    // A terminal sends these to the command as well, which may take a second one as an order to hurry.
    const isOfTerminal = process.stdin.isTTY && (signal === 'SIGINT' || signal === 'SIGQUIT')
    if (!isOfTerminal) child.kill(signal)
  }
  for (const signal of SIGNALS) process.on(signal, passOn)
  return new Promise<CommandEnd>(resolve => {
    child.once('error', (error: NodeJS.ErrnoException) => {
      const code = error.code === 'ENOENT' ? NOT_FOUND : NOT_EXECUTABLE
      if (child.pid === undefined) resolve({ code, error: error.code ?? error.message })
    })
    child.once('close', (code, signal) => resolve({ code: code ?? 128 + constants.signals[signal!] }))
  }).finally(() => {
    for (const signal of SIGNALS) process.off(signal, passOn)
  })
}
