/** What `npx sluicegate …` does with its arguments. Each command is a file beside this one. */
import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import { apiUrlOf } from './arguments.ts'
import { closeAll } from './at-end.ts'
import { ExitWith } from './exit-with.ts'
import { HELP, withExamplesOfSubcommands } from './help.ts'
import { type FileLoader, loadConfig } from './load-config.ts'
import { note, wrapped } from './output.ts'
import { checkHelpTopic, describeUsageError } from './usage-errors.ts'

const FAILED = 1
const WRONG_USAGE = 2
/** Only of `stats --fail-above` and `doctor`, so only their help names it. */
const ABOVE = 3
const EXIT_CODES = `\nExit codes: 0 success, or nothing to change; ${FAILED} failure (invalid config, store error, not found, refused); ${WRONG_USAGE} wrong usage.`

const PAGES = 'Messages name pages such as docs/deploy.md: these are in node_modules/sluicegate.'

const DEVELOP = 'Develop and deploy:'
const OPERATE = 'Operate a running gateway:'
const SELF_HOST = 'Host it yourself:'

/** By name, in the order in which the help shows them: the heading of the group, and how the command is made. */
const COMMANDS: Record<string, [group: string, make: (load: FileLoader) => Promise<Command>]> = {
  init: [DEVELOP, async () => (await import('./init.ts')).initCommand()],
  start: [DEVELOP, async load => (await import('./start.ts')).startCommand(load)],
  check: [DEVELOP, async load => (await import('./check.ts')).checkCommand(load)],
  explain: [DEVELOP, async load => (await import('./explain.ts')).explainCommand(load)],
  build: [DEVELOP, async load => (await import('./build.ts')).buildCommand(load)],
  openapi: [DEVELOP, async load => (await import('./openapi.ts')).openapiCommand(load)],
  doctor: [DEVELOP, async load => (await import('./doctor.ts')).doctorCommand(load)],
  keys: [OPERATE, async load => (await import('./keys.ts')).keysCommand(load)],
  tokens: [OPERATE, async load => (await import('./tokens.ts')).tokensCommand(load)],
  consumers: [OPERATE, async load => (await import('./consumers.ts')).consumersCommand(load)],
  limits: [OPERATE, async load => (await import('./limits.ts')).limitsCommand(load)],
  switch: [OPERATE, async load => (await import('./switch.ts')).switchCommand(load)],
  stats: [OPERATE, async load => (await import('./stats.ts')).statsCommand(load)],
  top: [OPERATE, async load => (await import('./top.ts')).topCommand(load)],
  audit: [OPERATE, async load => (await import('./audit.ts')).auditCommand(load)],
  why: [OPERATE, async load => (await import('./why.ts')).whyCommand(load)],
  serve: [SELF_HOST, async () => (await import('./serve.ts')).serveCommand()],
  bridge: [SELF_HOST, async () => (await import('./bridge.ts')).bridgeCommand()],
}

/**
 * Runs a command of `npx sluicegate` in this process. It prints results and errors, and never rejects.
 * @param args the arguments after `sluicegate`, as in `['keys', 'list']`
 * @returns the exit code: 0 success, or nothing to change; 1 failure; 2 wrong usage; 3 a share above its bound, or limits that `doctor` has found
 */
export async function run(args: readonly string[]): Promise<number> {
  try {
    const program = await programFor(args)
    checkHelpTopic(program, args)
    await program.parseAsync(args, { from: 'user' })
    return 0
  } catch (error) {
    return exitCodeOf(error)
  } finally {
    await closeAll()
  }
}

/** Has only the command that is named, because loading all of them takes longer than most commands do. Without a known name, has all. */
export async function programFor(args: readonly string[]): Promise<Command> {
  const [name = ''] = args
  const named = Object.hasOwn(COMMANDS, name) ? [COMMANDS[name]!] : Object.values(COMMANDS)
  const program = new Command('sluicegate')
    .description('A rate-limiting gateway for the edge.')
    .option('--config <file>', "config file to use (default: the project's sluice.config.ts)")
    .version(versionOf(), '--version', 'print the version')
    .addHelpText('after', `\n${PAGES}`)
  const load: FileLoader = file => loadConfig(fileFrom(file, program.opts<{ config?: string }>().config))
  for (const [group, make] of named) program.addCommand((await make(load)).helpGroup(group))
  program.hook('preAction', (_, command) => useApiIfNamed(command))
  program.commandsGroup('Help:').helpCommand(true)
  onEach(program, command => {
    withExamplesOfSubcommands(command)
    command
      .exitOverride()
      .configureHelp(HELP)
      .showHelpAfterError('Add --help to see the usage.')
      .configureOutput({ outputError: (text, write) => write(describeUsageError(text, { command, args })) })
      .addHelpText('after', EXIT_CODES)
  })
  return program
}

/** With `--api`, the API of a gateway does the work of a command that uses the store. */
function useApiIfNamed(command: Command): void {
  if (!command.options.some(({ long }) => long === '--api')) return
  const url = apiUrlOf(command.opts())
  if (url === undefined) return
  command.action(async () => {
    const { runByApi } = await import('./api-commands.ts')
    await runByApi(command, url)
  })
}

function versionOf(): string {
  return JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')).version
}

/** `check` and `build` take the file as an argument too. */
function fileFrom(argument: string | undefined, option: string | undefined): string | undefined {
  if (argument === undefined || option === undefined) return argument ?? option
  throw new AdminError('usage', 'The config file is given twice. Use either the argument or --config.')
}

function exitCodeOf(error: unknown): number {
  if (error instanceof ExitWith) return error.code
  // Commander has already printed the error or the help. Its exit code is 0 for --help and --version.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : WRONG_USAGE
  if (!(error instanceof AdminError)) {
    console.error(wrapped(error instanceof Error ? error.message : String(error), process.stderr))
    return FAILED
  }
  note(error.message)
  if (error.nextStep) note(error.nextStep)
  return error.kind === 'usage' ? WRONG_USAGE : error.kind === 'above' ? ABOVE : FAILED
}

function onEach(command: Command, change: (command: Command) => void): void {
  for (const each of command.commands) onEach(each, change)
  change(command)
}
