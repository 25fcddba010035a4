#!/usr/bin/env node
/** The command line: `npx sluice …`. Each command is a file beside this one. */
import { Command } from 'commander'
import { bridgeCommand } from './bridge.ts'
import { checkCommand } from './check.ts'
import { keysCommand } from './keys.ts'
import { startCommand } from './start.ts'

const program = new Command('sluice')
  .description('A rate-limiting gateway for the edge.')
  .showHelpAfterError('(add --help for what can be given)')
  .addCommand(startCommand())
  .addCommand(checkCommand())
  .addCommand(keysCommand())
  .addCommand(bridgeCommand())

try {
  await program.parseAsync()
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error))
  process.exitCode = 1
}
