/**
 * The packed package in the versions of frameworks and tools that people have, from npm. Installing them takes minutes, so only
 * `npm run test:package` runs this file.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { startTestStore, type TestStore } from '../../../src/node/testing.ts'
import { freePort } from '../../support/free-port.ts'
import { cleanEnvironment, npm, ROOT, run } from '../installed.ts'

let store: TestStore
let folders: string
beforeAll(async () => {
  store = await startTestStore()
  folders = mkdtempSync(join(tmpdir(), 'sluice-frameworks-'))
})
afterAll(async () => {
  rmSync(folders, { recursive: true, force: true })
  await store.close()
})
beforeEach(() => store.clear())

const STORE = () => store.env as unknown as Record<string, string>

/** A folder in which the package and other packages are installed. */
async function folderWith(name: string, ...packages: string[]): Promise<string> {
  const folder = mkdtempSync(join(folders, name))
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
  await npm(folder, 'install', inject('tarball'), ...packages)
  return folder
}

const node = (folder: string, ...args: string[]) => run(folder, process.execPath, args, STORE())

/** Those of examples/next. */
const NEWEST = { next: '16.4.6', react: '19.3.1', 'react-dom': '19.3.1' }

describe.each([
  [{ next: '14.2.35', react: '18.3.1', 'react-dom': '18.3.1' }, 'middleware'],
  [{ ...NEWEST, next: '15.5.29' }, 'middleware'],
  [NEWEST, 'proxy'],
])('the example of Next.js, with %j', (versions, proxy) => {
  const program = 'node_modules/next/dist/bin/next'
  let folder: string
  let server: ChildProcess
  let url: string
  beforeAll(async () => {
    const packages = Object.entries(versions).map(([name, version]) => `${name}@${version}`)
    folder = await folderWith('next', ...packages)
    cpSync(join(ROOT, 'examples/next'), folder, {
      recursive: true,
      filter: file => !/package\.json$/.test(file),
    })
    // A slow machine must not decide without the store.
    const config = join(folder, 'sluice.config.js')
    writeFileSync(config, readFileSync(config, 'utf8').replace('({', "({\n  store: { deadline: '10s' },"))
    const code = readFileSync(join(folder, 'proxy.js'), 'utf8')
    writeFileSync(join(folder, 'proxy.js'), code.replace('const proxy =', `const ${proxy} =`))
    renameSync(join(folder, 'proxy.js'), join(folder, `${proxy}.js`))
    await node(folder, program, 'build')
    const port = await freePort()
    url = `http://127.0.0.1:${port}`
    server = spawn(process.execPath, [program, 'start', '-p', `${port}`], {
      cwd: folder,
      env: { ...cleanEnvironment(), ...STORE() },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    // It prints its address before it answers.
    while (!(await fetch(`${url}/none`).catch(() => undefined)))
      await new Promise(resolve => setTimeout(resolve, 100))
  })
  afterAll(async () => {
    server.kill()
    await once(server, 'exit')
  })

  it('limits the API in its proxy, each address by itself', async () => {
    const statusesOf = async (address: string) => {
      const headers = { 'x-forwarded-for': address }
      const replies = []
      for (let i = 0; i < 6; i++) replies.push(await fetch(`${url}/api/hello`, { headers }))
      return replies.map(({ status }) => status)
    }
    for (const address of ['192.0.2.1', '192.0.2.2'])
      expect(await statusesOf(address)).toEqual([200, 200, 200, 200, 200, 429])
  })

  it('counts each visit of a page, and refuses', async () => {
    const texts = []
    for (let i = 0; i < 4; i++) {
      const html = (await (await fetch(url)).text()).replaceAll(/<!-- -->/g, '')
      texts.push(/Letters left today: \d|No letters left today/.exec(html)?.[0])
    }
    expect(texts).toEqual([
      ...['Letters left today: 2', 'Letters left today: 1', 'Letters left today: 0'],
      'No letters left today',
    ])
  })
})

describe('Hono, of the range of the package', () => {
  it.each(['4.6.0', '4.9.0', 'latest'])(
    'some(bearerAuth(…), sluice(config)) refuses with a 429: %s',
    async version => {
      const folder = await folderWith('hono', `hono@${version}`)
      writeFileSync(join(folder, 'app.js'), HONO)
      expect((await node(folder, 'app.js')).stdout).toContain('statuses 200 429 200')
    },
  )
})

const HONO = `
import { Hono } from 'hono'
import { bearerAuth } from 'hono/bearer-auth'
import { some } from 'hono/combine'
import { sluice } from 'sluicegate/hono'
const rules = [{ name: 'day', by: 'global', algorithm: 'fixed-window', limit: 1, period: '1d' }]
const limits = sluice({ store: { deadline: '10s' }, credentials: { accept: ['anonymous'] }, rules })
const app = new Hono()
app.use(some(bearerAuth({ token: 'secret' }), limits))
app.get('/', c => c.text('hello'))
const statuses = []
for (const headers of [{}, {}, { authorization: 'Bearer secret' }]) statuses.push((await app.request('/', { headers })).status)
console.log('statuses', statuses.join(' '))
`

const IMPORTS = `
import { createLimiter } from 'sluicegate'
import { createClient } from 'sluicegate/client'
import { guard } from 'sluicegate/guard'
`

describe('older parsers', () => {
  it.each(['5.75.0', '5.91.0'])('webpack %s bundles the package', async version => {
    const folder = await folderWith('webpack', `webpack@${version}`)
    writeFileSync(
      join(folder, 'entry.mjs'),
      `${IMPORTS}console.log(typeof createLimiter, typeof createClient, typeof guard)`,
    )
    writeFileSync(join(folder, 'build.cjs'), WEBPACK)
    await node(folder, 'build.cjs')
    expect((await node(folder, 'dist/main.cjs')).stdout).toContain('function function function')
  })

  it('TypeScript 5.5 reads the types of the package', async () => {
    const folder = await folderWith('types', 'typescript@5.5.4', '@types/node@22.10.0')
    writeFileSync(
      join(folder, 'a.ts'),
      `${IMPORTS}
      export const all = [guard({}), createLimiter({ limits: {} }), createClient()]
      // @ts-expect-error There is no such option.
      export const wrong = guard({}, { addres: () => '192.0.2.1' })`,
    )
    const compilerOptions = {
      ...{ strict: true, noEmit: true, skipLibCheck: true, types: ['node'] },
      ...{ module: 'nodenext', moduleResolution: 'nodenext', target: 'es2022', lib: ['es2022'] },
    }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['a.ts'] }))
    await node(folder, 'node_modules/typescript/bin/tsc', '-p', '.').catch(error => {
      throw new Error(error.stdout)
    })
  })
})

/** The client of Redis imports @node-rs/xxhash, which may be missing. To webpack that is an error. */
const WEBPACK = `
const webpack = require('webpack')
const settings = { mode: 'development', target: 'node', entry: './entry.mjs', output: { path: __dirname + '/dist', filename: 'main.cjs' },
  plugins: [new webpack.IgnorePlugin({ resourceRegExp: /^@node-rs\\/xxhash$/ })] }
webpack(settings, (error, stats) => {
  const { errors = [] } = stats?.toJson({ all: false, errors: true }) ?? {}
  if (error || errors.length > 0) { console.error(error ?? errors[0].message); process.exitCode = 1 }
})
`
