/**
 * The commands of README.md, docs/*.md and the other pages work as written, with the config that comes with the project or the config on
 * the page. The commands of README.md also work with the config that `init` writes.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type Result, runInProcess } from '../support/command-line.ts'
import { ALL_PAGES } from '../support/pages.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { storeCounts } from '../support/stored-counts.ts'

const ROOT = new URL('../../', import.meta.url)
const SHIPPED = fileURLToPath(new URL('sluice.config.ts', ROOT))
/** What `npx sluicegate init` and `npm create sluicegate` write. */
const TEMPLATE = readFileSync(new URL('template/sluice.config.ts', ROOT), 'utf8')
const DEFINE = fileURLToPath(new URL('src/config/define.ts', ROOT))
const FENCE = /^```(\w+)\n(.*?)^```$/gms

interface Command {
  text: string
  /** What the page says behind it. */
  comment: string
}

interface Block {
  commands: readonly Command[]
  /** The config that the page has shown before; undefined: the shipped one. */
  config: string | undefined
}

const snippetsOf = (page: string) => [...page.matchAll(FENCE)].map(([, , text]) => text!)

/** The shipped config with another rule, which the page shows. */
const withRule = (rule: string) =>
  `import shipped from ${JSON.stringify(SHIPPED)}\nexport default { rules: [...shipped.rules!, ${rule}] }\n`

/** @returns the shipped config with the rule that a snippet shows and the commands name; undefined: they name none */
function configWithRuleOf(snippets: readonly string[], commands: string): string | undefined {
  const rule = snippets.findLast(each => each.startsWith("{ name: '"))
  const name = /^\{ name: '([\w-]+)'/.exec(rule ?? '')?.[1]
  return name !== undefined && commands.includes(name) ? withRule(rule!) : undefined
}

/** The blocks of shell on a page: the commands that a user pastes, and the comment behind each. */
const blocksOf = (page: string) =>
  [...page.matchAll(FENCE)].flatMap(([, language, text], i, all): Block[] => {
    const commands = text!.split('\n').flatMap((line): Command[] => {
      const pasted =
        language === 'console' ? /^\$ (.*)$/.exec(line)?.[1] : language === 'sh' ? line : undefined
      if (!pasted?.includes('npx sluicegate')) return []
      const [command, comment = ''] = pasted.split(/\s+# /)
      return [{ text: command!.trim(), comment: comment.trim() }]
    })
    if (commands.length === 0) return []
    const isOfLimits = commands.some(command => /zendesk|messages/.test(command.text))
    const before = all.slice(0, i).map(([, , text]) => text!)
    if (isOfLimits) return [{ commands, config: before.findLast(each => each.includes('limits: {')) }]
    return [{ commands, config: configWithRuleOf(before, commands.map(({ text }) => text).join('\n')) }]
  })

/** The commands in sentences, such as `npx sluicegate check --json`: the text after `npx sluicegate`. */
const mentionedIn = (page: string) => [
  ...new Set([...page.replaceAll(FENCE, '').matchAll(/`npx sluicegate ([^`]+)`/g)].map(([, text]) => text!)),
]

interface Page {
  path: string
  text: string
  blocks: readonly Block[]
  mentioned: readonly string[]
}

const pages: readonly Page[] = ALL_PAGES.flatMap(path => {
  const text = readFileSync(new URL(path, ROOT), 'utf8')
  return [{ path, text, blocks: blocksOf(text), mentioned: mentionedIn(text) }]
})

/** Commands that run until they are stopped; test/node/cli.test.ts and test/e2e/serve.test.ts start them. */
const SERVING = ['bridge', 'serve', 'start']

let redis: TestRedis
let bridge: Bridge
let directory: string
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'sl-'))
  redis = await startRedis()
  bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
  rmSync(directory, { recursive: true, force: true })
})

/** The arguments as a shell splits them: words, and quoted text. */
const wordsOf = (text: string) =>
  [...text.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => quoted ?? word!)

const runOnce = (args: readonly string[], input = '', url = bridge.url): Promise<Result> =>
  runInProcess([...args], { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: 't' }, input)

/** Destructive commands ask for a confirmation (docs/operations.md), but there is no terminal here. */
const ASKS = expect.stringContaining('Add --yes')
const isAsking = ({ stderr }: Result) => stderr.includes('Add --yes')

async function run(args: readonly string[], input = ''): Promise<Result> {
  const result = await runOnce(args, input)
  return isAsking(result) ? await runOnce([...args, '--yes'], input) : result
}

/** The error of a command that has failed. The Redis of this test has no persistence: a limit, which doctor tells by its exit code. */
const failureOf = ([name]: readonly string[], { code, stderr }: Result) =>
  code === 0 || (name === 'doctor' && code === 3) ? '' : `${code} ${stderr}`

/** Fills in the values that the pages leave open: the id of a key or of a token, and a consumer. */
async function filledIn(words: readonly string[]): Promise<string[]> {
  const keys = JSON.parse((await run(['keys', 'list', '--json'])).stdout)
  const values: Record<string, string> = {
    'acme/3f1c…': keys[0]?.id,
    '<id>': words[0] === 'tokens' ? await idOfNewToken() : keys[0]?.id,
    '<consumer>': 'acme',
    // The load of doctor.
    '60s': '1s',
  }
  return words.map(word => values[word] ?? word)
}

async function idOfNewToken(): Promise<string> {
  const args = ['tokens', 'create', '--name', 'test', '--scopes', 'stats:read', '--json']
  return JSON.parse((await run(args)).stdout).id
}

type Effect = (result: Result, option: readonly string[]) => unknown

const prints =
  (...texts: readonly RegExp[]): Effect =>
  ({ stdout }) => {
    for (const text of texts) expect(stdout).toMatch(text)
  }
const keysOf = async () => JSON.parse((await run(['keys', 'list', '--json'])).stdout)

/** What the pages say behind a command, and a check that it is so. */
const EFFECTS: readonly (readonly [comment: string, Effect])[] = [
  ['prints the key, only this once', prints(/\bslk_acme_\w+/)],
  ['shows KEY once', prints(/\bslk_acme_\w+/)],
  ['prints a new key, the old one works for another 24 hours', prints(/\bslk_acme_\w+/)],
  ['a new key; the leaked one ends in an hour', prints(/\bslk_acme_\w+/)],
  ['a key that was made elsewhere', async () => expect(JSON.stringify(await keysOf())).toContain('acme')],
  ['plan, block, keys, overrides', prints(/plan 'free'/, /^KEY /m, /overrides/)],
  ['what is left', prints(/^consumer-minute .*\b(119|120|1000)\b/m)],
  [
    'counts, does not refuse',
    async () => expect((await run(['switch'])).stdout).toMatch(/^consumer-minute +shadow/m),
  ],
  ['as in the config', async () => expect((await run(['switch'])).stdout).not.toMatch(/^consumer-minute/m)],
  ['a stable quarter', async () => expect((await run(['switch'])).stdout).toContain('enforce for 25 %')],
  ['5 % of the callers', async () => expect((await run(['switch'])).stdout).toContain('enforce for 5 %')],
  ['no limit counts', async () => expect((await run(['switch'])).stdout).toMatch(/^The kill switch is ON/i)],
  ["or an address, a key's id, account=42", prints(/^acme (is|may be) .*; plan \w+; /)],
  ['is it this customer, or everyone?', prints(/The last 5 minutes/)],
  ['whom it would refuse', prints(/would have refused a request/)],
  [
    'not for rules by address',
    async (_, option) => {
      const args = ['consumers', 'override', 'acme', 'address-minute', '--limit', '1000', ...option]
      const { code, stderr } = await run(args)
      expect([code, stderr]).toEqual([1, expect.stringContaining('address')])
    },
  ],
  ['which rules apply', prints(/consumer-minute/, /address-minute/)],
  [
    'what does not answer, how to test it, and what cannot be known',
    async (_, option) => {
      const { code, stderr } = await runOnce(['why', 'acme', ...option], '', 'http://127.0.0.1:1')
      expect([code, stderr]).toEqual([
        1,
        expect.stringMatching(/127\.0\.0\.1:1 cannot be reached.*cannot be known.*curl /s),
      ])
    },
  ],
  [
    'needs no store',
    async (_, option) => expect((await runOnce(['check', ...option], '', 'http://127.0.0.1:1')).code).toBe(0),
  ],
]

it('the checked comments are on the pages', () => {
  const comments = pages
    .flatMap(({ blocks }) => blocks.flatMap(block => block.commands))
    .map(({ comment }) => comment)
  for (const [comment] of EFFECTS) expect(comments).toContainEqual(expect.stringContaining(comment))
})

/** Writes the config of a page to a file. The shipped config adds the settings that the page leaves out. */
function fileOf(config: string, name: string): string {
  const file = join(directory, `${name}.config.ts`)
  const own = config.replace("from 'sluicegate'", `from ${JSON.stringify(DEFINE)}`)
  if (config === TEMPLATE) {
    writeFileSync(file, own)
    return file
  }
  writeFileSync(join(directory, `${name}.own.ts`), own)
  const imports = `import shipped from ${JSON.stringify(SHIPPED)}\nimport own from './${name}.own.ts'\n`
  writeFileSync(file, `${imports}export default { ...shipped, ...own }\n`)
  return file
}

it('the pages show commands of each kind', () => {
  const commands = pages.flatMap(({ blocks }) => blocks.flatMap(block => block.commands))
  const groups = commands.map(({ text }) => /sluicegate (\w+)/.exec(text)![1]!)
  const kinds =
    'tokens keys consumers limits stats top why audit switch bridge serve check explain doctor'.split(' ')
  expect(new Set(groups)).toEqual(new Set(kinds))
})

const shown = pages.filter(({ blocks }) => blocks.length > 0)

/** The page, as someone reads it who has the config of the template. */
const inProject = ({ blocks, ...page }: Page) => ({
  ...page,
  blocks: blocks.map(({ commands, config = TEMPLATE }) => ({ commands, config })),
})

describe.each([
  ...shown.map(page => ({ ...page, title: page.path })),
  ...shown.flatMap(page =>
    page.path === 'README.md' ? [{ ...inProject(page), title: 'README.md, in a project made by init' }] : [],
  ),
])('$title', ({ title, blocks }) => {
  beforeAll(async () => {
    // A store with a consumer and a key, such as the readers of a page have.
    await redis.connection.send(['FLUSHALL'])
    expect((await run(['keys', 'create', '--consumer', 'acme'])).code).toBe(0)
  })

  it.each(blocks.map(({ commands, config }, i) => [commands[0]!.text, commands, config, i] as const))(
    'the commands of a block work, beginning with: %s',
    async (_, commands, config, i) => {
      const name = `${title.replaceAll(/\W/g, '-')}-${i}`
      const option = config === undefined ? [] : ['--config', fileOf(config, name)]
      for (const { text: command, comment } of commands) {
        const [before, text] = command.split('npx sluicegate') as [string, string]
        // test/node/doctor tries gateways.
        if (SERVING.includes(wordsOf(text)[0]!) || text.includes('gateway.example.com')) continue
        const words = await filledIn(wordsOf(text))
        // Behind -- are the arguments of another command.
        const args = words.includes('--') ? [...option, ...words] : [...words, ...option]
        const input = before.includes('$OLD_KEY') ? 'key-of-before-4711' : ''
        const first = await runOnce(args, input)
        if (comment.includes('asks first')) expect([command, first.stderr]).toEqual([command, ASKS])
        const result = isAsking(first) ? await runOnce([...args, '--yes'], input) : first
        expect([command, failureOf(args, result)]).toEqual([command, ''])
        // Other options, as in: also --mode, --burst, --queue, --remove
        const named = comment.match(/--[a-z]+/g) ?? []
        const { stdout: help } = named.length > 0 ? await runOnce([...args, '--help']) : { stdout: '' }
        for (const each of named) expect(help).toMatch(new RegExp(`${each}\\b`))
        const effect = EFFECTS.find(([of]) => comment.includes(of))
        if (effect) await effect[1](result, option)
      }
    },
  )
})

describe.each(pages.filter(({ mentioned }) => mentioned.length > 0))('$path', ({ mentioned }) => {
  it.each(mentioned)('names a command and options that exist: %s', async text => {
    const [plain] = text.split(' > ')
    const words = wordsOf(plain!)
    const firstOther = words.findIndex(word => !/^[a-z]+$/.test(word))
    // The longest beginning that is a command. The words after it are arguments.
    let command = firstOther < 0 ? words : words.slice(0, firstOther)
    let help = await run([...command, '--help'])
    while (command.length > 1 && !help.stdout.startsWith(`Usage: sluicegate ${command.join(' ')}`)) {
      command = command.slice(0, -1)
      help = await run([...command, '--help'])
    }
    const { code, stdout } = help
    expect([code, stdout]).toEqual([0, expect.stringContaining(`Usage: sluicegate ${command.join(' ')}`)])
    for (const option of words.filter(word => word.startsWith('--'))) expect(stdout).toContain(option)
  })
})

/** Whether a mention has all that the command needs: it leaves no value open, and is not the bare name of a command with arguments. */
const isComplete = (text: string) =>
  !/<name>|…/.test(text) &&
  !['explain', 'keys create', 'keys import', 'consumers block', 'consumers show', 'limits peek'].includes(
    text,
  )
/** `init` and `build` write files, and `openapi` needs a config with the API: test/node and test/package run them. */
const NOT_RUN_HERE = ['init', 'build', 'openapi', ...SERVING]

/** The config that a page has for all of its commands; undefined: the shipped one. */
const configOf = (page: string) =>
  [...page.matchAll(FENCE)].find(([, , text]) =>
    /export default defineConfig\(.*^ {2}shedding: /ms.test(text!),
  )?.[2]

const complete = pages
  .map(({ mentioned, ...page }) => ({
    ...page,
    commands: mentioned.filter(text => isComplete(text) && !NOT_RUN_HERE.includes(wordsOf(text)[0]!)),
  }))
  .filter(({ commands }) => commands.length > 0)

describe.each(complete)('$path', ({ path, text, commands }) => {
  beforeEach(async () => {
    await redis.connection.send(['FLUSHALL'])
    expect((await run(['keys', 'create', '--consumer', 'acme'])).code).toBe(0)
  })

  it.each(commands)('names a command that works: %s', async command => {
    const config = configOf(text) ?? configWithRuleOf(snippetsOf(text), command)
    const option =
      config === undefined ? [] : ['--config', fileOf(config, `mentioned-${path.replaceAll(/\W/g, '-')}`)]
    const [plain] = command.split(' > ')
    const args = [...(await filledIn(wordsOf(plain!))), ...option]
    expect([command, failureOf(args, await run(args))]).toEqual([command, ''])
  })
})

it('the command explain in the pages shows the consumer of a request', async () => {
  const text = pages.flatMap(({ mentioned }) => mentioned).find(each => each.startsWith('explain GET /rep'))!
  const { code, stdout } = await run(wordsOf(text))
  expect([code, stdout]).toEqual([0, expect.stringContaining('acme, by api-key')])
})

/** The output that a page shows below a command. */
function outputOf(path: string, command: string): string {
  const { text } = pages.find(page => page.path === path)!
  const block = [...text.matchAll(FENCE)].find(
    ([, language, code]) => language === 'console' && code!.startsWith(command),
  )!
  return block[2]!.slice(block[2]!.indexOf('\n') + 1)
}

/** Without numbers, times and the widths of columns, which differ from run to run. */
const masked = (text: string) =>
  text
    .trim()
    .split('\n')
    .map(line => line.replaceAll(/\d+/g, '0').replaceAll(/ {2,}/g, '  ').trim())

describe('docs/operations.md shows what is printed by', () => {
  beforeEach(async () => {
    await redis.connection.send(['FLUSHALL'])
  })

  it('switch', async () => {
    const changes = [
      ['switch', 'rule', 'consumer-minute', 'shadow', '--for', '1h', '--reason', 'the sale'],
      ['switch', 'rule', 'address-hour', '--share', '0.25'],
      ['switch', 'block', 'acme', '--reason', 'unpaid', '--for', '24h'],
    ]
    for (const change of changes) expect((await run([...change, '--by', 'ops'])).code).toBe(0)
    expect(masked((await run(['switch'])).stdout)).toEqual(
      masked(outputOf('docs/operations.md', '$ npx sluicegate switch')),
    )
  })

  it('stats, for the config that the page describes', async () => {
    const config = `import { defineConfig } from 'sluicegate'
      const numbers = { by: 'consumer', limit: 120, period: '1m' }
      export default defineConfig({
        rules: [
          { name: 'minute', algorithm: 'fixed-window', ...numbers },
          { name: 'log', algorithm: 'sliding-log', candidateFor: 'minute', ...numbers },
        ],
      })`
    const counts = {
      ...{ 'rule allowed minute - free': 81190, 'rule limited minute - free': 312 },
      ...{ 'rule shadow_allowed log - free': 80976, 'rule shadow_limited log - free': 526 },
      ...{ 'candidate agreed log - free': 81257, 'candidate disagreed log - free': 245 },
      ...{ 'request allowed - -': 81190, 'request unauthenticated - -': 1741, 'request limited - -': 312 },
      'request failed_open store-timeout -': 14,
    }
    await redis.connection.send(storeCounts(counts))
    const args = ['stats', '--since', '24h', '--config', fileOf(config, 'stats')]
    const shown = outputOf('docs/operations.md', '$ npx sluicegate stats')
    const [, ...rows] = (await run(args)).stdout.trim().split('\n')
    const [since, ...shownRows] = shown.trim().split('\n')
    expect(since).toMatch(/^Since \d{4}-\d\d-\d\d \d\d:00 UTC, the start of an hour:$/)
    expect(rows).toEqual(shownRows)
  })
})

it('docs/operations.md names the column of stats that shows what a shadow would refuse', async () => {
  const rows = outputOf('docs/operations.md', '$ npx sluicegate stats')
  const [step] = pages
    .flatMap(({ blocks }) => blocks.flatMap(({ commands }) => commands))
    .filter(({ comment }) => comment.startsWith('step 2'))
  expect(rows).toContain(step!.comment.replace('step 2: ', ''))
})

/** The folders of the projects whose npm scripts a page names. */
const PROJECTS: Record<string, readonly string[]> = {
  'examples/README.md': ['.', ...readdirSync(new URL('examples/', ROOT)).map(name => `examples/${name}`)],
  'template/README.md': ['template'],
}

it.each(pages)('$path names only npm scripts that exist', ({ path, text }) => {
  const scripts = (PROJECTS[path] ?? ['.']).flatMap(folder => {
    const file = new URL(`${folder}/package.json`, ROOT)
    return existsSync(file) ? Object.keys(JSON.parse(readFileSync(file, 'utf8')).scripts) : []
  })
  const named = [...text.matchAll(/npm (?:run (?:--silent )?([\w:-]+)|(start|test)\b)/g)].map(
    ([, a, b]) => (a ?? b)!,
  )
  expect(named.filter(name => !scripts.includes(name))).toEqual([])
})
