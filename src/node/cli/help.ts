/** How help reads: options in groups, each command with examples, titles in bold where the terminal supports color. */
import { styleText } from 'node:util'
import { type Command, Help, type HelpConfiguration, Option } from 'commander'

/** Groups of options beside those of the command itself, in the order in which help shows them. */
export const CHANGE_OPTIONS = 'Options of a change:'
export const STORE_OPTIONS = 'Options for the store:'
const LAST_GROUPS: readonly string[] = [CHANGE_OPTIONS, STORE_OPTIONS]

/** Adds an option to a group. */
export function optionIn(group: string, command: Command, flags: string, description: string): Command {
  return command.addOption(new Option(flags, description).helpGroup(group))
}

const EXAMPLES = new WeakMap<Command, readonly string[]>()

/** Adds examples behind the options: command lines as they are typed, without `npx sluicegate`. */
export function withExamples(command: Command, ...examples: readonly string[]): Command {
  EXAMPLES.set(command, examples)
  const lines = examples.map(example => `  npx sluicegate ${example}`)
  return command.addHelpText('after', ['', 'Examples:', ...lines].join('\n'))
}

/** Adds the first example of each subcommand, if a command has subcommands and no examples of its own. */
export function withExamplesOfSubcommands(command: Command): Command {
  if (command.commands.length === 0 || EXAMPLES.has(command)) return command
  const examples = command.commands.flatMap(each => (EXAMPLES.get(each) ?? []).slice(0, 1))
  return withExamples(command, ...examples)
}

export const HELP: HelpConfiguration = {
  showGlobalOptions: true,
  visibleGlobalOptions(command) {
    const all = Help.prototype.visibleGlobalOptions.call(this, command)
    return all.filter(({ long }) => long !== '--version')
  },
  // What most commands have comes last.
  visibleOptions(command) {
    const place = ({ long }: Option) => ['--json', '--yes', '--help'].indexOf(long ?? '')
    return Help.prototype.visibleOptions.call(this, command).sort((a, b) => place(a) - place(b))
  },
  // commander quotes choices and defaults with double quotes; all other texts have single ones.
  optionDescription(option) {
    return Help.prototype.optionDescription.call(this, option).replaceAll('"', "'")
  },
  argumentDescription(argument) {
    return Help.prototype.argumentDescription.call(this, argument).replaceAll('"', "'")
  },
  // commander removes color again if the stream cannot show it.
  styleTitle(title) {
    const shown = title === 'Global Options:' ? 'Options of every command:' : title
    return styleText('bold', shown, { validateStream: false })
  },
  // By default groups come in the order in which their first options were added.
  groupItems(_, visible, groupOf) {
    const groups = [...Map.groupBy(visible, groupOf)]
    const place = ([name]: (typeof groups)[number]) => LAST_GROUPS.indexOf(name)
    return new Map(groups.sort((a, b) => place(a) - place(b)))
  },
}
