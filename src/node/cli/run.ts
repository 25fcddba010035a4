/** What `npx sluice …` does with its arguments. Each command is a file beside this one. */
import { Command, CommanderError } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'

const FAILED = 1
const WRONG_USAGE = 2
const EXIT_CODES = `\nExit codes: 0 done; ${FAILED} it failed (the store, nothing found, refused); ${WRONG_USAGE} wrong usage.`

/** In the order in which the help shows them. */
const COMMANDS: Record<string, () => Promise<Command>> = {
  start: async () => (await import('./start.ts')).startCommand(),
  check: async () => (await import('./check.ts')).checkCommand(),
  build: async () => (await import('./build.ts')).buildCommand(),
  explain: async () => (await import('./explain.ts')).explainCommand(),
  keys: async () => (await import('./keys.ts')).keysCommand(),
  consumers: async () => (await import('./consumers.ts')).consumersCommand(),
  limits: async () => (await import('./limits.ts')).limitsCommand(),
  stats: async () => (await import('./stats.ts')).statsCommand(),
  switch: async () => (await import('./switch.ts')).switchCommand(),
  bridge: async () => (await import('./bridge.ts')).bridgeCommand(),
}

/**
 * Runs a command, in this process: it prints, and says with what code to exit.
 * @param args without the node and the file, as in `['keys', 'list']`
 */
export async function run(args: readonly string[]): Promise<number> {
  try {
    const program = await programFor(args)
    await program.parseAsync(args, { from: 'user' })
    return 0
  } catch (error) {
    return exitCodeOf(error)
  }
}

/** With the command that is named, alone: loading all others took longer than most commands do. Else with all of them. */
async function programFor([name = '']: readonly string[]): Promise<Command> {
  const named = Object.hasOwn(COMMANDS, name) ? [COMMANDS[name]!] : Object.values(COMMANDS)
  const program = new Command('sluice').description('A rate-limiting gateway for the edge.')
  for (const load of named) program.addCommand(await load())
  onEach(program, command => {
    command
      .exitOverride()
      .showHelpAfterError('(add --help for what can be given)')
      .configureOutput({ outputError: (text, write) => write(withoutValues(text)) })
      .addHelpText('after', EXIT_CODES)
  })
  return program
}

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
