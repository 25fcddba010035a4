#!/usr/bin/env node
/** The command line: `npx sluicegate …`. */
import { run } from './run.ts'

// Not awaited: if the terminal is closed while a command waits for a confirmation, the promise never settles.
run(process.argv.slice(2)).then(code => {
  if (code !== 0) process.exitCode = code
})
