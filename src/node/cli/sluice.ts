#!/usr/bin/env node
/** The command line: `npx sluice …`. Each command is a file beside this one. */
import { Command, CommanderError } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import { bridgeCommand } from './bridge.ts'
import { buildCommand } from './build.ts'
import { checkCommand } from './check.ts'
import { consumersCommand } from './consumers.ts'
import { explainCommand } from './explain.ts'
import { keysCommand } from './keys.ts'
import { limitsCommand } from './limits.ts'
import { startCommand } from './start.ts'
import { statsCommand } from './stats.ts'
import { switchCommand } from './switch.ts'

const FAILED = 1
const WRONG_USAGE = 2
const EXIT_CODES = `\nExit codes: 0 done; ${FAILED} it failed (the store, nothing found, refused); ${WRONG_USAGE} wrong usage.`

const program = new Command('sluice')
  .description('A rate-limiting gateway for the edge.')
  .addCommand(startCommand())
  .addCommand(checkCommand())
  .addCommand(buildCommand())
  .addCommand(explainCommand())
  .addCommand(keysCommand())
  .addCommand(consumersCommand())
  .addCommand(limitsCommand())
  .addCommand(statsCommand())
  .addCommand(switchCommand())
  .addCommand(bridgeCommand())

onEach(program, command => {
  command
    .exitOverride()
    .showHelpAfterError('(add --help for what can be given)')
    .configureOutput({ outputError: (text, write) => write(withoutValues(text)) })
    .addHelpText('after', EXIT_CODES)
})

// Not awaited: who closes the terminal at a question leaves a promise that never settles.
program.parseAsync().catch(error => {
  process.exitCode = exitCodeOf(error)
})

function exitCodeOf(error: unknown): number {
  // It has said so already, and help was perhaps asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : WRONG_USAGE
  console.error(error instanceof Error ? error.message : String(error))
  return error instanceof AdminError && error.kind === 'usage' ? WRONG_USAGE : FAILED
}

/** What was given by mistake, or in the wrong place, may be a key. */
function withoutValues(text: string): string {
  return text
    .replace(/( but got \d+): .*/s, '$1.\n')
    .replace(/(unknown (?:option|command)) '[^']{17,}'.*/s, '$1.\n')
}

function onEach(command: Command, change: (command: Command) => void): void {
  change(command)
  for (const each of command.commands) onEach(each, change)
}
