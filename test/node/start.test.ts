/** The commands that keep running, `start` and `bridge`, as programs of their own: signals, faults of Redis, and changed files. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it, vi } from 'vitest'
import { mustHaveWrangler } from '../../src/node/cli/start.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { ROOT } from '../support/pages.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { childOf, descendantOf } from '../support/processes.ts'
import { PORTS, usePrograms } from '../support/programs.ts'
import { startRedis } from '../support/redis.ts'
import { startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

const programs = usePrograms()

it('npx sluicegate start names the packages that it lacks, as in a folder with sluicegate alone', () => {
  const missing = () => {
    throw new Error('Cannot find package')
  }
  expect(() => mustHaveWrangler(missing)).toThrow(
    'esbuild and miniflare are missing. npm install --save-dev wrangler',
  )
})

describe('npx sluicegate bridge', () => {
  it.each([
    [2, [], /^No Redis is set\. Use --redis/],
    [2, ['--redis', 'redis://127.0.0.1:6379'], /^No token is set\. Use --token/],
    [2, ['--redis', 'localhost', '--token', 't'], /redis:\/\/host:port/],
    [1, ['--redis', 'redis://127.0.0.1:1', '--token', 't'], /Redis did not answer at 127\.0\.0\.1:1/],
    [
      2,
      ['--redis', 'redis://127.0.0.1:1', '--token', 't', '--port', '99999'],
      /Use a number from 0 to 65535/,
    ],
  ])('exits with %i for %j, and prints a helpful message', async (status, args, message) => {
    const { code, stderr } = await programs.run(['bridge', ...args], { SLUICE_BRIDGE_TOKEN: '' })
    expect(code).toBe(status)
    expect(stderr).toMatch(message)
  })

  it('ends when npx, which started it, is killed', async () => {
    const redis = await startRedis()
    const args = ['--no-install', 'sluicegate', 'bridge', '--redis', redis.url, '--token', 't', '--port', '0']
    const npx = spawn('npx', args, { env: programs.environment(), stdio: 'pipe' })
    try {
      let output = ''
      npx.stdout.on('data', data => {
        output += data
      })
      await expect.poll(() => output, { timeout: 50_000, interval: 20 }).toContain('The bridge is ready on ')
      const [, url = ''] = /ready on (\S+)/.exec(output) ?? []
      npx.kill('SIGKILL')
      const isGone = () =>
        fetch(`${url}/health`).then(
          () => false,
          () => true,
        )
      await expect.poll(isGone, { timeout: 30_000 }).toBe(true)
    } finally {
      npx.kill('SIGKILL')
      await redis.close()
    }
  })
})

describe('npx sluicegate start', () => {
  it('uses the embedded Redis if no server is on the PATH, and leaves nothing behind when it is killed', async () => {
    const { child, url, output, exited } = await programs.start([], { PATH: '/nowhere' })
    expect(output()).toContain('the embedded Redis (no valkey-server or redis-server is on the PATH)')
    child.kill('SIGKILL')
    await exited
    await expect.poll(() => readdirSync(programs.directory), { timeout: 30_000 }).toEqual([])
    await expect
      .poll(
        () =>
          fetch(url).then(
            () => 'serves',
            () => 'gone',
          ),
        { timeout: 30_000 },
      )
      .toBe('gone')
  })

  it('prints a command of which some requests get a 429, and says first what it does', async () => {
    const { output } = await programs.start(['--redis', 'embedded'])
    expect(output()).toMatch(/^Starting the store and the Worker\. The first time, this takes about 10 s\.\n/)
    const [, command] = /^Send thirty at once.*:\n {4}(.*)$/m.exec(output())!
    const { stdout } = await promisify(execFile)('sh', ['-c', command!])
    expect(stdout.trim().split(' ')).toEqual(expect.arrayContaining(['200', '429']))
  })

  it('takes the next free ports in place of default ones that are in use', async () => {
    // Another program may have it already.
    const holder = createServer().listen(8787, '127.0.0.1')
    await Promise.race([once(holder, 'listening'), once(holder, 'error')]).catch(() => {})
    const { output, child, exited } = await programs.start(['--redis', 'embedded'], {}, undefined, [])
    const [, port] = /^Port 8787 is in use\. The gateway takes (\d+)\.$/m.exec(output())!
    expect(output()).toContain(`Sluice is ready on http://127.0.0.1:${port}`)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    holder.close()
  })

  it('shows how to make a token for the HTTP API, if the config has it', async () => {
    const config = join(ROOT, 'test/support/api-only.config.ts')
    const { child, url, output, exited } = await programs.start(['--config', config])
    expect(output()).toMatch(
      /^Create a token for the HTTP API at (\S+):\n( {4}\S+ \\\n)+ {4}npx sluicegate tokens create --name \S+ --scopes \S+$/m,
    )
    expect(output()).toContain(`${url}/_sluice/v1/:`)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
  })

  it('ends when npm, which started it, is killed', async () => {
    const npm = spawn('npm', ['start', '--', ...PORTS, '--redis', 'embedded'], {
      env: programs.environment(),
      stdio: 'pipe',
    })
    programs.endLater(npm)
    let output = ''
    npm.stdout.on('data', data => {
      output += data
    })
    await expect.poll(() => output, { timeout: 50_000, interval: 20 }).toContain('Sluice is ready on http')
    const [, url = ''] = /ready on (\S+)/.exec(output) ?? []
    npm.kill('SIGKILL')
    const isGone = () =>
      fetch(url).then(
        () => false,
        () => true,
      )
    await expect.poll(isGone, { timeout: 30_000 }).toBe(true)
    // npm keeps its own cache in this programs.directory.
    const ours = () => readdirSync(programs.directory).filter(name => name.startsWith('sluice-'))
    await expect.poll(ours, { timeout: 30_000 }).toEqual([])
  })

  it.skipIf(!hasRedisServer || !existsSync('/proc'))(
    'starts another Redis when its own is killed, with a new demo key, and gives up the fourth time',
    async () => {
      const { child, key, url, output, exited } = await programs.start()
      const renewed = () =>
        [...output().matchAll(/no longer valid\. Demo key: (\S+)/g)].map(([, key]) => key!)
      const kill = async () => {
        const pids = () => ['valkey-server', 'redis-server'].map(name => childOf(child.pid!, name))
        process.kill(
          (await vi.waitUntil(() => pids().find(pid => pid !== undefined), { timeout: 30_000 }))!,
          'SIGKILL',
        )
      }
      const ask = (key: string) => fetch(url, { headers: { 'x-api-key': key } }).then(({ status }) => status)
      for (let times = 1; times <= 3; times++) {
        await kill()
        await expect.poll(renewed, { timeout: 30_000 }).toHaveLength(times)
        // For a moment, the Worker counts in its own memory and does not know the key.
        await expect.poll(() => ask(renewed().at(-1)!), { timeout: 30_000 }).toBe(200)
      }
      await expect.poll(() => ask(key), { timeout: 30_000 }).toBe(401)
      expect(output()).toMatch(/^(valkey|redis)-server has stopped \(SIGKILL\), and its data is lost\.$/m)
      await kill()
      expect(await exited).toBe(1)
      expect(output()).toContain('Redis could not be restarted. It has stopped 4 times.')
      expect(readdirSync(programs.directory)).toEqual([])
    },
  )

  it.skipIf(!existsSync('/proc'))(
    'reports that the Workers runtime has ended, and serves again',
    async () => {
      const { child, key, url, output } = await programs.start()
      process.kill(descendantOf(child.pid!, 'workerd')!, 'SIGKILL')
      await expect.poll(output, { timeout: 30_000 }).toContain('The Workers runtime ended unexpectedly.')
      expect((await fetch(url, { headers: { 'x-api-key': key } })).status).toBe(200)
    },
  )

  it.skipIf(!hasRedisServer)('reports when Redis stops answering, and when it is back', async () => {
    const redis = await startRedisProcess()
    const { child, output, exited } = await programs.start([
      '--redis',
      `redis://default:very-secret@${redis.host}:${redis.port}`,
    ])
    await redis.kill()
    await expect
      .poll(output, { timeout: 30_000 })
      .toMatch(
        new RegExp(
          `^Redis at ${redis.host}:${redis.port} does not answer: .*\\. Until it is back, the bridge answers every command with 503\\.$`,
          'm',
        ),
      )
    await redis.start()
    await expect.poll(output, { timeout: 30_000 }).toMatch(/^Redis is back after \d+ s\.$/m)
    // Redis came back empty, so there is a new demo key.
    await expect
      .poll(output, { timeout: 30_000 })
      .toMatch(/^The previous demo key is no longer valid\. Demo key: slk_/m)
    expect(output()).not.toContain('very-secret')
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    await redis.close()
  })

  it('shows a new demo key when the environment in the config changes', async () => {
    const project = programs.copyOfProject()
    const config = join(project, 'sluice.config.ts')
    const chosen = "{ name: 'chosen', by: 'header:x-tenant', algorithm: 'gcra', limit: 1000, period: '1s' },"
    writeFileSync(config, readFileSync(config, 'utf8').replace('rules: [', `rules: [${chosen}`))
    const { child, key, url, output, exited } = await programs.start(['--redis', 'embedded'], {}, project)
    const warnings = () =>
      output().match(
        /^Warnings about the config:\n {2}sluice\.config\.ts:\d+: rules\[0\]\.by: clients choose .*'header:x-\w+'/gm,
      )
    expect(warnings()).toHaveLength(1)
    const text = readFileSync(config, 'utf8').replace('x-tenant', 'x-account')
    writeFileSync(config, text.replace('rules: [', "environment: 'test', rules: ["))
    const renewed = () => /no longer valid\. Demo key: (\S+)/.exec(output())?.[1]
    await expect.poll(renewed, { timeout: 30_000 }).toMatch(/^slk_test_demo_/)
    const ask = (key: string) => fetch(url, { headers: { 'x-api-key': key } }).then(({ status }) => status)
    // On a busy machine, the store may be too slow at first.
    await expect
      .poll(async () => [await ask(renewed()!), await ask(key)], { timeout: 30_000 })
      .toEqual([200, 401])
    // A mistake is reported with its line, and the previous config stays in use.
    const good = readFileSync(config, 'utf8')
    const line = good.split('\n').findIndex(text => text.includes('rules: [')) + 1
    writeFileSync(config, good.replace('rules: [', 'rules ['))
    const rejected = `sluice.config.ts:${line}: The file cannot be parsed: Unexpected token`
    await expect.poll(output, { timeout: 30_000 }).toContain(rejected)
    writeFileSync(config, good)
    await expect.poll(() => output().match(/^Reloaded\.$/gm), { timeout: 30_000 }).toHaveLength(2)
    // Other changes keep the demo key.
    expect(output()).not.toContain('tokens create')
    writeFileSync(
      config,
      readFileSync(config, 'utf8')
        .replace('limit: 240', 'limit: 241')
        .replace('rules: [', 'api: {}, rules: ['),
    )
    await expect.poll(() => output().match(/^Reloaded\.$/gm), { timeout: 30_000 }).toHaveLength(3)
    await expect
      .poll(output, { timeout: 30_000 })
      .toMatch(
        /^Create a token for the HTTP API at .*:\n {4}UPSTASH_REDIS_REST_URL=[\s\S]*npx sluicegate tokens create/m,
      )
    // Each reload begins with a new isolate, for which the store may be too slow at first.
    await expect.poll(() => ask(renewed()!), { timeout: 30_000 }).toBe(200)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    expect(output().match(/Demo key: /g)).toHaveLength(2)
    // The same warnings are not repeated after each change.
    expect(warnings()).toHaveLength(2)
    rmSync(project, { recursive: true })
  })

  it('reads variables of the config from .dev.vars if the shell does not set them, also after the file changes', async () => {
    const project = programs.copyOfProject()
    const config = join(project, 'sluice.config.ts')
    const secret = (name: string) =>
      `${name.toLowerCase()}: jwt({ secret: '${name}', algorithms: ['HS256'], issuer: '${name}', audience: 'a' }),`
    const jwts = `credentials: { accept: ['api-key'], jwt: { ${['QUOTED', 'LONG', 'FROM_SHELL'].map(secret).join('')} } }, rules: [`
    writeFileSync(
      config,
      `import { jwt } from './src/credentials/jwt.ts'\n${readFileSync(config, 'utf8').replace('rules: [', jwts)}`,
    )
    const long = 'a secret of the tests, of 32 bytes and some more'
    const file = join(project, '.dev.vars')
    // The syntax of dotenv, and the variables of a store, which `start` ignores because it runs a store of its own.
    const others = `# a comment\nQUOTED="${long} # too" # a comment\n\nexport LONG = ${long.replaceAll(' ', '_')}\nFROM_SHELL='short'\n`
    writeFileSync(
      file,
      `${others}SLUICE_ENVIRONMENT=dev\nUPSTASH_REDIS_REST_URL=http://127.0.0.1:9\nUPSTASH_REDIS_REST_TOKEN=t\n`,
    )
    const { child, key, url, output, exited } = await programs.start(
      ['--redis', 'embedded'],
      { FROM_SHELL: long },
      project,
    )
    expect(key).toMatch(/^slk_dev_/)
    expect(output()).toContain(' --env dev')
    const ask = (key: string) => fetch(url, { headers: { 'x-api-key': key } }).then(({ status }) => status)
    // On a busy machine, the store may be too slow at first.
    await expect.poll(() => ask(key), { timeout: 30_000 }).toBe(200)
    writeFileSync(file, 'QUOTED=short')
    await expect
      .poll(output, { timeout: 30_000 })
      .toMatch(/QUOTED: is too short.*keeps running with the previous version/s)
    expect(output()).not.toContain(long)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    rmSync(project, { recursive: true })
  })

  it('passes every variable of .dev.vars to the Worker, for hooks, but not a store or an origin', async () => {
    const project = programs.copyOfProject()
    const config = join(project, 'sluice.config.ts')
    const hooks = "hooks: { skip: (_, { env }) => env.LOAD_TEST === 'on' },"
    writeFileSync(config, readFileSync(config, 'utf8').replace('rules: [', `${hooks} rules: [`))
    const file = join(project, '.dev.vars')
    const elsewhere = ['UPSTASH_REDIS_REST_URL', 'ORIGIN_URL']
      .map(name => `${name}=http://127.0.0.1:9\n`)
      .join('')
    writeFileSync(file, `${elsewhere}UPSTASH_REDIS_REST_TOKEN=t\nLOAD_TEST=on\n`)
    const { child, key, url, exited } = await programs.start(['--redis', 'embedded'], {}, project)
    const ask = async () => {
      const { status, headers } = await fetch(url, { headers: { 'x-api-key': key } })
      return [status, headers.has('ratelimit')]
    }
    await expect.poll(ask, { timeout: 30_000 }).toEqual([200, false])
    writeFileSync(file, `${elsewhere}UPSTASH_REDIS_REST_TOKEN=t\nLOAD_TEST=off\n`)
    await expect.poll(ask, { timeout: 30_000 }).toEqual([200, true])
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    rmSync(project, { recursive: true })
  })

  it('uses the Redis of REDIS_URL, and removes its demo key from it on exit', async () => {
    const redis = await startRedis()
    const { child, output, exited } = await programs.start([], { REDIS_URL: redis.url })
    expect(output()).toContain(`Redis at ${redis.url}, as configured`)
    // The record of the key, that of the consumer, and two indexes.
    expect(await redis.connection.send(['DBSIZE'])).toBe(3)
    child.kill('SIGINT')
    expect(await exited).toBe(0)
    expect(await redis.connection.send(['DBSIZE'])).toBe(0)
    await redis.close()
  })

  it('uses the store of UPSTASH_REDIS_REST_URL, and starts no bridge', async () => {
    const redis = await startRedis()
    const bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
    const env = { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: 't' }
    const { child, key, url, output, exited } = await programs.start([], env)
    expect(output()).toContain(
      `Redis    ${new URL(bridge.url).host}, over HTTP, because UPSTASH_REDIS_REST_URL is set`,
    )
    expect(output()).not.toContain('Bridge')
    const status = () => fetch(url, { headers: { 'x-api-key': key } }).then(({ status }) => status)
    await expect.poll(status, { timeout: 30_000 }).toBe(200)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    await bridge.close()
    await redis.close()
  })

  it('writes no demo key into a store on another machine if there is no terminal to ask on', async () => {
    const redis = await startRedis()
    const bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
    // This address reaches this machine too, but it is not recognized as local.
    const url = bridge.url.replace('127.0.0.1', '0.0.0.0')
    const env = { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: 't' }
    const { child, key, output, exited } = await programs.start([], env)
    expect(output()).toContain(
      'The store at 0.0.0.0 is not on this machine, and there is no terminal to ask on: no demo key is written.',
    )
    expect(key).toBe('')
    expect(await redis.connection.send(['DBSIZE'])).toBe(0)
    child.kill('SIGTERM')
    expect(await exited).toBe(0)
    await bridge.close()
    await redis.close()
  })

  it('names a port that is in use, and the flag that changes it', async () => {
    const portHolder = createServer().listen(0, '127.0.0.1')
    await new Promise(resolve => portHolder.once('listening', resolve))
    const { port } = portHolder.address() as { port: number }
    for (const [flag, use] of [
      ['--port', 'gateway'],
      ['--bridge-port', 'REST bridge'],
      ['--origin-port', 'demo origin'],
    ] as const) {
      const { code, stderr } = await programs.run([
        'start',
        '--redis',
        'embedded',
        ...PORTS,
        flag,
        String(port),
      ])
      expect([code, stderr]).toEqual([
        1,
        `Port ${port} for the ${use} is in use. Free it, or choose another one with ${flag}.\n`,
      ])
    }
    portHolder.close()
    expect(existsSync(programs.directory) && readdirSync(programs.directory)).toEqual([])
  })

  it.each([
    [2, ['--redis', 'memory'], /redis:\/\/host:port/],
    [
      1,
      ['--redis', 'redis://127.0.0.1:1'],
      /Redis did not answer at 127\.0\.0\.1:1: connect ECONNREFUSED 127\.0\.0\.1:1\. Check that it is running/,
    ],
    [2, ['--origin', 'example.com'], /Use an http or https URL without query or credentials/],
    [2, ['--port', 'http'], /Use a number from 0/],
  ])('exits with %i for %j, and prints a helpful message', async (status, args, message) => {
    const { code, stderr } = await programs.run(['start', ...PORTS, ...args])
    expect(code).toBe(status)
    expect(stderr).toMatch(message)
    expect(stderr).not.toMatch(/^\s+at /m)
    expect(readdirSync(programs.directory)).toEqual([])
  })
})
