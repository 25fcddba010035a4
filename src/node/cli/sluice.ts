#!/usr/bin/env node
/** The command line: `npx sluicegate …`. */
import { run } from './run.ts'

// Not awaited: who closes the terminal at a question leaves a promise that never settles.
run(process.argv.slice(2)).then(code => {
  if (code !== 0) process.exitCode = code
})
