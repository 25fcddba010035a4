/**
 * The commands of README.md and docs/*.md work as written, with the config that comes with the project or with that of the page. Those of
 * README.md also work with the config that `init` writes.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type Result, runInProcess } from '../support/command-line.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const ROOT = new URL('../../', import.meta.url)
const SHIPPED = fileURLToPath(new URL('sluice.config.ts', ROOT))
/** What `npx sluicegate init` and `npm create sluicegate` write. */
const TEMPLATE = readFileSync(new URL('template/sluice.config.ts', ROOT), 'utf8')
const DEFINE = fileURLToPath(new URL('src/config/define.ts', ROOT))
const FENCE = /^```(\w+)\n(.*?)^```$/gms

interface Block {
  commands: readonly string[]
  /** The config that the page has shown before; undefined: the shipped one. */
  config: string | undefined
}

/** Lines that a user pastes, without the comments behind them. */
const blocksOf = (page: string) =>
  [...page.matchAll(FENCE)].flatMap(([, language, text], i, all): Block[] => {
    const commands = text!.split('\n').flatMap(line => {
      const pasted =
        language === 'console' ? /^\$ (.*)$/.exec(line)?.[1] : language === 'sh' ? line : undefined
      return pasted?.includes('npx sluicegate') ? [pasted.split(/\s+# /)[0]!.trim()] : []
    })
    if (commands.length === 0) return []
    const isOfLimits = commands.some(command => command.includes('zendesk'))
    const config = all.slice(0, i).findLast(([, , before]) => before!.includes('limits: {'))?.[2]
    return [{ commands, config: isOfLimits ? config : undefined }]
  })

/** `npx sluicegate check`, in a sentence: the words that name the command, and the options. */
const mentionedIn = (page: string) => [
  ...new Set([...page.replaceAll(FENCE, '').matchAll(/`npx sluicegate ([^`]+)`/g)].map(([, text]) => text!)),
]

interface Page {
  path: string
  text: string
  blocks: readonly Block[]
  mentioned: readonly string[]
}

const pages: readonly Page[] = [
  'README.md',
  ...readdirSync(new URL('docs/', ROOT)).map(name => `docs/${name}`),
].flatMap(path => {
  if (!path.endsWith('.md')) return []
  const text = readFileSync(new URL(path, ROOT), 'utf8')
  return [{ path, text, blocks: blocksOf(text), mentioned: mentionedIn(text) }]
})

/** Commands that run until they are stopped; test/node/cli.test.ts starts them. */
const SERVING = ['bridge', 'start']

let redis: TestRedis
let bridge: Bridge
let directory: string
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'sl-'))
  redis = await startRedis('embedded')
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

async function run(args: readonly string[], input = ''): Promise<Result> {
  const env = { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' }
  const result = await runInProcess([...args], env, input)
  // Destructive commands ask for a confirmation (docs/operations.md), but there is no terminal here.
  return result.stderr.includes('Add --yes') ? await runInProcess([...args, '--yes'], env, input) : result
}

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
  const groups = commands.map(text => /sluicegate (\w+)/.exec(text)![1]!)
  const kinds = ['keys', 'consumers', 'limits', 'stats', 'switch', 'bridge', 'check', 'explain']
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
    // A store with a consumer and a key, like that of the readers of a page.
    await redis.connection.send(['FLUSHALL'])
    expect((await run(['keys', 'create', '--consumer', 'acme'])).code).toBe(0)
  })

  it.each(blocks.map(({ commands, config }, i) => [commands[0]!, commands, config, i] as const))(
    'all of these work, beginning with: %s',
    async (_, commands, config, i) => {
      const name = `${title.replaceAll(/\W/g, '-')}-${i}`
      const option = config === undefined ? [] : ['--config', fileOf(config, name)]
      for (const command of commands) {
        const [before, text] = command.split('npx sluicegate') as [string, string]
        if (SERVING.includes(wordsOf(text)[0]!)) continue
        // Fills in the values that the pages leave open: the id of a key, and an old key.
        const keys = JSON.parse((await run(['keys', 'list', '--json'])).stdout)
        const args = wordsOf(text).map(word => (word === 'acme/3f1c…' ? keys[0].id : word))
        const { code, stderr } = await run(
          [...args, ...option],
          before.includes('$OLD_KEY') ? 'key-of-before-4711' : '',
        )
        expect([command, code, code === 0 ? '' : stderr]).toEqual([command, 0, ''])
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

it('the command explain in the pages shows the consumer of a request', async () => {
  const text = pages.flatMap(({ mentioned }) => mentioned).find(each => each.startsWith('explain GET /rep'))!
  const { code, stdout } = await run(wordsOf(text))
  expect([code, stdout]).toEqual([0, expect.stringContaining('acme, by api-key')])
})

it('the pages name only npm scripts that exist', () => {
  const { scripts } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'))
  const named = pages.flatMap(({ text }) => [...text.matchAll(/npm run ([\w:-]+)/g)].map(([, name]) => name!))
  expect(named.length).toBeGreaterThan(5)
  expect(named.filter(name => !(name in scripts))).toEqual([])
})
