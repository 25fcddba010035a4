/** The messages for wrong arguments: those of commander, in the words and the form of all other messages. */
import type { Command } from 'commander'
import { didYouMean, nearest } from '../../config/check/did-you-mean.ts'
import { listed } from '../../config/check/values.ts'
import { AdminError } from '../../ops/admin-error.ts'

export interface UsageContext {
  /** The command that rejects the arguments. */
  command: Command
  /** All arguments, as typed. */
  args: readonly string[]
}

/** An error of commander without its `error: `, and what is shown instead. */
type Translation = [pattern: RegExp, translate: (parts: readonly string[], context: UsageContext) => string]

const TRANSLATIONS: readonly Translation[] = [
  [
    /^option '(?:-\w, )?(--[\w-]+)[^']*' argument '(.*)' is invalid\. (.*)$/s,
    ([option, value, fix]) => `${option}: '${value}' is not valid.${advice(value!, fix!)}`,
  ],
  [
    /^command-argument value '(.*)' is invalid for argument '(.*?)'\. (.*)$/s,
    ([value, name, fix]) => `<${name}>: '${value}' is not valid.${advice(value!, fix!)}`,
  ],
  [/^missing required argument '(.*)'$/, ([name]) => `<${name}> is missing.`],
  [/^required option '(.*)' not specified$/, ([flags], context) => missingOption(flags!, context)],
  [/^option '(?:-\w, )?(--[\w-]+) (.*)' argument missing$/, ([option, value]) => `${option} needs ${value}.`],
  [
    /^option '(--[\w-]+).*' cannot be used with option '(--[\w-]+).*'$/,
    ([one, other]) => `${one} cannot be combined with ${other}. Use one of them.`,
  ],
  [
    /^too many arguments for '(.*)'\. Expected (\d+) arguments? but got (\d+)\b.*$/s,
    ([name, expected, got], context) => excessArguments(name!, Number(expected), Number(got), context),
  ],
]

/**
 * The message to show for an error of commander.
 *
 * @param text as commander prints it: `error: unknown command 'keis'`, and perhaps `(Did you mean keys?)`
 */
export function describeUsageError(text: string, context: UsageContext): string {
  const parsed = /^error: (.*?)\n*(?:\(Did you mean (.*)\?\))?\n*$/s.exec(text)
  const [, message = text, hint] = parsed ?? []
  const shown = withoutSecrets(message)
  for (const [pattern, translate] of TRANSLATIONS) {
    const [, ...parts] = pattern.exec(shown) ?? []
    if (parts.length > 0) return `${translate(parts, context)}\n`
  }
  const sentence = shown[0]!.toUpperCase() + shown.slice(1).replace(/\.?$/, '.')
  return `${sentence}${hint && shown === message ? ` Did you mean '${hint}'?` : ''}\n`
}

/** Leaves out arguments that may be keys: those of unexpected length, and those in unexpected places. */
function withoutSecrets(message: string): string {
  return message
    .replace(/( but got \d+): .*/s, '$1.')
    .replace(/(unknown (?:option|command)) '[^']{17,}'.*/s, '$1')
}

/** commander lists the choices; all other fixes are ours. */
function advice(value: string, fix: string): string {
  const [, choices] = /^Allowed choices are (.*)\.$/.exec(fix) ?? []
  if (choices === undefined) return ` ${fix}`
  const names = choices.split(', ')
  return `${didYouMean(value, names)} Use ${listed(names, 'or')}.`
}

/** commander finds a missing option before it finds that the option is misspelled. */
function missingOption(flags: string, { command, args }: UsageContext): string {
  const option = flags.split(' ')[0]!
  const isKnown = (word: string) => command.options.some(({ long }) => long === word)
  const typed = args.map(word => word.split('=')[0]!).filter(word => word.startsWith('--') && !isKnown(word))
  const misspelled = typed.find(word => nearest(word, [option]) !== undefined)
  return misspelled === undefined
    ? `${flags} is missing.`
    : `Unknown option '${misspelled}'. Did you mean '${option}'?`
}

function excessArguments(
  name: string,
  expected: number,
  got: number,
  { command: { parent, args: excess }, args }: UsageContext,
): string {
  // A command that runs if no subcommand is named gets a misspelled subcommand as an argument.
  const [word] = excess
  if (parent && word !== undefined && !args.includes(name)) return unknownCommand(word, parent)
  const count = expected === 0 ? 'no arguments' : expected === 1 ? 'one argument' : `${expected} arguments`
  return `${name} takes ${count}, not ${got}.`
}

function unknownCommand(word: string, parent: Command): string {
  const names = parent.commands.map(each => each.name())
  return word.length > 16
    ? 'Unknown command.'
    : `Unknown command '${word}'.${didYouMean(word, names) || ` Commands: ${names.join(', ')}.`}`
}

/**
 * Rejects `help chekc` and `keys help creat`, for which commander prints the general help without a word about the mistake.
 *
 * @throws AdminError
 */
export function checkHelpTopic(program: Command, args: readonly string[]): void {
  const [first, second] = args
  const parent = first === 'help' ? program : program.commands.find(each => each.name() === first)
  const topic = first === 'help' ? second : second === 'help' ? args[2] : undefined
  if (topic === undefined || !parent?.commands.length) return
  if ([...parent.commands.map(each => each.name()), 'help'].includes(topic) || topic.startsWith('-')) return
  throw new AdminError('usage', unknownCommand(topic, parent), 'Add --help to see the usage.')
}
