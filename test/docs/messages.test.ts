/** Every message in one file, messages.snapshot.md, so that they can be read side by side. */
import { globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { expect, it, vi } from 'vitest'
import { programFor } from '../../src/node/cli/run.ts'
import { runInProcess } from '../support/command-line.ts'
import { messagesIn } from '../support/messages.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** The sections of the page. A file belongs to the first section that lists the beginning of its path. */
const PLACES: readonly [title: string, ...beginnings: string[]][] = [
  ['Command line: errors, confirmations and output', 'src/node/cli/', 'src/ops/'],
  ['Config: mistakes and warnings', 'src/config/', 'src/algorithms/'],
  ['`npm start`, the bridge and files', 'src/node/'],
  ['Replies of the gateway (problem+json) and log lines', 'src/set-ups/http/', 'src/set-ups/gateway/'],
  ['Errors in code: limits by name, guard, middleware, RPC, store, script', 'src/'],
]

/** Files with texts for programs (generated Lua and TypeScript, names of counters, keys of maps), files that only pass messages on, and the notation of replies, whose texts are in docs/openapi.json. */
const NOT_FOR_PEOPLE =
  /\.generated\.ts$|script\/(?:rule-set|loop|script|state|sync|signal)-text\.ts$|loop-rules\.ts$|bundle-lua\.ts$|build-worker\.ts$|start\/edge\.ts$|metrics\/counters\.ts$|answers\/known\.ts$|metrics\/log\.ts$|http\/problem\.ts$|api\/operations\/|credentials\/caller-memory\.ts$/

/** The output of `--help` in a terminal of 100 columns. */
function helpOf(command: Command): string {
  let text = ''
  command.configureOutput({ getOutHelpWidth: () => 100, writeOut: part => (text += part) }).outputHelp()
  return text.trimEnd()
}

function commandsOf(command: Command): Command[] {
  return [command, ...command.commands.flatMap(commandsOf)]
}

/** Wrong calls, one for each form of a usage error. The parser of the command line, which is a library, finds these mistakes. */
const WRONG_CALLS = [
  'keis',
  'keys lits',
  'switch kil on',
  'help chekc',
  'keys list --jsn',
  'keys create',
  'keys create --consmer acme',
  'keys create --consumer',
  'keys expire acme/0f3a',
  'check a.ts b.ts',
  'start --port http',
  'switch kill maybe',
  'stats --by rout',
  'consumers override acme minute --limit 9 --for 1h --until 2030-01-01',
]

async function usageErrors(): Promise<string> {
  const shown: string[] = []
  for (const call of WRONG_CALLS)
    shown.push(`$ npx sluicegate ${call}\n${(await runInProcess(call.split(' '))).stderr}`)
  return shown.join('')
}

/** The summaries and descriptions in an OpenAPI document, each once. */
function textsIn(document: unknown): string[] {
  const texts = new Set<string>()
  JSON.stringify(document, (name, value) => {
    if (/^(?:summary|description)$/.test(name) && typeof value === 'string') texts.add(value)
    return value
  })
  return [...texts]
}

const fenced = (text: string) => `\`\`\`text\n${text}\n\`\`\``

const oneLine = (text: string) => text.replaceAll('\n', '⏎')

const LEGEND = `\`$\{…}\` stands for a value, \`{a|b}\` for a choice between texts, and \`⏎\` for a line break. \`[…]\` is the code, kind or
place of an error, the status and title of a reply, the level of a log line, or the name of an option or a metric.`

async function page(): Promise<string> {
  const helps = commandsOf(await programFor([])).map(helpOf)
  const inHelp = helps.join('\n').replaceAll(/\s+/g, ' ')
  const files = globSync('src/**/*.ts', { cwd: ROOT })
    .sort()
    .filter(file => !NOT_FOR_PEOPLE.test(file))
  const sections = new Map(PLACES.map(([title]) => [title, [] as string[]]))
  for (const file of files) {
    const messages = messagesIn(readFileSync(ROOT + file, 'utf8'), file)
      .filter(
        ({ text }) =>
          !(file.startsWith('src/node/cli/') && inHelp.includes(text.trim().replaceAll(/\s+/g, ' '))),
      )
      .map(({ code, text }) => (code ? `[${code}] ` : '') + oneLine(text))
    const [title] = PLACES.find(([, ...beginnings]) => beginnings.some(begin => file.startsWith(begin)))!
    if (messages.length > 0) sections.get(title)!.push(`### ${file}\n\n${fenced(messages.join('\n'))}`)
  }
  return [
    '# All messages',
    'Generated from the code by test/docs/messages.test.ts, which fails when a message is added, removed or changed.',
    'To write it again: `npx vitest run --project node test/docs/messages.test.ts -u`',
    LEGEND,
    '## Command line: help',
    ...helps.map(fenced),
    '## Command line: usage errors',
    fenced((await usageErrors()).trimEnd()),
    ...[...sections].flatMap(([title, files]) => [`## ${title}`, ...files]),
    '## The OpenAPI document of the API',
    fenced(textsIn(JSON.parse(readFileSync(`${ROOT}docs/openapi.json`, 'utf8'))).join('\n')),
  ].join('\n\n')
}

it('messagesIn finds texts, the values in them, and the code or status before them', () => {
  const source = `
    import { x } from 'some module here'
    throw new AdminError('usage', \`There is no rule '\${name}'.\` + (isOne ? ' It is one.' : \` It is \${list()}.\`))
    log('warn', 'store-lost', { cause })
    problem({ status: 404, title: 'Not Found', detail: 'There is nothing here.' })
    redis.eval("return redis.call('GET', KEYS[1])")
  `
  expect(messagesIn(source, 'a.ts')).toEqual([
    { code: 'usage', text: `There is no rule '$\{name}'.{ It is one.| It is $\{…}.}` },
    { code: 'log warn', text: 'event store-lost, cause' },
    { code: '404 Not Found', text: 'There is nothing here.' },
  ])
})

it('the package has each page that a message names, with its section', async () => {
  const { files } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'))
  expect(files).toContain('docs/*.md')
  const named = [...(await page()).matchAll(/\bdocs\/[\w-]+\.md(?:#([\w-]+))?/g)]
  expect(named.length).toBeGreaterThan(9)
  for (const [place, section] of named) {
    const text = readFileSync(ROOT + place.replace(/#.*/, ''), 'utf8')
    const sections = [...text.matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
      title!
        .toLowerCase()
        .replaceAll(/[^\w -]/g, '')
        .replaceAll(' ', '-'),
    )
    if (section) expect(sections, place).toContain(section)
  }
})

it('every message is in the snapshot', async () => {
  vi.stubEnv('FORCE_COLOR', undefined)
  await expect(await page()).toMatchFileSnapshot('messages.snapshot.md')
})
