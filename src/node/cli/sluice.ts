#!/usr/bin/env node
/** The command line: `npx sluicegate …`. */
import { run } from './run.ts'

// A reader such as `head` closes the pipe when it has read enough.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit()
  throw error
})

// Not awaited: if the terminal is closed while a command waits for a confirmation, the promise never settles.
run(process.argv.slice(2)).then(code => {
  if (code !== 0) process.exitCode = code
})
