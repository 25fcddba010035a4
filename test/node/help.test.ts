/** The help of each command: groups, examples that work, and color only on a terminal. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { WriteStream } from 'node:tty'
import { stripVTControlCharacters } from 'node:util'
import type { Command } from 'commander'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { alertCell, table } from '../../src/node/cli/output.ts'
import { programFor } from '../../src/node/cli/run.ts'
import { environmentWith, runInProcess, SLUICE } from '../support/command-line.ts'

const helpOf = async (...command: string[]) => (await runInProcess([...command, '--help'])).stdout
const headingsOf = (help: string) => help.split('\n').filter(line => /^\S.*:$/.test(line))

describe('help', () => {
  it('groups commands by purpose', async () => {
    const headings = ['Develop and deploy:', 'Operate a running gateway:', 'Host it yourself:', 'Help:']
    expect(headingsOf(await helpOf())).toEqual(['Options:', ...headings, 'Examples:'])
  })

  it("lists a command's own options before those of the store", async () => {
    expect(headingsOf(await helpOf('consumers', 'block'))).toEqual([
      ...[
        'Arguments:',
        'Options:',
        'Options of a change:',
        'Options for the store:',
        'Options of every command:',
      ],
      'Examples:',
    ])
  })

  it('describes a command in full sentences, and in lists with a phrase', async () => {
    for (const command of leavesOf(await programFor([]))) {
      expect(command.description(), command.name()).toMatch(/^[A-Z].*[.]$/s)
      expect(command.summary(), command.name()).toMatch(/^[a-z].*[^.]$/)
      const texts = [...command.options, ...command.registeredArguments].map(({ description }) => description)
      for (const text of texts) expect(text).toMatch(/^(?!.*[.] [A-Z]).*[^.]$/)
    }
  })

  it('shows examples that each command accepts', async () => {
    const program = await programFor([])
    for (const command of leavesOf(program)) command.action(() => {})
    const all = commandsOf(program).map(command => examplesIn(fullHelpOf(command)))
    expect(all.every(examples => examples.length > 0)).toBe(true)
    for (const example of new Set(all.flat())) {
      // A program keeps the options that it has parsed, so each example needs a new one.
      const fresh = await programFor([])
      for (const command of leavesOf(fresh)) command.action(() => {})
      const words = example
        .split(' < ')[0]!
        .split(' ')
        .map(word => word.replace(/^'(.*)'$/, '$1'))
      await expect(fresh.parseAsync(words, { from: 'user' }), example).resolves.toBeDefined()
    }
  })
})

function leavesOf(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(leavesOf)
}

function commandsOf(command: Command): Command[] {
  return [command, ...command.commands.flatMap(commandsOf)]
}

function fullHelpOf(command: Command): string {
  let text = ''
  command.configureOutput({ writeOut: part => (text += part) }).outputHelp()
  return text
}

const examplesIn = (help: string) =>
  [...help.matchAll(/^ {2}npx sluicegate (.*)$/gm)].map(([, words]) => words!)

describe('a usage error', () => {
  it.each([
    [['keis'], "Unknown command 'keis'. Did you mean 'keys'?"],
    [['keys', 'lits'], "Unknown command 'lits'. Did you mean 'list'?"],
    [['keys', 'list', '--jsn'], "Unknown option '--jsn'. Did you mean '--json'?"],
    [['keys', 'list', '--slk_live_acme_0123456789'], 'Unknown option.'],
    [['keys', 'create', '--consmer', 'acme'], "Unknown option '--consmer'. Did you mean '--consumer'?"],
    [['keys', 'create'], '--consumer <name> is missing.'],
    [['keys', 'create', '--consumer'], '--consumer needs <name>.'],
    [['keys', 'expire', 'acme/0f3a'], '<when> is missing.'],
    [['check', 'a.ts', 'b.ts'], 'check takes one argument, not 2.'],
    [['keys', 'revoke', 'acme/0f3a', 'slk_live_acme_0123456789'], 'revoke takes one argument, not 2.'],
    [['switch', 'kil', 'on'], "Unknown command 'kil'. Did you mean 'kill'?"],
    // The value of an option is not taken for the command: it may be a secret.
    [['switch', '--token', 'abc', 'kil', 'on'], "Unknown command 'kil'. Did you mean 'kill'?"],
    [['switch', 'xyz', 'on'], "Unknown command 'xyz'. Commands: show, kill, rule, block, unblock, override."],
    [['switch', 'show', 'all'], 'show takes no arguments, not 1.'],
    [['help', 'chekc'], "Unknown command 'chekc'. Did you mean 'check'?"],
    [['keys', 'help', 'creat'], "Unknown command 'creat'. Did you mean 'create'?"],
    [
      ['start', '--port', 'http'],
      "--port: 'http' is not valid. Use a number from 0 to 65535; 0 takes any free port.",
    ],
    [['switch', 'kill', 'maybe'], "<state>: 'maybe' is not valid. Use on or off."],
    [['stats', '--by', 'rout'], "--by: 'rout' is not valid. Did you mean 'route'? Use route, plan or mode."],
    [
      ['consumers', 'override', 'acme', 'minute', '--limit', '9', '--for', '1h', '--until', '2030-01-01'],
      '--for cannot be combined with --until. Use one of them.',
    ],
  ])('for %j is a sentence, followed by a hint at --help', async (args, message) => {
    const { code, stderr } = await runInProcess(args)
    expect([code, stderr.trimEnd().split('\n')]).toEqual([2, [message, 'Add --help to see the usage.']])
  })

  it('does not occur if help is requested for a command that exists', async () => {
    for (const args of [['help', 'check'], ['keys', 'help', 'create'], ['help']])
      expect([args, (await runInProcess(args)).code]).toEqual([args, 0])
  })
})

it('a reader that closes the pipe early, such as head, causes no error', async () => {
  const child = spawn(process.execPath, [SLUICE, '--help'], { env: environmentWith({}) })
  child.stdout.destroy()
  let stderr = ''
  child.stderr.on('data', text => {
    stderr += text
  })
  const [code] = await once(child, 'close')
  expect([code, stderr]).toEqual([0, ''])
})

describe('color', () => {
  const stdout = process.stdout as { isTTY?: boolean; getColorDepth?: unknown }
  const before = { isTTY: stdout.isTTY, getColorDepth: stdout.getColorDepth }
  afterEach(() => Object.assign(stdout, before))
  // Node reads these variables to decide whether a stream can show colors. For example, `CI=true` means that it cannot.
  beforeEach(() => {
    for (const name of [
      'CI',
      'TF_BUILD',
      'TEAMCITY_VERSION',
      'FORCE_COLOR',
      'NO_COLOR',
      'NODE_DISABLE_COLORS',
    ])
      vi.stubEnv(name, undefined)
  })

  const check = async (env: Record<string, string>) =>
    (await runInProcess(['check'], env)).stdout.split(':')[0]
  const onTerminal = () => {
    Object.assign(stdout, { isTTY: true, getColorDepth: WriteStream.prototype.getColorDepth })
  }

  it('is used on a terminal', async () => {
    onTerminal()
    expect(await check({ TERM: 'xterm-256color' })).toBe('The config is \x1b[32mvalid\x1b[39m')
  })

  it('is not used without a terminal', async () => {
    Object.assign(stdout, { isTTY: false })
    expect(await check({ TERM: 'xterm-256color' })).toBe('The config is valid')
  })

  it('is not used with NO_COLOR', async () => {
    onTerminal()
    expect(await check({ TERM: 'xterm-256color', NO_COLOR: '1' })).toBe('The config is valid')
    expect((await runInProcess(['--help'], { NO_COLOR: '1', FORCE_COLOR: '0' })).stdout).toMatch(/^Usage: /)
  })

  it('includes bold titles in help', async () => {
    const { stdout } = await runInProcess(['--help'], { FORCE_COLOR: '1' })
    expect(stdout).toMatch(/^\x1b\[1mUsage:\x1b\[22m /)
    expect(stripVTControlCharacters(stdout)).toBe(await helpOf())
  })

  it('does not shift the columns of a table, and escape codes in a cell are replaced', () => {
    const draw = () => table(['RULE', 'DENIED', 'MODE'], [['a\x1b[31m', alertCell('3 (1 %)'), 'enforce']])
    const plain = 'RULE    DENIED   MODE\na?[31m  3 (1 %)  enforce'
    expect(draw()).toBe(plain)
    vi.stubEnv('FORCE_COLOR', '1')
    const colorsOf = draw()
    expect(colorsOf).toContain('\x1b[31m3 (1 %)\x1b[39m  enforce')
    expect(stripVTControlCharacters(colorsOf)).toBe(plain)
  })
})
