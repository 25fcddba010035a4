/** `npx sluicegate build`: the generated files contain only what the config uses. */
import { execFile } from 'node:child_process'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { describe, expect, it } from 'vitest'
import type { ApiRoutes, ConfigInput, LimitRuleInput } from '../../src/config/check/schema.ts'
import { compileGatewayRule } from '../../src/config/compile-rule.ts'
import { probeRuleSet } from '../../src/limiter/probe.ts'
import { buildWorker, builtFiles, workerModule } from '../../src/node/build-worker.ts'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { findProject } from '../../src/node/project.ts'
import { bundleOptions } from '../../src/node/worker-bundle.ts'
import { withMissingParts } from '../../src/not-built.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { createScriptFinder, fingerprintOf } from '../../src/script/built-scripts.ts'
import { gatewayRuleSet, limitRuleSet } from '../../src/script/compiled.ts'
import { createGatewayRuleSet, createLimitRuleSet } from '../../src/script/rule-set.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { configOf } from '../support/engines.ts'
import { useStack } from '../support/stack.ts'

const SLUICE = fileURLToPath(new URL('../../src/node/cli/sluice.ts', import.meta.url))
const EVERYTHING = fileURLToPath(new URL('../support/shedding.config.ts', import.meta.url))

const { builtFolder: BUILT_FOLDER, configFile: CONFIG_FILE } = findProject()

const SECRET = 'secret-of-the-machines'

const second = { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' } as const

/** What a Worker carries for a rule of a unit, or with `countIf`. */
const OF_UNITS = [
  ...['compileUnits', 'createDecideRequestWithAmounts'],
  ...['createEngineWithReservations', 'withReservations'],
]

/** Limits that need other parts than `second`: another algorithm, and a calendar period. */
const LIMITS = {
  calls: [{ name: 'second', algorithm: 'sliding-log', limit: 10, period: '1s' }],
  mails: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 10, period: 'day' }],
} satisfies ConfigInput['limits']

const OF_TOKENS = {
  llm: [{ name: 'minute', algorithm: 'fixed-window', limit: 1000, period: '1m', unit: 'tokens' }],
} satisfies ConfigInput['limits']
const IN_FLIGHT = {
  exports: [{ name: 'at-once', algorithm: 'concurrency', limit: 2 }],
} satisfies ConfigInput['limits']

/** What the API of a Worker carries for limits like these. */
const RESERVING = ['createReserving', 'reservationsRoutes', 'reservationsOperations']
const HOLDING = ['createHolder', 'heldUnitsRoutes', 'heldUnitsOperations']
/** The files of these parts. */
const RESERVING_OR_HOLDING =
  /set-ups\/(limits\/(held|reserve)|api\/(handlers|operations)\/(held-units|reservations))\.ts$/

const inFolder = (folder: string) =>
  new Map(readdirSync(folder).map(name => [name, readFileSync(join(folder, name), 'utf8')]))

describe('the module of a Worker', () => {
  it('is up to date with the shipped config in src/built (npx sluicegate build)', async () => {
    expect(inFolder(BUILT_FOLDER)).toEqual(builtFiles(await loadConfig()))
  })

  it('is written only if its content has changed, because wrangler watches its folder', () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    const project = { builtFolder: folder, packageName: '' }
    const config = configOf({ rules: [second] })
    buildWorker(configOf({ rules: [{ ...second, limit: 11 }], limits: LIMITS }), project)
    buildWorker(config, project)
    expect(inFolder(folder)).toEqual(builtFiles(config))
    const longAgo = new Date('2026-01-01')
    const files = [...builtFiles(config).keys()].map(name => join(folder, name))
    for (const file of files) utimesSync(file, longAgo, longAgo)
    buildWorker(config, project)
    expect(files.map(file => statSync(file).mtime)).toEqual([longAgo, longAgo, longAgo])
    rmSync(folder, { recursive: true })
  })

  it('does not change if the config has a mistake, and the command names the mistake', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    const file = join(directory, 'wrong.config.ts')
    writeFileSync(file, "export default { origin: 'https://api.example.com', plans: [] }")
    const before = inFolder(BUILT_FOLDER)
    const failed = promisify(execFile)(process.execPath, [SLUICE, 'build', file])
    await expect(failed).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining('plans: [] is empty.'),
    })
    expect(inFolder(BUILT_FOLDER)).toEqual(before)
    rmSync(directory, { recursive: true })
  })

  it('is made even if the config has no rules, or only limits by name', async () => {
    const project = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    for (const [config, built] of [
      [{}, "the Worker's scripts for a config without rules"],
      [{ rules: [] }, "the Worker's scripts for a config without rules"],
      [
        { origin: 'route', limits: LIMITS },
        "the Worker's scripts for a config without rules and 2 limits by name",
      ],
      [{ limits: LIMITS }, 'the scripts for 2 limits by name'],
    ] as const) {
      writeFileSync(join(project, 'sluice.config.ts'), `export default ${JSON.stringify(config)}`)
      const { stdout } = await promisify(execFile)(process.execPath, [SLUICE, 'build'], { cwd: project })
      expect(stdout).toBe(`Built ${built}.\n`)
      const module = readFileSync(join(project, 'src/built/worker.generated.ts'), 'utf8')
      expect(module).toContain(fingerprintOf(gatewayRuleSet(configOf(config as ConfigInput))))
    }
    rmSync(project, { recursive: true })
  })

  /** Builds in a temporary project. @returns the path from which the module imports its config */
  async function importedBy(files: readonly string[], args: readonly string[]): Promise<string | undefined> {
    const project = realpathSync(mkdtempSync(join(tmpdir(), 'sluice-build-')))
    try {
      for (const file of files) {
        mkdirSync(dirname(join(project, file)), { recursive: true })
        const config = { origin: 'https://api.example.com', rules: [second] }
        const text = JSON.stringify(file === 'package.json' ? { type: 'module' } : config)
        writeFileSync(join(project, file), file === 'package.json' ? text : `export default ${text}`)
      }
      await promisify(execFile)(process.execPath, [SLUICE, ...args], { cwd: project })
      const module = readFileSync(join(project, 'src/built/worker.generated.ts'), 'utf8')
      return /^import config from '(.*)'$/m.exec(module)?.[1]
    } finally {
      rmSync(project, { recursive: true })
    }
  }

  it.each([
    [['sluice.config.ts', 'other.config.ts'], ['build', 'other.config.ts'], '../../other.config.ts'],
    [['sluice.config.ts', 'src/b.ts'], ['--config', 'src/b.ts', 'build'], '../b.ts'],
    [['sluice.config.ts', 'src/built/c.ts'], ['build', 'src/built/c.ts'], './c.ts'],
    [['package.json', 'only.mjs'], ['build', 'only.mjs'], '../../only.mjs'],
    [['package.json', 'sluice.config.js'], ['build', 'sluice.config.js'], '../../sluice.config.js'],
    [['package.json', 'sluice.config.js'], ['build'], '../../sluice.config.js'],
    [['sluice.config.mjs'], ['build'], '../../sluice.config.mjs'],
    [['sluice.config.mts', 'sluice.config.mjs'], ['build'], '../../sluice.config.mts'],
    [['sluice.config.ts', 'sluice.config.mts'], ['build'], '../../sluice.config.ts'],
  ])('imports the config that was loaded: files %j, sluicegate %j', async (files, args, imported) => {
    expect(await importedBy(files, args)).toBe(imported)
  })

  it('is bundled with the named config, also in a project with a JavaScript config', async () => {
    const project = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    mkdirSync(join(project, 'src/built'), { recursive: true })
    writeFileSync(
      join(project, 'src/index.ts'),
      "export { default } from './built/worker.generated.ts'\nexport { default as own } from '../sluice.config.js'",
    )
    writeFileSync(join(project, 'src/built/worker.generated.ts'), '')
    const file = join(project, 'sluice.config.js')
    const config = { origin: 'https://named.example.com', rules: [second] }
    writeFileSync(file, `export default ${JSON.stringify(config)}`)
    const own = { root: project, configFile: file, builtFolder: join(project, 'src/built') }
    const { outputFiles } = await build({
      ...bundleOptions(file, () => loadConfig(file), { ...own, packageName: '' }),
      external: ['*/set-ups/gateway/built.ts'],
    })
    expect(outputFiles![0]!.text.match(/named\.example/g)).toHaveLength(1)
    rmSync(project, { recursive: true })
  })

  it('contains only the algorithms and parts that the config uses, and throws if others are used', async () => {
    const strict = { ...second, onStoreFailure: 'closed' } as const
    const few = workerModule(configOf({ rules: [strict], stats: { keep: false } }))
    expect(few).toContain("countings: { 'gcra': gcra }")
    for (const part of [
      ...['windowEnds', 'evaluateOnCluster', 'addressBehindProxies'],
      ...[
        'answerPreflight',
        'setAllowedOrigin',
        'createLocalLimiter',
        'createStatsRecorder',
        'createTopCallers',
        'createHoldingsKeeper',
        'observeEnd',
      ],
      ...['syncScript', 'signalScript', 'classOfRequest', 'matchByRequest', 'createOriginLoad'],
      ...[
        'createClientAddressReader',
        'createHookRunner',
        'createXRateLimit',
        'withWebSocketKeys',
        'createOpaqueKeyFinder',
        'createSignatureCheck',
        'createGuesses',
      ],
      'createTokenFinder',
      ...['createMeasurements', 'createOtlpMeasurements', 'createMetricsEndpoint', 'prepareFleet'],
      ...['createUtilizationShedderAndBoard', 'createAdaptiveLimit', 'createPushReceiver'],
      ...['compileFleetRules', 'compileShedding', 'compileAdaptive'],
    ]) {
      expect(few).not.toContain(part)
    }
    expect(few).not.toContain('"refund"')
    const all = workerModule(await loadConfig(EVERYTHING))
    // The address comes from headers of proxies, so no Worker is trusted to pass it on.
    expect(all).not.toContain('createClientAddressReader')
    expect(all).toContain('"refund"')
    for (const part of ['createOpaqueKeyFinder', 'createTokenFinder']) expect(all).toContain(`    ${part},`)
    expect(() => withMissingParts<{ cors(): void }>({}).cors()).toThrow(
      "src/built/ was built for another config: it lacks the part 'cors'. Run npx sluicegate build.",
    )
  })

  it.each<[string, Partial<ConfigInput>, string[]]>([
    ['no unit', { rules: [second] }, []],
    ['countIf', { rules: [{ ...second, countIf: { status: [401] } }] }, [...OF_UNITS, 'observeEnd']],
    [
      'a unit of milliseconds',
      { units: { ms: { estimate: 100, actual: 'ms' } }, rules: [{ ...second, unit: 'ms' }] },
      [...OF_UNITS, 'observeEnd'],
    ],
    [
      'tokens',
      {
        units: { tokens: { estimate: 'llm', actual: { usage: 'openai' } } },
        rules: [{ ...second, unit: 'tokens' }],
      },
      [...OF_UNITS, 'createEstimateAmounts', 'createUsageReader', 'createErrorShapes', 'observeEnd'],
    ],
    [
      'tokens, with problem details',
      {
        units: { tokens: { estimate: 5, actual: { usage: 'openai', errors: 'problem' } } },
        rules: [{ ...second, unit: 'tokens' }],
      },
      [...OF_UNITS, 'createUsageReader', 'observeEnd'],
    ],
    [
      'a unit without an actual amount',
      { units: { tokens: { estimate: 5 } }, rules: [{ ...second, unit: 'tokens' }] },
      ['compileUnits', 'createDecideRequestWithAmounts'],
    ],
    ['a unit of limits by name alone', { units: { tokens: {} }, rules: [second] }, ['compileUnits']],
  ])('carries what its units need: %s', (_, config, expected) => {
    const ofReplies = ['createUsageReader', 'createErrorShapes', 'observeEnd', 'withActualHook']
    const parts = [...OF_UNITS, 'createEstimateAmounts', ...ofReplies]
    const text = workerModule(configOf(config))
    expect(parts.filter(part => new RegExp(`\\b${part}\\b`).test(text))).toEqual(expected)
  })

  it('carries nothing that measures the process, and does not fail, if a config for servers asks for it', () => {
    const classes = [{ name: 'all' }, { name: 'posts', match: { methods: ['POST'] } }]
    const shedding = { classes, workerUtilization: { signals: ['event-loop'] } }
    const text = workerModule(configOf({ rules: [second], shedding } as Parameters<typeof configOf>[0]))
    expect(text).toContain('createProcessPressure: undefined')
    expect(text.match(/^import .*/m)![0]).not.toContain('createProcessPressure')
  })

  it('is bundled without any file about units if the config has none', async () => {
    const { metafile } = await build({
      ...bundleOptions(CONFIG_FILE, () => loadConfig(CONFIG_FILE)),
      metafile: true,
    })
    const { inputs } = Object.values(metafile!.outputs)[0]!
    const carried = Object.keys(inputs).filter(file => inputs[file]!.bytesInOutput > 0)
    expect(carried).toContain('src/limiter/engine.ts')
    expect(carried.filter(file => /units|amount|settle|reserv|src\/usage/.test(file))).toEqual([])
  })

  it.each([
    ['cloudflare', false],
    ['peer', false],
    ['x-forwarded-for', true],
    ['forwarded', true],
  ] as const)('reads headers of proxies only if the address comes from them: %s, %s', (from, isUsed) => {
    const trusted = isUsed ? { trustedProxies: ['10.0.0.0/8'] } : {}
    const text = workerModule(configOf({ rules: [second], address: { from, ...trusted } }))
    expect(text.includes('    addressBehindProxies,')).toBe(isUsed)
  })

  it('starts a Worker whose limits by name use algorithms that its rules do not use', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    const file = join(directory, 'limits.config.ts')
    const config = { origin: 'https://api.example.com', rules: [second], limits: LIMITS }
    writeFileSync(file, `export default ${JSON.stringify(config)}`)
    const { outputFiles } = await build(bundleOptions(file, () => loadConfig(file)))
    const bundle = join(directory, 'worker.mjs')
    writeFileSync(bundle, outputFiles![0]!.contents)
    const worker = await import(pathToFileURL(bundle).href)
    expect(worker.default.fetch).toBeTypeOf('function')
    rmSync(directory, { recursive: true })
  })

  it.each([
    ['itself', CONFIG_FILE],
    ['through another file', './base.ts'],
  ])('includes a config that imports the config of the project %s', async (_, imported) => {
    const directory = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    const file = join(directory, 'sluice.config.ts')
    writeFileSync(join(directory, 'base.ts'), `export { default } from ${JSON.stringify(CONFIG_FILE)}\n`)
    writeFileSync(
      file,
      `import own from ${JSON.stringify(imported)}\nexport default { ...own, originDeadline: '7s' }\n`,
    )
    const { outputFiles } = await build(bundleOptions(file, () => loadConfig(file)))
    expect(outputFiles![0]!.text).toContain('originDeadline: "7s"')
    expect(outputFiles![0]!.text).toContain('"address-hour"')
    rmSync(directory, { recursive: true })
  })

  it('begins a bundle with the largest packages, because compression looks back only 32 kB', async () => {
    const { outputFiles } = await build(bundleOptions(CONFIG_FILE, () => loadConfig()))
    const files = [...outputFiles![0]!.text.matchAll(/^\/\/ (\S+\.m?[jt]s)$/gm)].map(([, file]) => file!)
    const own = files.findIndex(file => file.startsWith('src/'))
    expect(own).toBeGreaterThan(0)
    expect(files.findLastIndex(file => /node_modules/.test(file))).toBeLessThan(own)
  })

  it('ends a bundle with all scripts, because compression finds what they have in common', async () => {
    const file = fileURLToPath(new URL('../support/api.config.ts', import.meta.url))
    const { outputFiles } = await build(bundleOptions(file, () => loadConfig(file)))
    const files = [...outputFiles![0]!.text.matchAll(/^\/\/ (src\/\S+\.ts)$/gm)].map(([, file]) => file!)
    expect(files.slice(-2)).toEqual(['src/built/limits.generated.ts', 'src/built/worker.generated.ts'])
  })

  it('has no advice about the command line, which callers of the API cannot follow', async () => {
    const file = fileURLToPath(new URL('../support/api.config.ts', import.meta.url))
    const { outputFiles } = await build(bundleOptions(file, () => loadConfig(file)))
    const code = outputFiles![0]!.text.split('\n').filter(line => !/^\s*(\/\/|\*)/.test(line))
    const advice = code.filter(line => /npx sluicegate (?!build\b)|[\s'"`(]--[a-z]{2}/.test(line))
    expect(advice).toEqual([])
  })

  it.each<[string, Partial<ConfigInput>, boolean]>([
    ['rules of requests', { rules: [second] }, false],
    ['rules of a unit', { units: { ms: { estimate: 1 } }, rules: [{ ...second, unit: 'ms' }] }, true],
    ['countIf', { rules: [{ ...second, countIf: { status: [401] } }] }, true],
  ])('carries the checks of estimates for overrides only with %s', (_, config, isUsed) => {
    for (const routes of ['overrides', 'keys'] as const) {
      const text = workerModule(configOf({ ...config, api: { routes: [routes] } }))
      expect(text.includes('    mistakesOfSettlement,')).toBe(isUsed && routes === 'overrides')
    }
  })

  it('carries what the OpenAPI document says only with that document, and only about its own parts', () => {
    const moduleWith = (...routes: ApiRoutes[]) =>
      workerModule(configOf({ rules: [second], api: { routes } }))
    expect(moduleWith('keys', 'openapi')).toContain(
      'createOpenapiRoutes([keysOperations, openapiOperations])',
    )
    expect(moduleWith('keys', 'openapi')).not.toContain('tokensOperations')
    expect(moduleWith('keys')).not.toContain('Operations')
    const withImport = { rules: [second], credentials: { opaqueKeys: {} } }
    expect(workerModule(configOf({ ...withImport, api: { routes: ['keys', 'openapi'] } }))).toContain(
      'createOpenapiRoutes([keysOperations, openapiOperations, importOperations])',
    )
  })

  it.each<[string, Partial<ConfigInput>, boolean]>([
    ['that accepts imported keys', { credentials: { opaqueKeys: {} } }, true],
    ['without them', {}, false],
  ])('carries the import of keys only for a config %s', (_, config, isUsed) => {
    const text = workerModule(configOf({ ...config, rules: [second], api: {} }))
    expect(text.includes('...keysRoutes, ...importRoutes,')).toBe(isUsed)
    expect(text.includes('importRoutes')).toBe(isUsed)
  })

  it.each<[string, Partial<ConfigInput>, string[]]>([
    ['requests', { limits: LIMITS }, []],
    ['a unit', { units: { tokens: {} }, limits: { ...LIMITS, ...OF_TOKENS } }, RESERVING],
    [
      'requests, and rules of a unit',
      { units: { ms: { estimate: 1, actual: 'ms' } }, rules: [{ ...second, unit: 'ms' }], limits: LIMITS },
      [],
    ],
    ['requests in flight', { limits: { ...LIMITS, ...IN_FLIGHT } }, HOLDING],
    [
      'requests, and rules in flight',
      { rules: [{ name: 'at-once', by: 'consumer', algorithm: 'concurrency', limit: 2 }], limits: LIMITS },
      [],
    ],
    [
      'both',
      { units: { tokens: {} }, limits: { ...LIMITS, ...OF_TOKENS, ...IN_FLIGHT } },
      [...RESERVING, ...HOLDING],
    ],
    [
      'both, which the API does not serve',
      { units: { tokens: {} }, limits: { ...OF_TOKENS, ...IN_FLIGHT }, api: { routes: ['keys', 'openapi'] } },
      [],
    ],
  ])(
    'carries what reserves and holds units over HTTP only with limits that can: %s',
    (_, config, expected) => {
      const text = workerModule(
        configOf({ rules: [second], api: { routes: ['limits', 'openapi'] }, ...config }),
      )
      expect([...RESERVING, ...HOLDING].filter(part => text.includes(part))).toEqual(expected)
    },
  )

  it.each<[string, ConfigInput['limits'], string[]]>([
    ['requests', LIMITS, []],
    ['all kinds', { ...LIMITS, ...OF_TOKENS, ...IN_FLIGHT }, ['reserve', 'settle', 'renew', 'release']],
  ])(
    'is a Worker whose API serves the routes of its document, and names what others need: limits of %s',
    async (_, limits, expected) => {
      const directory = mkdtempSync(join(tmpdir(), 'sluice-build-'))
      const file = join(directory, 'api.config.ts')
      const config = {
        origin: 'https://api.example.com',
        api: { routes: 'all' },
        units: { tokens: {} },
        limits,
      }
      writeFileSync(file, `export default ${JSON.stringify(config)}`)
      const { outputFiles, metafile } = await build({
        ...bundleOptions(file, () => loadConfig(file)),
        metafile: true,
      })
      const { inputs } = Object.values(metafile.outputs)[0]!
      const carried = Object.keys(inputs).filter(path => inputs[path]!.bytesInOutput > 0)
      const ofApi = carried.filter(path => RESERVING_OR_HOLDING.test(path))
      expect(ofApi).toHaveLength(expected.length > 0 ? 6 : 0)
      const bundle = join(directory, 'worker.mjs')
      writeFileSync(bundle, outputFiles![0]!.contents)
      const worker = (await import(pathToFileURL(bundle).href)).default
      rmSync(directory, { recursive: true })
      const env = { UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:1', UPSTASH_REDIS_REST_TOKEN: 't' }
      const send = async (method: string, path: string) => {
        const request = new Request(`https://a.test/_sluice/v1/${path}`, { method })
        const reply: Response = await worker.fetch(request, env, { waitUntil: () => {} })
        return { status: reply.status, body: (await reply.json()) as { paths: object; detail: string } }
      }
      const { paths } = (await send('GET', 'openapi.json')).body
      for (const verb of ['reserve', 'settle', 'renew', 'release']) {
        const isServed = expected.includes(verb)
        expect([verb, `/limits/{name}/${verb}` in paths]).toEqual([verb, isServed])
        const { status, body } = await send('POST', `limits/calls/${verb}`)
        // The routes that are served ask for a token.
        expect([verb, status]).toEqual([verb, isServed ? 401 : 404])
        if (!isServed) expect(body.detail).toContain(verb)
      }
    },
  )

  it.each<[string, Partial<ConfigInput>, string]>([
    ['rules of requests', { rules: [second] }, 'sumCounts'],
    [
      'rules that reserve',
      { units: { ms: { estimate: 100, actual: 'ms' } }, rules: [{ ...second, unit: 'ms' }] },
      'sumFields',
    ],
  ])('carries what sums reservations only with %s', (what, config, sum) => {
    const text = workerModule(configOf({ ...config, api: { routes: ['stats'] } }))
    expect(text).toContain(`    sumStats: ${sum},`)
    expect(text.includes('sumFields')).toBe(what === 'rules that reserve')
    expect(workerModule(configOf({ ...config, api: {} }))).not.toContain('sumStats')
  })

  it('adds no compiler to the bundle', async () => {
    const { metafile, outputFiles } = await build({
      ...bundleOptions(CONFIG_FILE, () => loadConfig()),
      metafile: true,
      minify: true,
    })
    const [output] = Object.values(metafile!.outputs)
    const carried = Object.entries(output!.inputs).flatMap(([file, { bytesInOutput }]) =>
      bytesInOutput > 0 ? [file] : [],
    )
    expect(carried).toContain('src/built/worker.generated.ts')
    expect(carried).not.toContain('src/built/limits.generated.ts')
    expect(carried).not.toContain('src/built/binding.generated.ts')
    for (const file of ['rule-set-text', 'lua-text', 'scripts', 'lua.generated']) {
      expect(carried).not.toContain(`src/script/${file}.ts`)
    }
    expect(
      carried.filter(file =>
        /calendar\.ts|slots\.ts|cors\.ts|proxies\.ts|forwarded\.ts|token-bucket|sliding|leaky/.test(file),
      ),
    ).toEqual([])
    // The only hash is SHA-256. The text 428a2f98d728ae22 is the first constant of SHA-512.
    expect(carried.filter(file => /@noble.*(legacy|blake|sha3)|src\/sha1/.test(file))).toEqual([])
    expect(carried.some(file => /@noble\/hashes\/sha2\.js$/.test(file))).toBe(true)
    expect(outputFiles!.some(({ text }) => text.includes('428a2f98d728ae22'))).toBe(false)
  })
})

describe('the module of a service binding', () => {
  const moduleOf = (config: Partial<ConfigInput>) =>
    builtFiles(configOf({ rules: [second], ...config })).get('binding.generated.ts')!
  const calls = LIMITS.calls[0]!

  it('contains only the algorithms and parts that the limits use', () => {
    const parts = [
      ...['windowEnds', 'evaluateOnCluster', 'createLocalLimiter', 'createLeases', 'createRefusalMemory'],
      ...['createHoldingsKeeper', 'syncScript', 'createStatsRecorder', 'createTopCallers'],
    ]
    const few = moduleOf({
      stats: { keep: false },
      limits: { calls: [{ ...calls, onStoreFailure: 'closed' }] },
      refusals: { rememberFor: 0 },
    })
    // The algorithm of the rule of the gateway is not there.
    expect(few).toContain("countings: { 'sliding-log': slidingLog },")
    expect(parts.filter(part => few.includes(part))).toEqual([])
    const all = moduleOf({
      stats: {},
      store: { cluster: true },
      limits: {
        ...LIMITS,
        exports: [{ name: 'at-once', algorithm: 'concurrency', limit: 2 }],
        mails: [{ ...LIMITS.mails[0]!, lease: { for: '1s' } }],
      },
    })
    expect(parts.filter(part => !all.includes(part))).toEqual([])
  })

  it('is generated even if the config has no limits, because an entry file may export it', () => {
    expect(moduleOf({})).toContain('export class Limits extends builtEntrypoint(config, {')
  })

  it('is replaced in a bundle if the config has a mistake, which npm start reports after bundling', async () => {
    const { entryPoints: _, ...options } = bundleOptions(CONFIG_FILE, () => Promise.reject(new Error()))
    const contents = `
      export { default } from './src/built/worker.generated.ts'
      export { Limits } from './src/built/binding.generated.ts'`
    const bundled = build({
      ...options,
      stdin: { contents, resolveDir: options.absWorkingDir!, loader: 'js' },
    })
    await expect(bundled).resolves.toMatchObject({ errors: [] })
  })

  it('adds neither a compiler nor the check of the config to the bundle', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    const file = join(directory, 'limits.config.ts')
    const exports = [{ name: 'at-once', algorithm: 'concurrency', limit: 2 }]
    writeFileSync(file, `export default ${JSON.stringify({ limits: { ...LIMITS, exports } })}`)
    const { entryPoints: _, ...options } = bundleOptions(file, () => loadConfig(file))
    const contents = "export { Limits } from './src/built/binding.generated.ts'; export default {}"
    const { metafile } = await build({
      ...options,
      stdin: { contents, resolveDir: options.absWorkingDir!, loader: 'ts' },
      metafile: true,
      minify: true,
    })
    rmSync(directory, { recursive: true })
    const [output] = Object.values(metafile!.outputs)
    const carried = Object.entries(output!.inputs).flatMap(([path, { bytesInOutput }]) =>
      bytesInOutput > 0 ? [path] : [],
    )
    expect(carried).toContain('src/built/limits.generated.ts')
    expect(
      carried.filter(path => /valibot|src\/config\/check\/(?!mistake\.ts)|environment-hints/.test(path)),
    ).toEqual([])
    expect(
      carried.filter(path =>
        /-text\.ts|src\/script\/(scripts|reset|lua\.generated)\.ts|lua\.generated|@noble.*legacy|src\/sha1/.test(
          path,
        ),
      ),
    ).toEqual([])
    expect(carried.filter(path => /src\/set-ups\/(http|gateway)|node_modules\/hono/.test(path))).toEqual([])
  })
})

describe('built scripts', () => {
  const config = configOf({ rules: [second] })
  const { plain, keyLocking } = gatewayRuleSet(config).decide
  const built = {
    [fingerprintOf(gatewayRuleSet(config))]: {
      decide: { text: plain.source.slice(1), sha1: { plain: plain.sha1, keyLocking: keyLocking.sha1 } },
    },
  }

  it('equal the compiled scripts', () => {
    expect(createGatewayRuleSet(config, createScriptFinder(built)).decide).toEqual({ plain, keyLocking })
  })

  it('do not include scripts and algorithms that the config does not use', () => {
    expect(createGatewayRuleSet(config, createScriptFinder(built)).refund).toBeUndefined()
    const none = { countings: {}, windowEnds: () => [] }
    expect(() => compileGatewayRule(second, ['free'], none)).toThrow("it lacks the algorithm 'gcra'.")
  })

  it('are refused for other rules', () => {
    const others = [
      { ...second, limit: 11 },
      { ...second, name: 'other' },
      { ...second, by: 'address' as const },
    ]
    for (const other of others) {
      expect(() => createGatewayRuleSet(configOf({ rules: [other] }), createScriptFinder(built))).toThrow(
        'src/built/ was built for another config: it lacks the scripts of these rules. Run npx sluicegate build.',
      )
    }
  })
})

describe('limits by name', () => {
  const store = { run: () => Promise.reject(new Error('not asked')), ping: async () => {} }
  const built = (limits: ConfigInput['limits']) => {
    const text = builtFiles(configOf({ rules: [second], ...(limits && { limits }) })).get(
      'limits.generated.ts',
    )!
    return createScriptFinder(JSON.parse(/createScriptFinder\((.*)\)/s.exec(text)![1]!))
  }

  it('have built scripts, and a built probe, that equal the compiled ones', () => {
    const scriptsOf = built(LIMITS)
    for (const rules of configOf({ rules: [second], limits: LIMITS }).limits.values()) {
      const compiled = limitRuleSet(rules)
      const found = createLimitRuleSet(rules, scriptsOf)
      for (const script of ['decide', 'refund'] as const) {
        const { plain, keyLocking } = compiled[script]
        expect(found[script]).toEqual({ plain, keyLocking })
      }
    }
    expect(probeRuleSet(scriptsOf).decide.plain.source).toBe(probeRuleSet(compileScripts).decide.plain.source)
  })

  it('come in an order in which many of them compress well', () => {
    const algorithms = ['gcra', 'fixed-window', 'sliding-window', 'token-bucket', 'sliding-log'] as const
    const ruleOf = (i: number) =>
      ({ name: `rule-${i}`, algorithm: algorithms[i % 5]!, period: '1m', limit: 10 + i }) as LimitRuleInput
    const limits = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`limit-${i}`, [ruleOf(i)]]))
    const text = builtFiles(configOf({ rules: [second], limits })).get('limits.generated.ts')!
    // They take 14.8 kB, and 29.4 kB in the order of the config.
    expect(gzipSync(text).length).toBeLessThan(18_000)
  })

  it('come with what checks the numbers of calls, if calls give any', () => {
    const tenant = [
      {
        name: 'quota',
        algorithm: 'gcra' as const,
        numbers: 'call' as const,
        max: { limit: 9, period: '1s' as const },
      },
    ]
    const files = (limits: ConfigInput['limits']) =>
      builtFiles(configOf({ rules: [second], limits, api: { routes: ['limits'] } }))
    for (const name of ['worker.generated.ts', 'binding.generated.ts']) {
      expect(files({ tenant }).get(name)).toMatch(
        / createGiveNumbers,\n +ruleNumbers: { 'gcra': { numbers: gcraNumbers/,
      )
      expect(files(LIMITS).get(name)).not.toContain('createGiveNumbers')
    }
  })

  it('are refused at creation if the build did not include them', () => {
    const config = configOf({ rules: [second], limits: LIMITS })
    expect(() => createLimiterOnStore(config, store, { scriptsOf: built(LIMITS) })).not.toThrow()
    expect(() => createLimiterOnStore(config, store, { scriptsOf: built({ mails: LIMITS.mails }) })).toThrow(
      'src/built/ was built for another config: it lacks the scripts of these rules.',
    )
  })
})

describe('a Worker with every part', () => {
  const running = useStack('shedding.config.ts', {
    JWT_SECRET: 'a secret of the tests, of 32 bytes and some more',
    SLUICE_UTILIZATION_SECRET: SECRET,
    SLUICE_METRICS_TOKEN: SECRET,
  })

  it('makes decisions', async () => {
    const store = createAdminStore({ ...running.stack.rest, environment: 'test' })
    const { key } = await createKey(store, { consumer: 'acme', plan: 'pro' })
    const { status, headers } = await fetch(`${running.stack.url}/reports/7`, {
      headers: { 'x-api-key': key },
    })
    expect([status, headers.get('sluice-degraded')]).toEqual([200, null])
    expect(headers.get('ratelimit-policy')).toMatch(/"day";q=200000/)
    expect((await fetch(running.stack.url)).headers.get('ratelimit-policy')).toMatch(/"window";q=100000/)
  })

  it('calls the hooks', async () => {
    const { status, headers } = await fetch(running.stack.url, {
      method: 'POST',
      body: 'a body that no hook reads',
      headers: { 'x-user': 'alice' },
    })
    expect([status, headers.get('sluice-degraded')]).toEqual([200, null])
    expect(running.origin.received.at(-1)!.headers['x-consumer-id']).toBe('identify~alice')
    expect(running.origin.received.at(-1)!.bodyBytes).toBe(25)
  })

  it('accepts pushed utilization only with the secret', async () => {
    const push = async (secret: string) => {
      const headers = { authorization: `Bearer ${secret}` }
      const body = JSON.stringify({ reporter: 'api-7', utilization: 0.83 })
      const url = `${running.stack.url}/_sluice/utilization`
      return (await fetch(url, { method: 'POST', headers, body })).status
    }
    expect([await push(SECRET), await push('another')]).toEqual([204, 401])
  })

  it('serves metrics, with the load of the origin', async () => {
    const scrape = (secret: string) =>
      fetch(`${running.stack.url}/_sluice/metrics`, { headers: { authorization: `Bearer ${secret}` } })
    expect((await scrape('another')).status).toBe(401)
    const text = await (await scrape(SECRET)).text()
    expect(text).toMatch(/^sluice_store_up 1$/m)
    for (const gauge of ['fleet_limit', 'adaptive_limit', 'pressure_seconds'])
      expect(text).toMatch(new RegExp(`^gateway_rate_limit_${gauge}\\b.* \\d`, 'm'))
  })
})
