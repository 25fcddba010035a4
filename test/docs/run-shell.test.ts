/**
 * The lines of shell on the pages that are not commands of Sluice: `curl` against a running gateway, the start of the bridge, and the
 * names and options of commands that need an account or the internet.
 */
import { execFile, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Stack, startStack } from '../../src/node/start/stack.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { environmentWith, SLUICE } from '../support/command-line.ts'
import { ALL_PAGES, blocksOf, ROOT, readPage } from '../support/pages.ts'
import { startRedis } from '../support/redis.ts'
import { writeModules } from '../support/snippet-modules.ts'

/** The lines of shell on a page, without comments. A line that ends with a backslash is joined with the next one. */
const linesOf = (page: string) =>
  blocksOf(page).flatMap(({ language, code }) => {
    const joined = code.replaceAll('\\\n', ' ').split('\n')
    const shell = language === 'console' ? joined.filter(line => line.startsWith('$ ')) : joined
    if (language !== 'console' && language !== 'sh') return []
    return shell.map(line => line.replace(/^\$ /, '').split(/\s+# /)[0]!.trim())
  })

let directory: string
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'sluice-shell-'))
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** @returns what the command prints, on both outputs */
function shell(command: string, env: Record<string, string> = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { cwd: directory, env: environmentWith({ NO_PROXY: '*', NO_COLOR: '1', ...env }) }
    execFile('bash', ['-c', command], options, (error, stdout, stderr) => {
      if (error) reject(error)
      else resolve(stdout + stderr)
    })
  })
}

describe('curl', () => {
  const SECRET = '0123456789abcdef'.repeat(4)
  let stack: Stack
  let store: ReturnType<typeof createAdminStore>

  beforeAll(async () => {
    const shedding = `{
      classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'other' }],
      workerUtilization: { signals: ['push'], mode: 'shadow' },
    }`
    const [, limits] = /limits: (\{.*\}),/.exec(readPage('docs/api.md'))!
    writeModules(directory, {
      'gateway.config.ts': `import shipped from './shipped.ts'\nexport default { ...shipped, store: { deadline: '20s' }, shedding: ${shedding}, api: {}, limits: ${limits} }`,
      'shipped.ts': readPage('sluice.config.ts').replace('./src/config/define.ts', 'sluicegate'),
    })
    const before = process.env.SLUICE_UTILIZATION_SECRET
    process.env.SLUICE_UTILIZATION_SECRET = SECRET
    try {
      stack = await startStack({
        redis: 'embedded',
        ports: { gateway: 0, bridge: 0, origin: 0 },
        watch: false,
        configFile: join(directory, 'gateway.config.ts'),
      })
    } finally {
      if (before === undefined) delete process.env.SLUICE_UTILIZATION_SECRET
      else process.env.SLUICE_UTILIZATION_SECRET = before
    }
    store = createAdminStore(stack.rest)
  })
  afterAll(() => stack?.close())

  /** The commands with curl of a page, sent to the gateway that runs here. */
  const curls = (page: string) =>
    linesOf(page)
      .filter(line => line.includes('curl '))
      .map(line => line.replace(/https?:\/\/(127\.0\.0\.1:8787|(api|gateway)\.example\.com)/, stack.url))
  const keyOf = async (consumer: string) => (await createKey(store, { consumer, plan: 'free' })).key
  const STATUS = " -s -o /dev/null -w '%{http_code}'"

  it('is on no other page than those whose commands run here', () => {
    const pages = ALL_PAGES.filter(page => linesOf(page).some(line => line.includes('curl ')))
    const run = ['api', 'credentials', 'getting-started', 'load-shedding', 'operations']
    expect(pages).toEqual(run.map(name => `docs/${name}.md`))
  })

  it('prints the headers that docs/getting-started.md shows, and then the statuses', async () => {
    const block = blocksOf('docs/getting-started.md').find(({ language }) => language === 'console')!.code
    const [command, loop] = curls('docs/getting-started.md')
    const key = await keyOf('demo')
    const printed = await shell(command!.replace('curl', 'curl -s').replace('slk_demo_…', key))
    const shown = block.split('\n\n')[0]!.split('\n').slice(1)
    expect(shown).toHaveLength(3)
    const times = (text: string) => text.replaceAll(/;t=\d+/g, ';t=…').toLowerCase()
    for (const line of shown) expect(times(printed)).toContain(times(line.replace('…', '')))
    const other = loop!.replace('slk_demo_…', await keyOf('other'))
    const codes = (await shell(other)).trim().split(' ')
    expect(codes).toHaveLength(30)
    expect(new Set(codes)).toEqual(new Set(['200', '429']))
    // The address has used one unit of its limit before.
    expect(codes.filter(code => code === '200').length).toBeGreaterThanOrEqual(9)
  })

  it('reaches the origin with a key, as docs/credentials.md says', async () => {
    const [command] = curls('docs/credentials.md')
    // The address has no budget left after the loop above.
    await store.run('FLUSHALL')
    const KEY = await keyOf('acme')
    expect(await shell(command! + STATUS, { KEY })).toBe('200')
    expect(await shell(command! + STATUS, { KEY: 'slk_acme_wrong' })).toBe('401')
  })

  it('shows the health of the store, as docs/operations.md says', async () => {
    const [command] = curls('docs/operations.md')
    expect(await shell(command!.replace('curl', 'curl -s'))).toMatch(/^HTTP\/1\.1 200 OK/)
  })

  it('signs a user up, changes what it may do, and decides under a limit, as docs/api.md says', async () => {
    const lines = linesOf('docs/api.md')
    const [base, call] = ['V=', 'call()'].map(start => lines.find(line => line.startsWith(start))!)
    const definitions = `${base!.replace('https://gateway.example.com', stack.url)}\n${call!}\n`
    const commands = lines.filter(line => /^(call|curl) /.test(line))
    const [create, usage, override, block, unblock, rotate, revoke, decide, refund] = commands
    const [, scopes] = /--scopes (\S+)/.exec(readPage('docs/api.md'))!
    const { token: TOKEN } = await createToken(store, { name: 'backend', scopes: scopes!.split(',') })
    const run = async (command: string | undefined, more = {}) =>
      JSON.parse(await shell(definitions + command, { TOKEN, ...more })) as Record<string, unknown>
    const { id, key } = await run(create)
    expect(key).toMatch(/^slk_acme_/)
    expect(await run(create)).toMatchObject({ status: 409, id })
    expect(await run(usage, { KEY: key })).toMatchObject({ consumer: 'acme', rules: expect.any(Array) })
    expect(await run(override)).toMatchObject({ limit: 600, status: 'applies' })
    expect(await run(block)).toMatchObject({ reason: 'unpaid' })
    expect(await run(unblock)).toMatchObject({ blockedAt: null })
    expect(await run(rotate, { ID: id })).toMatchObject({ replaces: { id } })
    expect(await run(revoke, { ID: id })).toEqual({ id, revoked: true })
    const { allowed, receipt } = await run(decide)
    expect(allowed).toBe(true)
    expect(await run(refund, { RECEIPT: JSON.stringify(receipt) })).toMatchObject({
      rules: [{ name: 'day', remaining: 5 }],
    })
    expect(commands).toHaveLength(9)
  })

  it('reports the utilization of a machine, as docs/load-shedding.md says', async () => {
    const [command] = curls('docs/load-shedding.md')
    expect(await shell(command! + STATUS, { SLUICE_UTILIZATION_SECRET: SECRET })).toBe('204')
    expect(await shell(command! + STATUS, { SLUICE_UTILIZATION_SECRET: 'another' })).toBe('401')
  })
})

it('docs/deploy.md starts a bridge with a token in a file that only its owner can read', async () => {
  const redis = await startRedis()
  const code = blocksOf('docs/deploy.md')
    .find(({ code }) => code.includes('sluicegate bridge'))!
    .code.trim()
  const command = code
    .replace('npx sluicegate', `'${process.execPath}' '${SLUICE}'`)
    .replace('redis://10.0.0.5:6379', `${redis.url} --port 0`)
  const child = spawn('bash', ['-c', command], { cwd: directory, env: environmentWith({}), detached: true })
  try {
    const url = await new Promise<string>((resolve, reject) => {
      let output = ''
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', data => {
          output += data
          const ready = /ready on (http:\S+)/.exec(output)
          if (ready) resolve(ready[1]!)
        })
      }
      child.on('exit', () => reject(new Error(output)))
    })
    const file = join(directory, 'bridge-token')
    expect((statSync(file).mode & 0o777).toString(8)).toBe('600')
    const token = readFileSync(file, 'utf8').trim()
    expect(token).toMatch(/^[0-9a-f]{64}$/)
    const ping = (authorization: string) => fetch(`${url}/ping`, { headers: { authorization } })
    expect(await (await ping(`Bearer ${token}`)).json()).toEqual({ result: 'PONG' })
    expect((await ping('Bearer another')).status).toBe(401)
    expect((await fetch(`${url}/health`)).status).toBe(200)
  } finally {
    process.kill(-child.pid!, 'SIGTERM')
    await redis.close()
  }
})

it('examples/README.md uses the address at which the bridge listens by default', async () => {
  const help = await shell(`'${process.execPath}' '${SLUICE}' bridge --help`)
  const port = /--port .*?\(default:\s+(\d+)/s.exec(help)![1]
  const [vars] = blocksOf('examples/README.md').filter(({ code }) =>
    code.startsWith('UPSTASH_REDIS_REST_URL='),
  )
  expect(vars!.code).toBe(`UPSTASH_REDIS_REST_URL=http://127.0.0.1:${port}\nUPSTASH_REDIS_REST_TOKEN=local\n`)
  expect(readPage('examples/README.md')).toContain(
    `the URL is \`http://127.0.0.1:${port}\`, and the token is \`local\``,
  )
})

/** Lines of shell on the pages, by the test that runs them or compares them with what exists. */
const COVERED: readonly (readonly [line: RegExp, by: string])[] = [
  [/npx sluicegate/, 'run-commands.test.ts; the bridge: above'],
  [/^(for .*)?curl |^(V=|call\b)/, 'above'],
  [/openssl/, 'above, with the bridge'],
  [/npx (wrangler|vitest) |^npm (run [\w:]+|test) -- /, 'below'],
  [/^([A-Z_]+=\d+ )?npm (run [\w:-]+|start|test)$/, 'the names of npm scripts in run-commands.test.ts'],
  [/^npm (ci|install|update)\b/, '.ci/run, and test/package, which installs and updates the package'],
  [
    /^(npm pack|npm exec -- sluicegate init|cd \.\.\/my-api)/,
    'test/package, from an empty folder to the first 429',
  ],
  [
    /^(export )?UPSTASH_REDIS_REST_URL=|^UPSTASH_REDIS_REST_TOKEN=|^export SLUICE_API_URL=/,
    'variables: above, the example of the bridge; test/api/command-line.test.ts',
  ],
  [/^export REDIS_URL=/, 'test/e2e/serve.test.ts'],
]

it('every line of shell on the pages is covered by a test', () => {
  const lines = ALL_PAGES.flatMap(page => linesOf(page).map(line => [page, line] as const))
  const others = lines.filter(([, line]) => line !== '' && !line.startsWith('#'))
  expect(others.length).toBeGreaterThan(60)
  expect(others.filter(([, line]) => !COVERED.some(([pattern]) => pattern.test(line)))).toEqual([])
})

/** The commands that follow a word on the pages, in blocks and in sentences. */
const commandsOn = (page: string, start: RegExp) =>
  [...readPage(page).matchAll(start)].map(([, text]) => text!.split(/\s+[#|]|\\$/)[0]!.trim())

describe('wrangler, whose commands need an account', () => {
  const all = ALL_PAGES.flatMap(page => commandsOn(page, /npx wrangler ([a-z][^`\n]*)/g))
  const namesOf = (command: string) => /^[a-z]+( [a-z]+)*(?= |$)/.exec(command)![0]
  const names = [...new Set(all.map(namesOf))]

  it('is used on the pages', () => {
    expect(names.sort()).toEqual(['deploy', 'dev', 'login', 'secret put', 'types'])
  })

  it.concurrent.each(names)('has the command %s, with the options of the pages', async name => {
    const wrangler = join(ROOT, 'node_modules/wrangler/bin/wrangler.js')
    const help = await shell(`'${process.execPath}' '${wrangler}' ${name} --help`, {
      WRANGLER_SEND_METRICS: 'false',
    })
    expect(help).toContain(`wrangler ${name}`)
    const used = all.filter(command => namesOf(command) === name)
    for (const option of used.flatMap(text => text.match(/(?<= )--?[a-z][a-z-]*/g) ?? []))
      expect(help).toMatch(new RegExp(`(^|[\\s,])${option}\\b`, 'm'))
  })
})

describe('CONTRIBUTING.md', () => {
  const lines = linesOf('CONTRIBUTING.md')
  const { scripts } = JSON.parse(readPage('package.json')) as { scripts: Record<string, string> }

  it('names tests and files that exist', () => {
    const paths = readPage('CONTRIBUTING.md').match(/\b(?:test|docs|bench|src)\/[\w./-]*\w/g)!
    expect(paths.length).toBeGreaterThan(5)
    expect(paths.filter(path => !existsSync(join(ROOT, path)))).toEqual([])
  })

  const withOptions = lines.flatMap(line => {
    const found = /^npm run ([\w:]+) -- (.*--.*)$/.exec(line)
    return found ? [[found[1]!, found[2]!] as const] : []
  })

  it.each(withOptions)('passes options to %s that it has: %s', async (script, options) => {
    const help = await shell(
      `cd '${ROOT}' && '${process.execPath}' ${scripts[script]!.replace(/^node /, '')} --help`,
    )
    for (const option of options.match(/--[a-z]+/g)!) expect(help).toMatch(new RegExp(`${option}\\b`))
    for (const [, value] of options.matchAll(/'([^']+)'/g))
      expect(help.replaceAll(/\s+/g, ' ')).toContain(value)
  })

  it('passes options to vitest that it has', async () => {
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs')
    const help = await shell(`'${process.execPath}' '${vitest}' --help --expand-help`)
    const used = lines
      .filter(line => line.includes('npx vitest'))
      .flatMap(line => line.match(/(?<= )--?[a-z.]+/g) ?? [])
    expect(used.length).toBeGreaterThan(4)
    for (const option of new Set(used)) expect(help).toMatch(new RegExp(`(^|[\\s,])${option}\\b`, 'm'))
  })
})
