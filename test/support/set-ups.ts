/** All set-ups as their users run them: on real sockets if the set-up has any, each in its own environment of the store. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { serve } from '@hono/node-server'
import { build } from 'esbuild'
import { Hono } from 'hono'
import { handle as lambdaOf } from 'hono/aws-lambda'
import { vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { applyVariables, type Environment } from '../../src/config/environment.ts'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { expressGuard, nodeListener } from '../../src/node/express.ts'
import { projectWith } from '../../src/node/project.ts'
import { bundleOptions } from '../../src/node/worker-bundle.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { ADDRESS_HEADER, addressOf, countedGuard, RECEIVED_PATH } from './counted-guard.ts'
import { startOrigin } from './origin.ts'
import { SET_UP_CONFIGS, type SetUpConfigName } from './set-up-configs.ts'
import { startTestWorker, startWorkerScript, type TestWorker } from './workerd.ts'

export interface SetUp {
  /** @param init whose header `ADDRESS_HEADER` is the client's address */
  fetch(path: string, init: SetUpRequest): Promise<Response>
  /** How many requests the user's code, or the origin, has received. */
  received(): number | Promise<number>
  close(): Promise<void>
}

export interface SetUpRequest {
  method: string
  headers: Record<string, string>
}

/** The variables that connect a set-up to its store. */
export type SetUpVariables = Record<
  keyof Pick<Environment, 'UPSTASH_REDIS_REST_URL' | 'UPSTASH_REDIS_REST_TOKEN' | 'SLUICE_ENVIRONMENT'>,
  string
>

export type StartSetUp = (config: SetUpConfigName, env: SetUpVariables) => Promise<SetUp>

/** The set-up that the others are compared with. */
export const startGateway: StartSetUp = async (config, env) => {
  const origin = await startOrigin()
  const { url, token, ...settings } = applyVariables(
    checkedConfig({ ...SET_UP_CONFIGS[config], origin: origin.url, address: { from: 'peer' } }),
    env,
  )
  const store = upstashStore({
    url,
    token,
    deadlineMs: settings.storeDeadlineMs,
    keyLocking: true,
    environment: settings.environment,
  })
  const app = createApp(settings, store, ALL_PARTS, { peerOf: addressOf })
  return {
    fetch: async (path, init) => await app.request(`http://gateway.test${path}`, init),
    received: () => origin.received.length,
    close: origin.close,
  }
}

/** The other set-ups that need no runtime beside Node and workerd. */
export const SET_UPS: Readonly<Record<string, StartSetUp>> = {
  'gateway in workerd': (config, env) =>
    gatewayInWorkerd(env, bindings =>
      startTestWorker('../worker/set-ups/gateway.ts', { ...bindings, SET_UP_CONFIG: config }),
    ),

  'built gateway in workerd': (config, env) =>
    gatewayInWorkerd(env, async bindings => {
      const file = fileURLToPath(new URL(`set-up-${config}.config.ts`, import.meta.url))
      const { outputFiles } = await build(bundleOptions(file, () => loadConfig(file), projectWith(file)))
      return await startWorkerScript(outputFiles![0]!.text, bindings)
    }),

  async guard(config, env) {
    const { handle, received } = countedGuard(config, { env, address: addressOf })
    return {
      fetch: async (path, init) => await handle(new Request(`http://guard.test${path}`, init)),
      received,
      close: async () => {},
    }
  },

  'guard in workerd': (config, env) => userCodeInWorkerd('guard', config, env),

  async 'guard of node:http'(config, env) {
    const { handle, received } = countedGuard(config, { env, address: addressOf })
    return listening(createServer(nodeListener(handle)), received)
  },

  async 'hono middleware'(config, env) {
    let count = 0
    const app = new Hono()
    app.use(sluice(SET_UP_CONFIGS[config], { env, address: c => addressOf(c.req.raw) }))
    app.all('*', c => {
      count += 1
      return c.json({ hello: c.get('sluice')?.consumer ?? null })
    })
    const server = serve({ fetch: app.fetch, port: 0 })
    await once(server, 'listening')
    return {
      fetch: (path, init) => fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, init),
      received: () => count,
      close: () => new Promise(resolve => void server.close(() => resolve())),
    }
  },

  'hono middleware in workerd': (config, env) => userCodeInWorkerd('hono', config, env),

  async 'express middleware'(config, env) {
    let count = 0
    const middleware = expressGuard(SET_UP_CONFIGS[config], {
      env,
      address: req => req.headers[ADDRESS_HEADER] as string | undefined,
    })
    const server = createServer((req, res) =>
      middleware(req, res, () => {
        count += 1
        res.setHeader('content-type', 'application/json')
        res.end(JSON.stringify({ hello: req.sluice?.consumer ?? null }))
      }),
    )
    return listening(server, () => count)
  },

  /** As in examples/lambda: the adapter of Hono makes a Request of the event. */
  async 'guard of lambda'(config, env) {
    const { handle, received } = countedGuard(config)
    const handler = lambdaOf(new Hono().all('*', c => handle(c.req.raw, c.env)))
    return inProcess(env, received, async (path, { method, headers }) => {
      const event = lambdaEvent(path, method, headers)
      const {
        statusCode,
        headers: replied,
        body,
      } = await handler(event as unknown as Parameters<typeof handler>[0])
      return new Response(statusCode === 204 ? null : body, {
        status: statusCode,
        headers: replied as Record<string, string>,
      })
    })
  },

  async 'guard of vercel'(config, env) {
    const { handle, received } = countedGuard(config)
    return inProcess({ ...env, VERCEL: '1' }, received, async (path, { method, headers }) => {
      const request = new Request(`https://function.test${path}`, {
        method,
        headers: { ...headers, 'x-real-ip': headers[ADDRESS_HEADER]! },
      })
      return await handle(request, {})
    })
  },

  async 'guard of netlify'(config, env) {
    const { handle, received } = countedGuard(config)
    return inProcess(env, received, async (path, init) => {
      const context = { ip: init.headers[ADDRESS_HEADER], geo: {}, waitUntil() {} }
      return await handle(new Request(`https://function.test${path}`, init), context)
    })
  },
}

/** @param program the path or name of Bun's program */
export const guardOfBun = (program: () => string): StartSetUp =>
  startServer(program, ['test/set-ups/servers/bun.ts'])

/** @param program the path or name of Deno's program */
export const guardOfDeno = (program: () => string): StartSetUp =>
  startServer(program, [
    ...['run', '--quiet', '--no-lock', '--node-modules-dir=manual'],
    ...['--allow-net', '--allow-env', 'test/set-ups/servers/deno.ts'],
  ])

/** The set-ups of the runtimes that are on the PATH. Prints the names of the runtimes that are not. */
export function installedRuntimes(): Record<string, StartSetUp> {
  const runtimes = { bun: guardOfBun, deno: guardOfDeno }
  return Object.fromEntries(
    Object.entries(runtimes).flatMap(([name, guardOf]) => {
      if (isInstalled(name)) return [[`guard of ${name}`, guardOf(() => name)]]
      console.log(`${name} is not on the PATH: its setUp is tested by npm run test:all only.`)
      return []
    }),
  )
}

function isInstalled(program: string): boolean {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

/** A function of a platform, which reads its variables from the process. */
function inProcess(env: Record<string, string>, received: () => number, request: SetUp['fetch']): SetUp {
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
  return { fetch: request, received, close: async () => void vi.unstubAllEnvs() }
}

/** An event of a function URL (payload format 2.0). */
function lambdaEvent(path: string, method: string, headers: Record<string, string>) {
  const { pathname, search } = new URL(path, 'https://x.lambda-url.test')
  return {
    version: '2.0',
    rawPath: pathname,
    rawQueryString: search.slice(1),
    headers: { host: 'x.lambda-url.test', ...headers },
    requestContext: {
      http: { method, path: pathname, sourceIp: headers[ADDRESS_HEADER] },
      domainName: 'x.lambda-url.test',
      requestId: '1',
    },
    isBase64Encoded: false,
  }
}

/** Cloudflare's edge sets CF-Connecting-IP. */
const onCloudflare = (url: string): SetUp['fetch'] => {
  return (path, { method, headers }) =>
    fetch(url + path, { method, headers: { ...headers, 'cf-connecting-ip': headers[ADDRESS_HEADER]! } })
}

async function gatewayInWorkerd(
  env: SetUpVariables,
  start: (bindings: Record<string, string>) => Promise<TestWorker>,
): Promise<SetUp> {
  const origin = await startOrigin()
  const worker = await start({ ...env, ORIGIN_URL: origin.url })
  return {
    fetch: onCloudflare(worker.url),
    received: () => origin.received.length,
    async close() {
      await worker.close()
      await origin.close()
    },
  }
}

/** @param name of a Worker in test/worker/set-ups */
async function userCodeInWorkerd(name: string, config: SetUpConfigName, env: SetUpVariables): Promise<SetUp> {
  const { url, close } = await startTestWorker(`../worker/set-ups/${name}.ts`, {
    ...env,
    SET_UP_CONFIG: config,
  })
  return { fetch: onCloudflare(url), received: () => receivedAt(url), close }
}

async function receivedAt(url: string): Promise<number> {
  const response = await fetch(url + RECEIVED_PATH)
  return (await response.json()) as number
}

/** A set-up in a process that prints its address. */
function startServer(program: () => string, args: readonly string[]): StartSetUp {
  return async (config, env) => {
    const child = spawn(program(), args, {
      cwd: fileURLToPath(new URL('../../', import.meta.url)),
      env: { ...process.env, ...env, SET_UP_CONFIG: config, DENO_NO_UPDATE_CHECK: '1', NO_COLOR: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const exited = once(child, 'exit')
    const lines: string[] = []
    const url = await new Promise<string>((resolve, reject) => {
      for (const stream of [child.stdout, child.stderr]) {
        createInterface(stream).on('line', line => {
          lines.push(line)
          if (/^http:\/\/\S+$/.test(line)) resolve(line)
        })
      }
      exited.then(() => reject(new Error(lines.join('\n'))), reject)
    })
    return {
      fetch: (path, init) => fetch(url + path, init),
      received: () => receivedAt(url),
      async close() {
        child.kill()
        await exited
      },
    }
  }
}

async function listening(server: ReturnType<typeof createServer>, received: () => number): Promise<SetUp> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    fetch: (path, init) => fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, init),
    received,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
