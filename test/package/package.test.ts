/**
 * The package as npm packs it, in a fresh folder: from an empty folder to the first 429, each example on its platform, and the results of
 * tools that check packages. Part of `npm run test:all`; alone: `npm run test:package`.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { availableParallelism, loadavg } from 'node:os'
import { basename, delimiter, dirname, join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { startTestStore, type TestStore } from '../../src/node/testing.ts'
import { describeSetUps } from '../set-ups/same-replies.ts'
import { freePort } from '../support/free-port.ts'
import { guardOfBun, guardOfDeno } from '../support/set-ups.ts'
import {
  cleanEnvironment,
  type Installed,
  installPackage,
  npm,
  ROOT,
  repack,
  run,
  versionOf,
} from './installed.ts'
import { startRegistry } from './registry.ts'

let installed: Installed
let store: TestStore
beforeAll(async () => {
  ;[installed, store] = await Promise.all([installPackage(inject('tarball')), startTestStore()])
}, 300_000)
afterAll(async () => {
  await store.close()
  installed.close()
})

/** The variables of the store, for a process. */
const STORE = () => store.env as unknown as Record<string, string>

const example = (name: string) => join(installed.folder, 'examples', name)

interface Running {
  url: string
  stop(): Promise<void>
}

/**
 * Starts a server, and waits until it prints its address.
 * @param silentAddress the address of a server that does not print it: waits until the server answers there
 */
async function started(
  folder: string,
  command: string,
  args: string[],
  env: NodeJS.ProcessEnv = {},
  silentAddress?: string,
): Promise<Running & { lines: string[] }> {
  const child: ChildProcess = spawn(command, args, {
    cwd: folder,
    env: { ...cleanEnvironment(), ...STORE(), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const lines: string[] = []
  const exited = once(child, 'exit')
  const stop = async () => {
    try {
      process.kill(-child.pid!, 'SIGTERM')
    } catch {
      // The process has already ended.
    }
    await exited
  }
  const printed = new Promise<string>((resolve, reject) => {
    for (const stream of [child.stdout!, child.stderr!]) {
      createInterface(stream).on('line', line => {
        lines.push(line)
        const ready =
          /^(?:Sluice is ready on |Listening on )?(http:\/\/(?:127\.0\.0\.1|localhost):\d+)\/?(?: .*)?$/.exec(
            line,
          )
        if (ready) resolve(ready[1]!)
      })
    }
    exited.then(() => reject(new Error(lines.join('\n'))))
  })
  const answers = silentAddress === undefined ? [] : [answered(silentAddress).then(() => silentAddress)]
  try {
    return { url: await Promise.race([printed, ...answers]), lines, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** Sends five requests without a credential, a sixth that exceeds the limit, and one request with an API key. */
async function repliesOf(ask: (headers: Record<string, string>) => Promise<Response>) {
  const strangers = []
  for (let i = 0; i < 6; i++) strangers.push((await ask({})).status)
  const response = await ask({ 'x-api-key': await store.createKey('acme', 'pro') })
  return {
    strangers,
    status: response.status,
    policy: response.headers.get('ratelimit-policy'),
    body: await response.json(),
  }
}

const EXPECTED = {
  strangers: [200, 200, 200, 200, 200, 429],
  status: 200,
  policy: '"consumer";q=1000;w=60',
  body: { hello: 'acme', left: 999 },
}

/**
 * The commands of docs/getting-started.md that make a project from a clone and start it, each without its comment.
 *
 * @param folder takes the place of the folder above the clone
 */
function commandsOfGettingStarted(folder: string): string[] {
  const text = readFileSync(join(ROOT, 'docs', 'getting-started.md'), 'utf8')
  const [, block] = /^```sh\n(?:.*\n)*?(npm pack (?:.*\n)*?)```$/m.exec(text)!
  const commands = block!.split(/\n|&&/).map(each => each.replace(/\s#.*/, '').trim())
  return commands.filter(Boolean).map(each => each.replaceAll(/(?<= )\.\.(?=\/|$)/g, folder))
}

/** The commands that `init` prints. */
const stepsIn = (text: string) => [...text.matchAll(/^ {4}(.*)$/gm)].map(([, command]) => command!)

describe('the installed command', () => {
  it('leads from an empty folder to the first 429 within 60 s, with the commands of docs/getting-started.md', async () => {
    const folder = join(installed.folder, 'empty')
    mkdirSync(folder)
    const project = join(folder, 'my-api')
    let cwd = ROOT
    let begin = 0
    let printed = ''
    for (const command of commandsOfGettingStarted(folder)) {
      if (command.startsWith('cd ')) cwd = command.slice(3)
      // This command has made `installed.tarball`.
      else if (command === `npm pack --pack-destination ${folder}`)
        cpSync(installed.tarball, join(folder, basename(installed.tarball)))
      else if (command !== 'npm start') {
        if (command.includes(' init ')) begin = performance.now()
        const { stdout } = await run(cwd, 'bash', ['-c', command], { npm_config_prefer_offline: 'true' })
        if (command.includes(' init ')) printed = stdout
      }
    }
    expect([cwd, begin]).toEqual([project, expect.any(Number)])
    expect(begin).toBeGreaterThan(0)
    // `init` prints the commands that the page continues with.
    expect(stepsIn(printed).slice(1)).toEqual([
      'npm install ../sluicegate-0.1.0.tgz',
      'npm install',
      'npm start',
    ])
    expect(JSON.parse(readFileSync(join(project, 'package.json'), 'utf8')).name).toBe('my-api')
    const { url, lines, stop } = await started(cwd, 'npm', [
      ...['start', '--', '--redis', 'embedded'],
      ...['--port', '0', '--bridge-port', '0', '--origin-port', '0'],
    ])
    try {
      const key = /^Demo key: (\S+)$/m.exec(lines.join('\n'))![1]!
      const statuses = new Set<string>()
      // Fifteen requests are enough on an idle machine. On a slow one, a budget comes back while it is used.
      for (let i = 0; i < 50 && !statuses.has('429'); i++) {
        const urls = Array.from({ length: 15 }, () => url)
        const { stdout: codes } = await run(project, 'curl', [
          ...['-s', '-Z', '-w', '%{http_code}\n', '-H', `X-API-Key: ${key}`],
          ...urls.flatMap(each => ['-o', '/dev/null', each]),
        ])
        for (const code of codes.trim().split('\n')) statuses.add(code)
      }
      expect([...statuses].sort()).toEqual(['200', '429'])
      // On a busy machine, everything takes longer in proportion.
      const share = Math.max(1, loadavg()[0]! / availableParallelism())
      expect(performance.now() - begin).toBeLessThan(60_000 * share)
    } finally {
      await stop()
    }
    const checkAndBuild = async () => {
      await run(project, 'npm', ['run', 'check'])
      const { stdout } = await run(project, 'npm', ['run', 'build'])
      return Number(/gzip: ([\d.]+) KiB/.exec(stdout)![1])
    }
    const size = await checkAndBuild()
    // The line of the template for a service binding.
    const entry = join(project, 'src/index.ts')
    writeFileSync(entry, readFileSync(entry, 'utf8').replace('// export { Limits }', 'export { Limits }'))
    const sizeWithBinding = await checkAndBuild()
    expect(sizeWithBinding).toBeGreaterThan(size + 1)
    expect(sizeWithBinding).toBeLessThan(size + 14)
  }, 400_000)

  it('also makes a project through npm create, from the tarball of create-sluicegate', async () => {
    const folder = join(installed.folder, 'created')
    mkdirSync(folder)
    await npm(join(ROOT, 'create-sluicegate'), 'pack', '--pack-destination', folder)
    const name = `create-sluicegate-${versionOf('create-sluicegate/package.json')}.tgz`
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true }))
    // Installs both in one folder, so that create-sluicegate gets the version that it depends on from the tarball of the package.
    await npm(folder, 'install', installed.tarball, join(folder, name))
    const { stdout } = await run(folder, 'npm', ['create', 'sluicegate', 'other-api'])
    // The package was installed from a file, so the new project installs it from that file too.
    expect(stepsIn(stdout)).toEqual([
      ...['cd other-api', `npm install ${relative(join(folder, 'other-api'), installed.tarball)}`],
      ...['npm install', 'npm start'],
    ])
    const made = join(folder, 'other-api')
    expect(JSON.parse(readFileSync(join(made, 'package.json'), 'utf8')).name).toBe('other-api')
    expect(readFileSync(join(made, '.gitignore'), 'utf8')).toContain('node_modules')
  })

  it('does not write into a folder that is not empty', async () => {
    const failed = run(installed.folder, installed.bin('sluicegate'), ['init', '.'])
    await expect(failed).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining('is not empty') })
  })

  it('says what to do in a folder without a project', async () => {
    const failed = run('/', installed.bin('sluicegate'), ['check'])
    const message = 'There is no sluice.config.ts (or .mts, .js, .mjs) in /, or in a folder above it.'
    await expect(failed).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining(message) })
    await expect(failed).rejects.toMatchObject({
      stderr: expect.stringContaining('npx sluicegate init <folder>'),
    })
    const asJson = await run('/', installed.bin('sluicegate'), ['check', '--json']).catch(error => error)
    const mistake = { path: '/', message: expect.stringContaining(message) }
    expect(JSON.parse(asJson.stdout)).toEqual({ valid: false, mistakes: [mistake], warnings: [] })
  })
})

describe('an upgrade', () => {
  it('is npm update, as docs/deploy.md says: check and build then work, with the new version', async () => {
    const folder = join(installed.folder, 'upgraded')
    mkdirSync(folder)
    const older = versionOf()
    const newer = older.replace(/\d+$/, patch => String(Number(patch) + 1))
    const registry = await startRegistry()
    try {
      registry.publish(older, installed.tarball)
      await run(folder, installed.bin('sluicegate'), ['init', 'my-api'])
      const project = join(folder, 'my-api')
      await npm(project, 'install', '--registry', registry.url)
      const installedVersion = async () =>
        (await run(project, 'npx', ['sluicegate', '--version'])).stdout.trim()
      expect(await installedVersion()).toBe(older)

      registry.publish(newer, await repack(installed.tarball, newer, folder))
      await run(project, 'npm', ['update', 'sluicegate', '--no-audit', '--registry', registry.url])
      expect(await installedVersion()).toBe(newer)
      const built = join(project, 'src/built/worker.generated.ts')
      // As an older version has left it.
      writeFileSync(built, 'export default undefined')
      await run(project, 'npm', ['run', 'check'])
      expect(readFileSync(built, 'utf8')).toContain('createWorker(config')
      writeFileSync(built, 'export default undefined')
      // wrangler runs the build itself, also before it deploys.
      const { stdout } = await run(project, 'npm', ['run', 'build'])
      expect(stdout).toMatch(/gzip: [\d.]+ KiB/)
      expect(readFileSync(built, 'utf8')).toContain('createWorker(config')
    } finally {
      registry.close()
    }
  })
})

describe('an example', () => {
  it.each([
    ['node', () => process.execPath, ['server.ts']],
    ['express', () => process.execPath, ['server.ts']],
    ['fastify', () => process.execPath, ['server.ts']],
    ['koa', () => process.execPath, ['server.ts']],
    ['bun', () => installed.bin('bun'), ['server.ts']],
  ] as const)('runs on its platform: %s', async (name, command, args) => {
    await store.clear()
    const env = { PORT: String(await freePort()) }
    const address = `http://127.0.0.1:${env.PORT}`
    const silentAddress = name === 'bun' ? address : undefined
    const { stop } = await started(example(name), command(), [...args], env, silentAddress)
    try {
      expect(await repliesOf(headers => fetch(address, { headers }))).toEqual(EXPECTED)
    } finally {
      await stop()
    }
  })

  it('is compiled and runs with its own scripts: nest', async () => {
    await store.clear()
    // The scripts find the programs in the folder above.
    const PATH = [dirname(installed.bin('tsc')), cleanEnvironment().PATH].join(delimiter)
    const { url, stop } = await started(example('nest'), 'npm', ['start'], {
      PATH,
      PORT: String(await freePort()),
    })
    try {
      expect(await repliesOf(headers => fetch(url, { headers }))).toEqual(EXPECTED)
    } finally {
      await stop()
    }
  })

  it('is type-checked and runs with the permissions of its own scripts: deno', async () => {
    await store.clear()
    await npm(example('deno'), 'install', installed.tarball)
    const PATH = [dirname(installed.bin('deno')), cleanEnvironment().PATH].join(delimiter)
    await run(example('deno'), 'npm', ['run', 'check'], { PATH })
    const { url, stop } = await started(example('deno'), 'npm', ['start'], {
      PATH,
      PORT: String(await freePort()),
    })
    try {
      expect(await repliesOf(headers => fetch(url, { headers }))).toEqual(EXPECTED)
    } finally {
      await stop()
    }
  })

  it.each([
    ['guard-worker', '/'],
    ['hono-worker', '/api/hello'],
  ])('of a Worker runs in workerd: %s', async (name, path) => {
    await store.clear()
    const { url, stop } = await startWorkers([
      { name, script: await bundled(name), bindings: { ...store.env } },
    ])
    try {
      expect(await repliesOf(headers => fetch(url + path, { headers }))).toEqual(EXPECTED)
    } finally {
      await stop()
    }
  })

  it('of the gateway runs in workerd, in front of an origin', async () => {
    await store.clear()
    const origin = createServer((request, response) => {
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ hello: request.headers['x-consumer-id'] ?? 'stranger' }))
    })
    await new Promise<void>(resolve => origin.listen(0, '127.0.0.1', resolve))
    const bindings = {
      ...store.env,
      ORIGIN_URL: `http://127.0.0.1:${(origin.address() as AddressInfo).port}`,
    }
    const { url, stop } = await startWorkers([
      { name: 'gateway', script: await bundled('gateway-worker'), bindings },
    ])
    try {
      const replies = await repliesOf(headers => fetch(url, { headers }))
      expect(replies).toEqual({ ...EXPECTED, body: { hello: 'acme' } })
    } finally {
      await stop()
      origin.closeAllConnections()
      origin.close()
    }
  })

  it('of a service binding runs in workerd, with two Workers', async () => {
    await store.clear()
    const limits = { name: 'limits', entrypoint: 'Limits' }
    const { url, stop } = await startWorkers([
      {
        ...{ name: 'caller', script: await bundled('binding/caller') },
        serviceBindings: { LIMITS: limits, SIGNUPS: { ...limits, props: { limit: 'signups' } } },
      },
      { name: 'limits', script: await bundled('binding/limits'), bindings: { ...store.env } },
    ])
    try {
      const statuses = []
      for (let i = 0; i < 6; i++) statuses.push((await fetch(`${url}/signup`)).status)
      expect(statuses).toEqual([200, 200, 200, 200, 200, 429])
      expect(await (await fetch(`${url}/export`)).text()).toBe('Exported.')
    } finally {
      await stop()
    }
  })

  it.each([
    'gateway-worker',
    'llm',
    'guard-worker',
    'hono-worker',
    'queue-worker',
    'binding/limits',
    'binding/caller',
  ])('can be deployed: %s', async name => {
    const { stdout } = await run(example(name), installed.bin('wrangler'), [
      ...['deploy', '--dry-run', '--outdir', 'trial'],
    ])
    expect(stdout).toContain('--dry-run: exiting now.')
  })

  it('of a function runs in its adapter: lambda', async () => {
    await store.clear()
    const event = (headers: Record<string, string>) => ({
      ...{
        version: '2.0',
        rawPath: '/',
        rawQueryString: '',
        headers: { host: 'x.lambda-url.test', ...headers },
      },
      requestContext: {
        http: { method: 'GET', path: '/', sourceIp: '192.0.2.9' },
        domainName: 'x',
        requestId: '1',
      },
      isBase64Encoded: false,
    })
    const script = `
      import { handler } from ${JSON.stringify(pathToFileURL(join(example('lambda'), 'index.ts')).href)}
      for (const event of ${'JSON.parse(process.argv[1])'}) {
        const { statusCode, headers, body } = await handler(event)
        console.log(JSON.stringify({ statusCode, headers, body }))
      }`
    const key = await store.createKey('acme', 'pro')
    const events = [...Array.from({ length: 6 }, () => event({})), event({ 'x-api-key': key })]
    const { stdout } = await run(
      installed.folder,
      process.execPath,
      ['--input-type=module', '-e', script, JSON.stringify(events)],
      STORE(),
    )
    // The standard output also contains log lines.
    const replies = stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
      .filter(line => 'statusCode' in line)
    expect(replies.map(({ statusCode }) => statusCode)).toEqual([200, 200, 200, 200, 200, 429, 200])
    expect(JSON.parse(replies.at(-1).body)).toEqual(EXPECTED.body)
  })

  it.each([
    [
      'vercel',
      'api/hello.ts',
      'GET',
      { VERCEL: '1' },
      "[new Request(url, { headers: { 'x-real-ip': '192.0.2.9', ...headers } }), {}]",
    ],
    [
      'netlify',
      'netlify/functions/hello.ts',
      'default',
      {},
      "[new Request(url, { headers }), { ip: '192.0.2.9', geo: {}, waitUntil() {} }]",
    ],
  ] as const)('of a function runs as the platform calls it: %s', async (name, file, exported, env, args) => {
    await store.clear()
    const key = await store.createKey('acme', 'pro')
    const script = `
      import { ${exported} as handler } from ${JSON.stringify(pathToFileURL(join(example(name), file)).href)}
      const url = 'https://function.test/hello'
      for (const headers of [{}, {}, {}, {}, {}, {}, { 'x-api-key': process.argv[1] }]) {
        const response = await handler(...${args})
        console.log(response.status, JSON.stringify(await response.json()))
      }`
    const { stdout } = await run(
      installed.folder,
      process.execPath,
      ['--input-type=module', '-e', script, key],
      { ...STORE(), ...env },
    )
    const lines = stdout.split('\n').filter(line => /^\d{3} /.test(line))
    expect(lines.map(line => Number(line.slice(0, 3)))).toEqual([200, 200, 200, 200, 200, 429, 200])
    expect(JSON.parse(lines.at(-1)!.slice(4))).toEqual(EXPECTED.body)
  })

  it('of limits by name uses the counters that limits peek reads', async () => {
    await store.clear()
    const folder = example('limits-by-name')
    const env = STORE()
    const { stdout } = await run(folder, process.execPath, ['worker.ts'], env)
    expect(stdout.trim().split('\n')).toEqual([
      ...Array.from({ length: 12 }, (_, i) => `call ${i + 1}`),
      'exporting',
    ])
    const { stdout: peeked } = await run(
      folder,
      installed.bin('sluicegate'),
      ['limits', 'peek', 'zendesk', '--by', 'account=42', '--json'],
      env,
    ).catch(error => ({ stdout: `${error.stdout}${error.stderr}` }))
    expect(peeked).toContain('4988')
  })
})

/** The lowest version that `engines` allows: `22.18.0`. */
const LOWEST_NODE = `${/>=(\d+\.\d+)$/.exec(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).engines.node)![1]}.0`

describe.each([LOWEST_NODE, process.versions.node])('on Node %s', version => {
  let node: string
  let folder: string
  beforeAll(async () => {
    folder = join(installed.folder, `on-node-${version}`)
    mkdirSync(folder)
    node = process.execPath
    if (version !== process.versions.node) {
      writeFileSync(join(folder, 'package.json'), JSON.stringify({ allowScripts: { node: true } }))
      await npm(folder, 'install', `node@${version}`)
      node = join(folder, 'node_modules', 'node', 'bin', 'node')
    }
    writeFileSync(
      join(folder, 'sluice.config.ts'),
      `import { defineConfig } from 'sluicegate'
      const reports = { algorithm: 'fixed-window', limit: 2, period: '1d', by: 'address' } as const
      export default defineConfig({
        origin: 'https://api.example.com',
        credentials: { accept: ['anonymous'] },
        rules: [
          { ...reports, name: 'reports', match: { path: '/reports/:id' } },
          { ...reports, name: 'host', match: { host: '*.example.test', path: '/hosts/*' } },
        ],
        limits: { mails: [{ name: 'all', algorithm: 'gcra', limit: 1, period: '1d' }] },
      })`,
    )
  }, 120_000)

  it('the version is the one that the test names', async () => {
    expect((await run(folder, node, ['--version'])).stdout.trim()).toBe(`v${version}`)
  })

  it.each([
    ['guard', "import { guard } from 'sluicegate/guard'", 'guard(config, options)(() => new Response("ok"))'],
    [
      'hono',
      "import { Hono } from 'hono'; import { sluice } from 'sluicegate/hono'",
      'new Hono().use(sluice(config, options)).all("*", c => c.text("ok")).request',
    ],
  ])('paths and hosts are limited by %s', async (_, imports, handler) => {
    await store.clear()
    const file = join(folder, `${_}.ts`)
    writeFileSync(
      file,
      `${imports}
      import config from './sluice.config.ts'
      const options = { address: () => '192.0.2.7' }
      const handler = ${handler}
      const statuses = []
      for (const path of ['a.test/Reports/1', 'a.test/%72eports/2', 'a.test/reports/3', 'a.test/other', ...Array(3).fill('api.example.test/hosts/x'), 'a.test/hosts/x']) {
        statuses.push((await handler(new Request('http://' + path))).status)
      }
      console.log('statuses', statuses.join(' '))`,
    )
    const { stdout } = await run(folder, node, [file], STORE())
    expect(stdout).toContain('statuses 200 200 429 200 200 200 429 200')
  })

  it('commands check the config and explain what a path costs', async () => {
    const program = join(installed.folder, 'node_modules', 'sluicegate', 'bin', 'sluicegate.js')
    const sluicegate = (...args: string[]) => run(folder, node, [program, ...args], STORE())
    expect((await sluicegate('check')).stdout).toContain('valid')
    const { stdout } = await sluicegate('explain', 'GET', '/reports/7', '--address', '192.0.2.9', '--json')
    const rules: { name: string; applies: boolean }[] = JSON.parse(stdout).rules
    expect(rules.map(({ name, applies }) => [name, applies])).toEqual([
      ['reports', true],
      ['host', false],
    ])
    await sluicegate('build')
  })

  it('a limit by name admits and refuses', async () => {
    await store.clear()
    const file = join(folder, 'mails.ts')
    writeFileSync(
      file,
      `import { createLimiter } from 'sluicegate'
      import config from './sluice.config.ts'
      const limiter = createLimiter(config)
      console.log([await limiter.limit('mails'), await limiter.limit('mails')].map(({ allowed }) => allowed).join())`,
    )
    expect((await run(folder, node, [file], STORE())).stdout).toContain('true,false')
  })
})

describeSetUps({
  'guard of bun': guardOfBun(() => installed.bin('bun')),
  'guard of deno': guardOfDeno(() => installed.bin('deno')),
})

describe('the package', () => {
  it('has types that resolve, for ESM and bundlers (attw), and a manifest without mistakes (publint)', async () => {
    // Fails with the problems that attw finds.
    await run(installed.folder, installed.bin('attw'), [
      ...[installed.tarball, '--profile', 'esm-only', '--no-emoji', '--format', 'ascii'],
    ]).catch(error => {
      throw new Error(error.stdout)
    })
    const publint = await run(installed.folder, installed.bin('publint'), [
      'run',
      installed.tarball,
      '--strict',
    ])
    expect(publint.stdout).toContain('All good!')
  })

  it.each([
    'gateway-worker',
    'llm',
    'guard-worker',
    'hono-worker',
    'binding',
    'express',
    'fastify',
    'koa',
    'nest',
    'node',
    'bun',
    'lambda',
    'vercel',
    'netlify',
    'limits-by-name',
    'queue-worker',
    'bullmq',
  ])('has types with which an example compiles: %s', async name => {
    await run(example(name), installed.bin('tsc'), ['-p', '.']).catch(error => {
      throw new Error(error.stdout)
    })
  })

  it("has a binding that compiles with the types that wrangler generates, also as Cloudflare's RateLimit", async () => {
    const folder = example('binding')
    const { scripts } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const [program, ...args] = scripts.types.split(' ')
    await run(folder, installed.bin(program), args)
    const generated = readFileSync(join(folder, 'worker-configuration.d.ts'), 'utf8')
    expect(generated).toContain('SIGNUPS: Service<typeof import("./limits/src/index").Limits>')
    // `Env` is the generated type: index.ts declares its own, which nothing imports.
    writeFileSync(
      join(folder, 'caller/src/with-generated-types.ts'),
      `import handler from './index.ts'
handler satisfies ExportedHandler<Env>
export async function call(env: Env) {
  const signups: RateLimit = env.SIGNUPS
  const { success } = await env.SIGNUPS.limit({ key: '192.0.2.7' })
  const { allowed } = await env.LIMITS.limit('signups', { address: '192.0.2.7' }, { cost: 2 })
  return [signups, success, allowed]
}
`,
    )
    await run(folder, installed.bin('tsc'), ['-p', '.']).catch(error => {
      throw new Error(error.stdout)
    })
  })

  it('is bundled for a function by the script of its example: lambda', async () => {
    const { scripts } = JSON.parse(readFileSync(join(example('lambda'), 'package.json'), 'utf8'))
    const [program, ...args] = scripts.build.split(' ')
    await run(example('lambda'), installed.bin(program), args)
    const bundle = pathToFileURL(join(example('lambda'), 'dist', 'index.mjs')).href
    const script = `console.log(typeof (await import(${JSON.stringify(bundle)})).handler)`
    const { stdout } = await run('/', process.execPath, ['--input-type=module', '-e', script], STORE())
    expect(stdout.trim()).toBe('function')
  })
})

/** The code of an example's Worker, with the package as it is installed. */
async function bundled(name: string): Promise<string> {
  const { outputFiles } = await build({
    absWorkingDir: example(name),
    ...{ entryPoints: ['src/index.ts'], bundle: true, write: false, format: 'esm', target: 'es2024' },
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*', 'node:*'],
  })
  return outputFiles![0]!.text
}

/** @param workers the first one receives the requests of the test */
async function startWorkers(workers: object[]): Promise<Running> {
  const common = {
    modules: true,
    compatibilityDate: '2026-10-01',
    compatibilityFlags: ['enable_request_signal'],
  }
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      ...{ cf: false, log: new Log(LogLevel.NONE), handleStructuredLogs: () => {} },
      workers: workers.map(worker => ({ ...common, ...worker })),
      // Its types lack the props of a binding.
    } as unknown as Parameters<typeof convertV4MiniflareOptions>[0]),
  )
  const url = (await miniflare.ready).origin
  return { url, stop: () => miniflare.dispose() }
}

async function answered(url: string): Promise<void> {
  for (let left = 200; left > 0; left--) {
    const isThere = await fetch(url, {
      method: 'OPTIONS',
      headers: { origin: 'http://x', 'access-control-request-method': 'GET' },
    }).then(
      response => response.body?.cancel().then(() => true) ?? true,
      () => false,
    )
    if (isThere) return
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  throw new Error(`${url} does not answer.`)
}
