#!/usr/bin/env node
/** The command line: `npx sluicegate …`. */
import { run } from './run.ts'

const FAILED = 1

// While a config is loaded, process.exit throws.
const { exit } = process
/** Undefined while the command runs. */
let exitCode: number | undefined

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // A reader such as `head` closes the pipe when it has read enough.
  if (error.code === 'EPIPE') {
    exitCode ??= 0
    exit()
  }
  exitCode = FAILED
  console.error(
    `Standard output cannot be written: ${error.message}. If this was a change, it may have been made: check before you repeat it.`,
  )
  exit(FAILED)
})

// A config is code, and can end the process at any time.
process.on('exit', code => {
  if (exitCode === undefined && code === 0)
    console.error('The process ended before the command did its work.')
  if (code === 0) process.exitCode = exitCode ?? FAILED
})

// Not awaited: if the terminal is closed while a command waits for a confirmation, the promise never settles.
run(process.argv.slice(2)).then(code => {
  exitCode = code
  if (code !== 0) process.exitCode = code
})
