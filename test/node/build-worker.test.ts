/** What a Worker carries of its config: `npx sluice build`. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import { describe, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { compileGatewayRule } from '../../src/config/compile-rule.ts'
import { createLimiter } from '../../src/edges/limits/limiter.ts'
import { probePolicy } from '../../src/limiter/probe.ts'
import { BUILT_FOLDER, buildWorker, builtFiles, workerModule } from '../../src/node/build-worker.ts'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { bundleOptions, CONFIG_FILE } from '../../src/node/worker-bundle.ts'
import { notBuilt } from '../../src/not-built.ts'
import { adminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { finderOf, fingerprintOf } from '../../src/script/built-scripts.ts'
import { gatewayPolicy, limitPolicy } from '../../src/script/compiled.ts'
import { createGatewayPolicy, createLimitPolicy } from '../../src/script/policy.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { configOf } from '../support/engines.ts'
import { useStack } from '../support/stack.ts'

const SLUICE = fileURLToPath(new URL('../../src/node/cli/sluice.ts', import.meta.url))
const EVERYTHING = fileURLToPath(new URL('../support/shedding.config.ts', import.meta.url))

const SECRET = 'secret-of-the-machines'

const second = { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' } as const

/** Of what `second` is not: another algorithm, and a calendar. */
const LIMITS = {
  calls: [{ name: 'second', algorithm: 'sliding-log', limit: 10, period: '1s' }],
  mails: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 10, period: 'day' }],
} satisfies ConfigInput['limits']

const inFolder = (folder: string) =>
  new Map(readdirSync(folder).map(name => [name, readFileSync(join(folder, name), 'utf8')]))

describe('the module of a Worker', () => {
  it('is in src/built as the shipped config makes it (npx sluice build)', async () => {
    expect(inFolder(BUILT_FOLDER)).toEqual(builtFiles(await loadConfig()))
  })

  it('is written where it is another, and not again: wrangler watches its folder', () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    const config = configOf({ rules: [second] })
    buildWorker(configOf({ rules: [{ ...second, limit: 11 }], limits: LIMITS }), folder)
    buildWorker(config, folder)
    expect(inFolder(folder)).toEqual(builtFiles(config))
    const longAgo = new Date('2026-01-01')
    const files = [...builtFiles(config).keys()].map(name => join(folder, name))
    for (const file of files) utimesSync(file, longAgo, longAgo)
    buildWorker(config, folder)
    expect(files.map(file => statSync(file).mtime)).toEqual([longAgo, longAgo])
    rmSync(folder, { recursive: true })
  })

  it('stays as it is when the config has a mistake, which the command names', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'sluice-build-'))
    const file = join(directory, 'wrong.config.ts')
    writeFileSync(file, "export default { origin: 'https://api.example.com', rules: [] }")
    const before = inFolder(BUILT_FOLDER)
    const failed = promisify(execFile)(process.execPath, [SLUICE, 'build', file])
    await expect(failed).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining('rules: [] is empty.'),
    })
    expect(inFolder(BUILT_FOLDER)).toEqual(before)
    rmSync(directory, { recursive: true })
  })

  it('has the algorithms and parts that the config uses, and throws for the others', async () => {
    const strict = { ...second, onStoreFailure: 'closed' } as const
    const few = workerModule(configOf({ rules: [strict], stats: { keep: false } }))
    expect(few).toContain("countings: { 'gcra': gcra.counting }")
    for (const part of [
      ...['windowEnds', 'evaluateOnCluster', 'addressBehindProxies'],
      ...[
        'answerPreflight',
        'setAllowedOrigin',
        'createLocalLimiter',
        'createStats',
        'createHoldings',
        'whenOver',
      ],
      ...['syncScript', 'signalScript', 'withSignals', 'refreshOverdue', 'classFor', 'createOriginLoad'],
      ...['createWorkerUtilization', 'createAdaptiveLimit', 'receivePushes'],
      ...['compileFleetRules', 'compileShedding', 'compileAdaptive'],
    ]) {
      expect(few).toContain(`${part}: notBuilt('${part}')`)
    }
    expect(few).not.toContain('"refund"')
    const all = workerModule(await loadConfig(EVERYTHING))
    expect(all).not.toContain('notBuilt')
    // Isolates hold in advance what they have of a fixed capacity, and that one adapts.
    expect(all).not.toContain('createStock')
    const classes = [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'other' }]
    const fixed = configOf({ rules: [strict], shedding: { classes, fleetUsage: { capacity: 10 } } })
    expect(workerModule(fixed)).toContain('createStock')
    expect(all).toContain('"refund"')
    expect(() => notBuilt('cors')()).toThrow(
      "What was built is for another config: it does not have the part 'cors'. Build it again with npx sluice build.",
    )
  })

  it.each([
    ['cloudflare', false],
    ['peer', false],
    ['x-forwarded-for', true],
    ['forwarded', true],
  ] as const)('reads headers of proxies where the address is from %s: %s', (from, isUsed) => {
    const trusted = isUsed ? { trustedProxies: ['10.0.0.0/8'] } : {}
    const text = workerModule(configOf({ rules: [second], address: { from, ...trusted } }))
    expect(text).toContain(
      `addressBehindProxies: ${isUsed ? 'addressBehindProxies' : "notBuilt('addressBehindProxies')"},`,
    )
  })

  it('starts a Worker whose limits by name use what its rules do not', async () => {
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

  it('brings no compiler into the bundle', async () => {
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
    for (const file of ['policy-text', 'lua-text', 'scripts', 'lua.generated']) {
      expect(carried).not.toContain(`src/script/${file}.ts`)
    }
    expect(
      carried.filter(file =>
        /calendar\.ts|slots\.ts|cors\.ts|proxies\.ts|forwarded\.ts|token-bucket|sliding|leaky/.test(file),
      ),
    ).toEqual([])
    // Of the hashes, SHA-256 alone: SHA-512 begins with this constant.
    expect(carried.filter(file => /@noble.*(legacy|blake|sha3)|src\/sha1/.test(file))).toEqual([])
    expect(carried.some(file => /@noble\/hashes\/sha2\.js$/.test(file))).toBe(true)
    expect(outputFiles!.some(({ text }) => text.includes('428a2f98d728ae22'))).toBe(false)
  })
})

describe('scripts that were built', () => {
  const config = configOf({ rules: [second] })
  const { plain, keyLocking } = gatewayPolicy(config).decide
  const built = {
    [fingerprintOf(gatewayPolicy(config))]: {
      decide: { text: plain.source.slice(1), sha1: { plain: plain.sha1, keyLocking: keyLocking.sha1 } },
    },
  }

  it('are those that are compiled', () => {
    expect(createGatewayPolicy(config, finderOf(built)).decide).toEqual({ plain, keyLocking })
  })

  it('lack what the config did not use', () => {
    expect(() => createGatewayPolicy(config, finderOf(built)).refund).toThrow(
      "the script 'refund' of these rules",
    )
    const none = { countings: {}, windowEnds: () => [] }
    expect(() => compileGatewayRule(second, ['free'], none)).toThrow("it does not have the algorithm 'gcra'.")
  })

  it('are refused for other rules', () => {
    const others = [
      { ...second, limit: 11 },
      { ...second, name: 'other' },
      { ...second, by: 'address' as const },
    ]
    for (const other of others) {
      expect(() => createGatewayPolicy(configOf({ rules: [other] }), finderOf(built))).toThrow(
        'What was built is for another config: it does not have the scripts of these rules. Build it again with npx sluice build.',
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
    return finderOf(JSON.parse(/finderOf\((.*)\)/s.exec(text)![1]!))
  }

  it('have the scripts that would be compiled, and the probe', () => {
    const scriptsOf = built(LIMITS)
    for (const rules of configOf({ rules: [second], limits: LIMITS }).limits.values()) {
      const compiled = limitPolicy(rules)
      const found = createLimitPolicy(rules, scriptsOf)
      for (const script of ['decide', 'refund'] as const) {
        const { plain, keyLocking } = compiled[script]
        expect(found[script]).toEqual({ plain, keyLocking })
      }
    }
    expect(probePolicy(scriptsOf).decide.plain.source).toBe(probePolicy(compileScripts).decide.plain.source)
  })

  it('are refused at once where they are others than those that were built', () => {
    const config = configOf({ rules: [second], limits: LIMITS })
    expect(() => createLimiter(config, store, { scriptsOf: built(LIMITS) })).not.toThrow()
    expect(() => createLimiter(config, store, { scriptsOf: built({ mails: LIMITS.mails }) })).toThrow(
      'What was built is for another config: it does not have the scripts of these rules.',
    )
  })
})

describe('a Worker with every part', () => {
  const running = useStack('shedding.config.ts', {
    JWT_SECRET: 'a secret of the tests, of 32 bytes and some more',
    SLUICE_UTILIZATION_SECRET: SECRET,
  })

  it('decides', async () => {
    const store = adminStore({ ...running.stack.rest, environment: 'test' })
    const { key } = await createKey(store, { consumer: 'acme', plan: 'pro' })
    const { status, headers } = await fetch(`${running.stack.url}/reports/7`, {
      headers: { 'x-api-key': key },
    })
    expect([status, headers.get('sluice-degraded')]).toEqual([200, null])
    expect(headers.get('ratelimit-policy')).toMatch(/"day";q=200000/)
    expect((await fetch(running.stack.url)).headers.get('ratelimit-policy')).toMatch(/"window";q=100000/)
  })

  it('takes what machines push, from those that have the secret', async () => {
    const push = async (secret: string) => {
      const headers = { authorization: `Bearer ${secret}` }
      const body = JSON.stringify({ reporter: 'api-7', utilization: 0.83 })
      const url = `${running.stack.url}/_sluice/utilization`
      return (await fetch(url, { method: 'POST', headers, body })).status
    }
    expect([await push(SECRET), await push('another')]).toEqual([204, 401])
  })
})
