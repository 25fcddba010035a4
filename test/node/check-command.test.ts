/** `npx sluicegate check`, and features that it shares with other commands: warnings, `--json`, `--config`, `--version`. */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { API_ROUTES } from '../../src/config/check/api-schema.ts'
import { invalidDocument } from '../../src/node/cli/check-document.ts'
import { NoProjectError } from '../../src/node/project.ts'
import { runInProcess, runProcess } from '../support/command-line.ts'

let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'sl-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

/** @returns the file with a config of this text */
function configFile(text: string): string {
  const file = join(directory, 'other.config.ts')
  writeFileSync(file, text)
  return file
}

const RULE = `{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '250ms', burst: 20 }`
const WITH_WARNING = `export default { origin: 'route', rules: [${RULE}, { name: 'b', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s', mode: 'off' }] }\n`

describe('npx sluicegate check', () => {
  it('shows warnings, and succeeds', async () => {
    const { code, stdout, stderr } = await runInProcess(['check', configFile(WITH_WARNING)])
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout).toMatch(/^The config is valid: 1 rule, /)
    expect(stdout.split('Warnings:\n')[1]).toBe(
      `  ${join(directory, 'other.config.ts')}:1: rules[1].mode: 'off': the rule counts nothing and refuses nothing until it is switched on.\n`,
    )
    expect((await runInProcess(['check'])).stdout).not.toContain('Warnings')
  })

  it('shows which rules and classes are for test callers, and which rules count both modes together', async () => {
    const file = configFile(`export default {
      origin: 'route',
      rules: [
        { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s', acrossModes: true },
        { name: 'b', by: 'consumer', algorithm: 'gcra', limit: 5, period: '1s', match: { mode: 'test' } },
      ],
      shedding: { classes: [{ name: 'tests', match: { mode: 'test' } }, { name: 'others' }], fleetUsage: { capacity: 9 } },
    }`)
    const { stdout } = await runInProcess(['check', file])
    expect(stdout).toMatch(/^ {2}a .* live and test together$/m)
    expect(stdout).toMatch(/^ {2}b .* in test mode$/m)
    expect(stdout).toMatch(/^ {2}tests +in test mode/m)
    const { rules } = JSON.parse((await runInProcess(['check', file, '--json'])).stdout)
    expect(rules).toMatchObject([{ across_modes: true, match: {} }, { match: { mode: 'test' } }])
    expect(rules[1]).not.toHaveProperty('across_modes')
  })

  it('says which limits get their numbers from each call', async () => {
    const max = "max: { limit: 1000, period: '1m' }"
    const file = configFile(
      `export default { limits: { tenant: [{ name: 'quota', algorithm: 'gcra', numbers: 'call', ${max} }] } }`,
    )
    const { stdout } = await runInProcess(['check', file])
    expect(stdout).toMatch(/^ {2}quota +at most 1000 per minute .*gcra, numbers of each call/m)
  })

  it('warns about environment variables that the config reads', async () => {
    const file = configFile(
      `import { env } from 'node:process'
      const rules = [{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: Number(process.env.LIMIT ?? 5), period: '1s' }]
      export default { origin: env.ORIGIN_URL ?? 'route', rules }\n`,
    )
    const { code, stdout } = await runProcess(['check', file], { LIMIT: '7' })
    expect(code).toBe(0)
    const warnings = stdout.split('Warnings:\n')[1]!.trim().split('\n')
    expect(warnings).toEqual([
      expect.stringMatching(
        /other\.config\.ts:2: process\.env\.LIMIT: the config reads this variable\. .* Write the value into the config/,
      ),
      expect.stringMatching(
        /process\.env\.ORIGIN_URL: .* the Worker reads this variable itself, as an override of origin\.$/,
      ),
    ])
  })

  it('warns about a rule by a field of the body without the secret of its digests', async () => {
    const rule = RULE.replace("'consumer'", "['field:email', 'address']").replace(
      ' }',
      ", match: { path: '/login' } }",
    )
    const file = configFile(
      `export default { origin: 'route', rules: [${RULE.replace("'a'", "'b'")}, ${rule}] }\n`,
    )
    const warning =
      /:1: rules\[1\]\.by: .* needs the secret SLUICE_KEY_SECRET\. Neither this shell nor \.dev\.vars has it\./m
    const shown = async (env = {}) => (await runInProcess(['check', file], env)).stdout
    expect(await shown()).toMatch(warning)
    expect(await shown({ SLUICE_KEY_SECRET: `a1:${'x'.repeat(43)}` })).not.toContain('SLUICE_KEY_SECRET')
    writeFileSync(join(directory, '.dev.vars'), `SLUICE_KEY_SECRET=a1:${'x'.repeat(43)}\n`)
    expect(await shown()).not.toContain('SLUICE_KEY_SECRET')
  })

  it("warns about onClientGone: 'abort' if wrangler.toml lacks the flag that it needs", async () => {
    const file = configFile(`export default { origin: 'route', onClientGone: 'abort', rules: [${RULE}] }\n`)
    const wrangler = join(directory, 'wrangler.toml')
    const warning =
      /:1: onClientGone: 'abort' has no effect, .* compatibility_flags = \["enable_request_signal"\]\.$/m
    const warnsWith = async (toml: string) => {
      writeFileSync(wrangler, toml)
      return warning.test((await runInProcess(['check', file])).stdout)
    }
    try {
      expect(await warnsWith('compatibility_date = "2026-10-01"\n')).toBe(true)
      expect(await warnsWith('compatibility_flags = ["nodejs_compat"]\n')).toBe(true)
      expect(await warnsWith('compatibility_flags = ["nodejs_compat", "enable_request_signal"]\n')).toBe(
        false,
      )
    } finally {
      rmSync(wrangler, { force: true })
    }
    // Without a wrangler.toml, the config is not that of a Worker.
    expect(warning.test((await runInProcess(['check', file])).stdout)).toBe(false)
  })

  it('warns about signals of the process in the config of a Worker, which cannot measure itself', async () => {
    const classes = "[{ name: 'all' }, { name: 'posts', match: { methods: ['POST'] } }]"
    const file = configFile(
      `export default { origin: 'route', rules: [${RULE}], shedding: { classes: ${classes}, workerUtilization: { signals: ['header', 'cpu'] } } }\n`,
    )
    const wrangler = join(directory, 'wrangler.toml')
    const warns = async () =>
      /:1: .*signals: 'cpu' has no/m.test((await runInProcess(['check', file])).stdout)
    writeFileSync(wrangler, '')
    expect(await warns()).toBe(true)
    rmSync(wrangler)
    expect(await warns()).toBe(false)
  })

  it.each([
    ['route', 'global_fetch_strictly_public', true],
    ['route', 'enable_request_signal', false],
    ['https://api.example.com', 'global_fetch_strictly_public', false],
  ])(
    "warns about origin: 'route' if a flag sends its requests to the Worker again: %s, %s",
    async (origin, flag, warns) => {
      writeFileSync(join(directory, 'wrangler.toml'), `compatibility_flags = ["nodejs_compat", "${flag}"]\n`)
      const file = configFile(`export default { origin: '${origin}', rules: [${RULE}] }\n`)
      const { stdout } = await runInProcess(['check', file])
      expect(/:1: origin: with 'route', .* remove the flag/m.test(stdout)).toBe(warns)
    },
  )

  it.each([
    ['route', 'pattern = "api.example.com", custom_domain = true', true],
    ['route', 'pattern = "api.example.com/*", zone_name = "example.com"', false],
    ['https://api.example.com', 'pattern = "api.example.com", custom_domain = true', false],
  ])(
    "warns about origin: 'route' if the Worker has a custom domain: %s, %s",
    async (origin, route, warns) => {
      writeFileSync(join(directory, 'wrangler.toml'), `routes = [{ ${route} }]\n`)
      const file = configFile(`export default { origin: '${origin}', rules: [${RULE}] }\n`)
      const { stdout } = await runInProcess(['check', file])
      expect(/:1: origin: with 'route', .* custom domain/m.test(stdout)).toBe(warns)
    },
  )
})

it.each([
  ['{}', 'no rules, no origin: for guards, middleware and limits by name only.', true],
  ["{ origin: 'route', rules: [] }", 'no rules, origin route.', true],
  [
    "{ limits: { mails: [{ name: 'b', algorithm: 'gcra', limit: 1, period: '1s' }] } }",
    '1 limit by name.',
    false,
  ],
])('npx sluicegate check accepts a config without rules, %s', async (text, summary, warns) => {
  const { code, stdout, stderr } = await runInProcess(['check', configFile(`export default ${text}\n`)])
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout.split('\n')[0]).toBe(`The config is valid: ${summary}`)
  expect(stdout.includes('rules: has no rule: ')).toBe(warns)

  const explained = await runInProcess([
    'explain',
    'GET',
    '/',
    '--config',
    configFile(`export default ${text}\n`),
  ])
  expect(explained.stdout).toContain('\n\nThe config has no rules.\n\nThe store is not called')
})

it('npx sluicegate check and explain say which windows start with their first request', async () => {
  const rule = `{ name: 'hour', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: '1h', start: 'first-request' }`
  const file = configFile(`export default { origin: 'route', rules: [${rule}] }`)
  const { stdout } = await runInProcess(['check', file])
  expect(stdout).toMatch(/^ {2}hour {2}100 per hour from the first request {2}by consumer {2}fixed-window$/m)
  const request = ['explain', 'GET', '/', '--consumer', 'acme', '--config', file]
  expect((await runInProcess(request)).stdout).toMatch(/ 100 per hour from the first request, fixed-window /)
  const { rules } = JSON.parse((await runInProcess([...request, '--json'])).stdout)
  expect(rules).toMatchObject([{ name: 'hour', period_seconds: 3600, start: 'first-request' }])
})

describe('a limit that follows the origin', () => {
  const adaptiveFile = () =>
    configFile(
      `export default { origin: 'https://api.example.com', rules: [${RULE}, { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 1000, adaptive: { min: 10 } }] }`,
    )

  it('is shown with its range by check and explain', async () => {
    const file = adaptiveFile()
    const checked = await runInProcess(['check', file])
    expect(checked.stdout).toMatch(
      /^ {2}origin +10 to 1000 at once, follows the origin +by global +concurrency/m,
    )
    const explained = await runInProcess(['explain', 'GET', '/', '--consumer', 'acme', '--config', file])
    expect(explained.stdout).toMatch(/^origin +global +10 to 1000 at once, follows the origin, concurrency /m)
  })

  it('has its range in both JSON documents', async () => {
    const file = adaptiveFile()
    const adaptive = { method: 'gradient', min: 10, initial: 20, max: 1000, tolerance: 2 }
    for (const args of [
      ['check', '--json', file],
      ['explain', 'GET', '/', '--consumer', 'acme', '--json', '--config', file],
    ]) {
      const { rules } = JSON.parse((await runInProcess(args)).stdout)
      expect(rules).toMatchObject([{ name: 'a' }, { name: 'origin', limit: 1000, adaptive }])
      expect(rules[0].adaptive).toBeUndefined()
    }
  })
})

describe('npx sluicegate check --json', () => {
  it('prints one document with the numbers of each rule and their units', async () => {
    const rules = [
      `{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '250ms', burst: 20, plans: { pro: { limit: 50 }, own: false } }`,
      `{ name: 'b', by: ['address', 'route'], algorithm: 'leaky-bucket', limit: 5, period: '1m', queue: 3, cost: 2, enforce: 0.5, match: { routes: ['docs'] } }`,
      `{ name: 'c', by: 'consumer', algorithm: 'fixed-window', limit: 9, period: 'month', timeZone: 'Europe/Berlin', candidateFor: 'a' }`,
      `{ name: 'd', by: 'consumer', algorithm: 'concurrency', limit: 4, ttl: '30s', onStoreFailure: 'closed' }`,
    ]
    const file = configFile(`export default {
      origin: 'route', environment: 'live', plans: ['free', 'pro', 'own'], rules: [${rules}],
      routes: [{ name: 'docs', match: { path: '/docs/*' }, cost: 2, accept: ['anonymous'] }],
      limits: { zendesk: [
        { name: 'e', by: ['account'], algorithm: 'sliding-log', limit: 8, period: '1h' },
        { name: 'f', algorithm: 'fixed-window', limit: 8, period: '1h', start: 'first-request' },
      ] },
    }`)
    const { code, stdout, stderr } = await runInProcess(['check', '--json', file])
    expect([code, stderr]).toEqual([0, ''])
    const common = { unit: 'requests', mode: 'enforce', enforced_share: 1, on_store_failure: 'local' }
    const ofGateway = { ...common, on: 'request', cost: 1, match: {}, plans: {} }
    expect(JSON.parse(stdout)).toEqual({
      ...{
        valid: true,
        mistakes: [],
        warnings: [],
        file,
        origin: 'route',
        environment: 'live',
      },
      plans: ['free', 'pro', 'own'],
      rules: [
        {
          ...ofGateway,
          ...{ name: 'a', by: ['consumer'], algorithm: 'gcra', limit: 10, burst: 20, period_seconds: 0.25 },
          plans: { pro: { limit: 50, burst: 20 }, own: false },
        },
        {
          ...ofGateway,
          ...{ name: 'b', by: ['address', 'route'], algorithm: 'leaky-bucket', limit: 5, queue: 3 },
          ...{ period_seconds: 60, cost: 2, enforced_share: 0.5, match: { routes: ['docs'] } },
        },
        {
          ...ofGateway,
          ...{ name: 'c', by: ['consumer'], algorithm: 'fixed-window', limit: 9, calendar_period: 'month' },
          ...{ time_zone: 'Europe/Berlin', mode: 'shadow', candidate_for: 'a' },
        },
        {
          ...ofGateway,
          ...{ name: 'd', by: ['consumer'], algorithm: 'concurrency', limit: 4, ttl_seconds: 30 },
          on_store_failure: 'closed',
        },
      ],
      limits: {
        zendesk: [
          { ...common, name: 'e', by: ['account'], algorithm: 'sliding-log', limit: 8, period_seconds: 3600 },
          {
            ...{ ...common, name: 'f', by: [], algorithm: 'fixed-window', limit: 8, period_seconds: 3600 },
            start: 'first-request',
          },
        ],
      },
      routes: [{ name: 'docs', match: { path: '/docs/*' }, accept: ['anonymous'], cost: 2, limits: true }],
      api: null,
    })
  })

  it.each([
    ['{}', ['limits', 'usage', 'keys', 'consumers', 'overrides', 'tokens', 'audit', 'switches']],
    ["{ routes: 'all' }", [...API_ROUTES]],
  ])('shows which parts of the HTTP API are served with %s', async (api, routes) => {
    const file = configFile(`export default { origin: 'route', rules: [${RULE}], api: ${api} }`)
    expect(JSON.parse((await runInProcess(['check', '--json', file])).stdout).api.routes).toEqual(routes)
  })

  it('has the parts of the HTTP API, as the text has', async () => {
    const api = `{ routes: ['keys', 'audit'], cors: { origins: ['https://a.example'] } }`
    const file = configFile(`export default { origin: 'route', rules: [${RULE}], api: ${api} }`)
    const { stdout } = await runInProcess(['check', '--json', file])
    expect(JSON.parse(stdout).api).toEqual({ routes: ['keys', 'audit'], origins: ['https://a.example'] })
    const text = await runInProcess(['check', file])
    expect(text.stdout).toMatch(/^HTTP API:\n {2}routes +keys, audit\n {2}pages of +https:\/\/a\.example$/m)
  })

  it('lists the mistakes of an invalid config, and fails', async () => {
    const file = configFile(`export default { orgin: 'route', rules: [${RULE}, ${RULE}] }`)
    const { code, stdout, stderr } = await runInProcess(['check', file, '--json'])
    expect(code).toBe(1)
    expect(JSON.parse(stdout)).toEqual({
      valid: false,
      mistakes: [
        { path: 'orgin', line: 1, message: expect.stringContaining("Did you mean 'origin'?") },
        {
          path: 'rules[1].name',
          line: 1,
          message: expect.stringMatching(/^'a' is already the name of rules\[0\]/),
        },
      ],
      warnings: [],
    })
    expect(stderr).toMatch(
      /^The config has 2 mistakes:\n {2}\S*other\.config\.ts:1: orgin: is not a setting here\./,
    )
  })

  it('shows the file and line of an error that prevents loading', async () => {
    const file = configFile('\nexport default { origin: nowhere }\n')
    const { code, stdout } = await runProcess(['check', file, '--json'])
    const [mistake] = JSON.parse(stdout).mistakes
    expect([code, mistake]).toEqual([
      1,
      { path: `${file}:2`, message: 'The file throws an error: nowhere is not defined' },
    ])
  })

  it('reports a file that does not exist, and imports that lead nowhere', async () => {
    const missing = join(directory, 'missing', 'sluice.config.ts')
    const none = await runProcess(['check', missing, '--json'])
    const wrong = await runProcess(['check', configFile("import './nowhere.ts'\nexport default {}\n")])
    const noPackage = await runProcess(['check', configFile("import 'sluicegat'\nexport default {}\n")])
    const message = 'There is no such file. Check the path.'
    expect([none.code, JSON.parse(none.stdout).mistakes]).toEqual([1, [{ path: missing, message }]])
    expect(none.stderr).toBe(`${missing}: ${message}\n`)
    expect([wrong.code, wrong.stderr]).toEqual([
      1,
      expect.stringMatching(/\.config\.ts: There is no file \/.*\/nowhere\.ts\. Correct the import\.\n$/),
    ])
    expect(noPackage.stderr).toMatch(
      /\.config\.ts: There is no package 'sluicegat'\. Install it, or correct the import\.\n$/,
    )
  })

  it.each([
    [
      "import './limits'",
      'no file .*/limits\\. Node imports files by their whole names: write limits\\.ts at its end',
    ],
    ["import './limits.js'", 'no file .*/limits\\.js\\. .*: write limits\\.ts at its end'],
    ["import './folder'", '/folder is a folder\\. .*: write folder/index\\.ts at its end'],
    [
      "import '@/limits'",
      "no package '@/limits'\\. It looks like an alias, and Node reads none from tsconfig\\.json",
    ],
    ["import '~/limits'", "no package '~'\\. It looks like an alias"],
    ["import '#limits'", "no package '#limits'\\. It looks like an alias"],
    ["import '@app/limits'", "no package '@app/limits'\\. It looks like an alias"],
    ["import '@apps/limits'", "no package '@apps/limits'\\. Install it"],
    ['enum Plan { free }', 'enum is not supported in strip-only mode\\. .* write an object: const Plan = '],
  ])(
    'says what to write in place of %s, which only TypeScript and bundlers understand',
    async (line, message) => {
      mkdirSync(join(directory, 'folder'))
      for (const name of ['limits.ts', 'folder/index.ts']) writeFileSync(join(directory, name), 'export {}\n')
      writeFileSync(join(directory, 'package.json'), '{"type":"module"}')
      writeFileSync(join(directory, 'tsconfig.json'), '{"compilerOptions":{"paths":{"@app/*":["./src/*"]}}}')
      const { code, stderr } = await runProcess(['check', configFile(`${line}\nexport default {}\n`)])
      expect(code).toBe(1)
      expect(stderr).toMatch(new RegExp(message))
    },
  )

  it('reports a folder, and suggests the name of a file that is similar', async () => {
    const file = configFile('export default {}\n')
    const misspelled = file.replace(/\.ts$/, '.js')
    const [folder, other] = await Promise.all([
      runProcess(['check', directory]),
      runProcess(['check', misspelled]),
    ])
    expect([folder.code, folder.stderr]).toEqual([
      1,
      `${directory}: This is a folder. Name the config file, such as ${join(directory, 'sluice.config.ts')}.\n`,
    ])
    expect([other.code, other.stderr]).toEqual([
      1,
      `${misspelled}: There is no such file. Did you mean '${basename(file)}'?\n`,
    ])
  })

  it('prints a document even if there is no project', () => {
    const message = 'There is no sluice.config.ts in /srv.'
    expect(invalidDocument(new NoProjectError('/srv', message))).toEqual({
      valid: false,
      mistakes: [{ path: '/srv', message }],
      warnings: [],
    })
  })

  it('prints only fields that docs/config.md lists', async () => {
    const page = readFileSync(new URL('../../docs/config.md', import.meta.url), 'utf8')
    const section = page.split('## check --json')[1]!.split('\n## ')[0]!
    const { stdout } = await runInProcess(['check', '--json', configFile(WITH_WARNING)])
    const document = JSON.parse(stdout)
    const fields = [...Object.keys(document), ...Object.keys(document.rules[0])]
    for (const field of fields) expect(section, field).toContain(`\`${field}\``)
  })
})

describe('--config', () => {
  it.each([
    ['before the command', (file: string) => ['--config', file, 'check']],
    ['after the command', (file: string) => ['check', '--config', file]],
    ['as the argument of check', (file: string) => ['check', file]],
  ])('selects the config: %s', async (_, args) => {
    const { code, stdout } = await runInProcess(args(configFile(WITH_WARNING)))
    expect([code, stdout]).toEqual([0, expect.stringContaining('a  10 per 250 ms')])
  })

  it('applies to each command that reads a config', async () => {
    const file = configFile(WITH_WARNING)
    const explained = await runInProcess(['explain', 'GET', '/', '--consumer', 'acme', '--config', file])
    expect(explained.stdout).toContain('10 per 250 ms, burst 20, gcra')
    const store = ['--url', 'http://127.0.0.1:1', '--token', 't']
    for (const args of [
      ['keys', 'create', '--consumer', 'acme', '--plan', 'gold'],
      ['keys', 'plan', 'acme/0123456789ab', 'gold'],
      ['limits', 'peek', '--consumer', 'acme'],
      ['consumers', 'list'],
      ['stats'],
      ['switch'],
      ['build'],
      ['start'],
    ]) {
      const where = ['build', 'start'].includes(args[0]!) ? [] : store
      const { code, stderr } = await runInProcess([
        ...args,
        ...where,
        '--config',
        join(directory, 'none.config.ts'),
      ])
      expect([args, code, stderr]).toEqual([args, 1, expect.stringContaining('none.config.ts: ')])
    }
  })

  it('of a folder without a Worker is refused by start, which names the way to one', async () => {
    writeFileSync(join(directory, 'package.json'), '{ "name": "mine", "type": "module" }')
    writeFileSync(
      join(directory, 'sluice.config.ts'),
      `export default { origin: 'https://a.example', rules: [${RULE}] }`,
    )
    const { code, stderr } = await runProcess(['start'], {}, '', directory)
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining(
        `whose module ${join(directory, 'src/index.ts')} does not exist. npx sluicegate init makes a project with it.`,
      ),
    ])
  })

  it('cannot be combined with another file', async () => {
    const { code, stderr } = await runInProcess(['check', 'a.ts', '--config', 'b.ts'])
    expect([code, stderr]).toEqual([2, expect.stringContaining('The config file is given twice')])
  })
})

describe('--version', () => {
  it('prints the version of the package', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
    expect(await runInProcess(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
    expect((await runInProcess(['check', '--version'])).stdout).toBe(`${version}\n`)
  })
})
