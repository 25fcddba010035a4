/** `npm start`: the gateway and all it needs, on this machine. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import { createAdminStore, loadScriptsIntoRedis } from '../../ops/admin-store.ts'
import { warningLine } from '../config-warnings.ts'
import { readLocalVariables } from '../dev-vars.ts'
import { projectWith, WORKER_ENTRY } from '../project.ts'
import { freePorts } from '../start/free-port.ts'
import type { RedisEnd } from '../start/redis.ts'
import type { Stack } from '../start/stack.ts'
import type { KeySettings, WorkerMessage } from '../start/worker-messages.ts'
import { configOf, keySecretOf } from './administration.ts'
import { fromVariable, parseOriginUrl, parsePort, parseRedisChoice, restStore } from './arguments.ts'
import { warningsAbout } from './check.ts'
import { demoKey, mayWriteDemoKey } from './demo-key.ts'
import { withExamples } from './help.ts'
import type { FileLoader } from './load-config.ts'
import { whenNpmIsGone } from './npm-parent.ts'

interface Flags {
  redis: string
  origin?: string
  port: number
  bridgePort: number
  originPort: number
}

export function startCommand(load: FileLoader): Command {
  const command = new Command('start')
    .summary('run the gateway on this machine')
    .description('Run the gateway on this machine, with a Redis, the REST bridge and a demo origin.')
    .option(
      '--redis <which>',
      'auto, embedded, redis://…, rediss://… or unix://… (default: $REDIS_URL, else auto)',
      parseRedisChoice,
    )
    .option(
      '--origin <url>',
      'URL that admitted requests go to (default: a demo origin that echoes them)',
      parseOriginUrl,
    )
    .option('--port <port>', 'port of the gateway', parsePort, 8787)
    .option('--bridge-port <port>', 'port of the REST bridge', parsePort, 8079)
    .option('--origin-port <port>', 'port of the demo origin', parsePort, 8788)
    .addHelpText(
      'after',
      '\nIf UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN are set, and --redis is not, that store is used\nand no bridge is started.',
    )
    .action((flags: Flags, own: Command) =>
      start(load, flags, name => own.getOptionValueSource(name) === 'default'),
    )
  return withExamples(command, 'start', 'start --origin https://api.example.com --redis embedded')
}

/** The Worker is built and run by packages that wrangler brings. @throws AdminError if they are not installed */
export function mustHaveWrangler(find: (name: string) => unknown = import.meta.resolve): void {
  try {
    for (const name of ['esbuild', 'miniflare']) find(name)
  } catch {
    throw new AdminError(
      'usage',
      'npx sluicegate start runs a Worker, for which the packages esbuild and miniflare are missing. npm install --save-dev wrangler installs both. To run the gateway without Cloudflare, use npx sluicegate serve.',
    )
  }
}

/** @throws AdminError in a folder without the module of a Worker */
function mustHaveEntry(configFile: string): void {
  const entry = join(projectWith(configFile).root, WORKER_ENTRY)
  if (existsSync(entry)) return
  throw new AdminError(
    'usage',
    `npx sluicegate start runs a Worker, whose module ${entry} does not exist. npx sluicegate init makes a project with it. To run the gateway without Cloudflare, use npx sluicegate serve.`,
  )
}

/** @param isDefault whether an option has its default, and not a value of the user */
async function start(
  load: FileLoader,
  flags: Flags,
  isDefault: (option: keyof Flags) => boolean,
): Promise<void> {
  mustHaveWrangler()
  const loaded = await load()
  mustHaveEntry(loaded.file)
  // The demo key is one of this environment.
  const variables = readLocalVariables(projectWith(loaded.file))
  const { SLUICE_ENVIRONMENT } = variables
  if (SLUICE_ENVIRONMENT) process.env.SLUICE_ENVIRONMENT = SLUICE_ENVIRONMENT
  const keySecret = keySecretOf(variables)
  const config = await configOf({}, async () => loaded)
  const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token } = process.env
  const { REDIS_URL } = process.env
  // A Redis on the command line takes precedence over the variables of a store.
  const rest = url && token && !flags.redis ? restStore({ url, token }) : undefined
  if (!flags.redis && Boolean(url) !== Boolean(token)) {
    const [set, missing] = url
      ? ['UPSTASH_REDIS_REST_URL', 'UPSTASH_REDIS_REST_TOKEN']
      : ['UPSTASH_REDIS_REST_TOKEN', 'UPSTASH_REDIS_REST_URL']
    console.error(`${set} is ignored, because ${missing} is not set.`)
  }

  const redis = flags.redis ?? fromVariable('REDIS_URL', REDIS_URL || 'auto', parseRedisChoice)
  const storeUrl = rest?.url ?? (URL.canParse(redis) ? redis : undefined)
  // Asked before anything is started, and before signals are handled.
  const hasDemoKey = storeUrl === undefined || (await mayWriteDemoKey(storeUrl))

  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stop.abort())
  void whenNpmIsGone(() => stop.abort())

  let keys: KeySettings = {
    environment: config.environment,
    keyPrefix: config.credentials.keyPrefix,
  }
  let renewKey = async () => {}
  let renewLostKey = async () => {}
  // One after the other: a reload must not make a key while another one does.
  let jobs = Promise.resolve()
  const inTurn = (job: () => Promise<void>) => {
    jobs = jobs.then(job).catch(error => console.error(error.message))
  }
  const onReload = (reloaded: KeySettings) => {
    const before = JSON.stringify(keys)
    keys = { ...reloaded, ...(SLUICE_ENVIRONMENT && { environment: SLUICE_ENVIRONMENT }) }
    if (JSON.stringify(keys) !== before) inTurn(renewKey)
  }
  let failure: Error | undefined
  const onRedisEnd = ({ what, restarted }: RedisEnd) => {
    console.error(what)
    inTurn(async () => {
      await restarted.catch(error => {
        failure = new Error(`Redis could not be restarted. ${error.message}`)
        stop.abort()
      })
      if (failure) return
      console.error('Redis has been restarted, without its data.')
      await renewLostKey()
    })
  }
  // It may have lost its data.
  const onRedisBack = () => inTurn(() => renewLostKey())
  const warnings = warningsAbout(loaded).map(warning => warningLine(warning, loaded.file))
  let shownWarnings = ''
  const showWarnings = (lines: readonly string[]) => {
    const text = lines.map(line => `\n  ${line}`).join('')
    if (text !== '' && text !== shownWarnings) console.error(`Warnings about the config:${text}`)
    shownWarnings = text
  }

  /** Set while the config has had no API. */
  let showToken = () => {}

  console.log('Starting the store and the Worker. The first time, this takes about 10 s.')
  const ports = await portsFor(flags, isDefault)
  // Imported here, and not at the top: loading these modules takes half as long as any other command does in total.
  const { startStack } = await import('../start/stack.ts')
  const stack = await startStack({
    ...{ redis, ports },
    watch: true,
    configFile: config.file,
    onMessage: message => {
      report(message)
      if (message.type !== 'reloaded') return
      showWarnings(message.warnings)
      if (message.hasApi) showToken()
      onReload(message.keys)
    },
    onRedisEnd,
    onRedisBack,
    log: line => console.error(line),
    ...(SLUICE_ENVIRONMENT && { environment: SLUICE_ENVIRONMENT }),
    ...(rest && { rest }),
    ...(flags.origin && { origin: flags.origin }),
  })
  if (!config.api)
    showToken = () => {
      showToken = () => {}
      console.log(tokenHint(stack, Boolean(rest)))
    }
  console.log(`Redis    ${stack.redis}`)
  if (!rest) console.log(`Bridge   ${stack.rest.url}`)
  console.log(`Origin   ${stack.origin}${flags.origin ? '' : ' (demo: echoes what it receives)'}`)

  const demo = demoKey(stack.rest, keySecret)
  try {
    await loadScriptsIntoRedis(createAdminStore({ ...stack.rest, ...keys }), config).catch(error => {
      const hint =
        ' This store is set by UPSTASH_REDIS_REST_URL. To use a local one, unset the variable or add --redis.'
      throw rest && error instanceof Error ? new Error(error.message.replace(/\.?$/, '.') + hint) : error
    })
    const key = hasDemoKey ? await demo.renew(keys) : undefined
    if (hasDemoKey) {
      renewKey = async () => {
        const renewed = await withRetries(() => demo.renew(keys), stop.signal)
        console.log(`The previous demo key is no longer valid. Demo key: ${renewed}`)
      }
      renewLostKey = async () => {
        if (!(await withRetries(() => demo.isStored(), stop.signal))) await renewKey()
      }
    }
    if (await waitUntilServing(stack, stop.signal)) {
      showWarnings(warnings)
      greet(stack, { ...(key && { key }), hasVariablesSet: Boolean(rest), hasApi: Boolean(config.api) })
      await aborted(stop.signal)
    }
    if (failure) throw failure
  } finally {
    await demo.forget()
    await stack.close()
  }
}

/** The ports of the flags. In place of a default port that is in use, the next free one, so that a second `npm start` works. */
async function portsFor(
  flags: Flags,
  isDefault: (option: keyof Flags) => boolean,
): Promise<{ gateway: number; bridge: number; origin: number }> {
  const ports = { gateway: flags.port, bridge: flags.bridgePort, origin: flags.originPort }
  const parts = [
    ['gateway', 'port'],
    ['origin', 'originPort'],
    ['bridge', 'bridgePort'],
  ] as const
  const movable = parts.filter(([, option]) => isDefault(option)).map(([part]) => part)
  const found = await freePorts(movable.map(part => ports[part]))
  for (const [i, part] of movable.entries()) {
    if (found[i] !== ports[part]) console.log(`Port ${ports[part]} is in use. The ${part} takes ${found[i]}.`)
    ports[part] = found[i]!
  }
  return ports
}

/** True once a request would succeed: the gateway's store answers, and so does the origin. */
async function waitUntilServing({ url, origin }: Stack, signal: AbortSignal): Promise<boolean> {
  let shown = ''
  while (!signal.aborted) {
    const missing = (await isUp(`${url}/_sluice/health`, ok => ok)) ? '' : 'the store'
    const waitingFor = missing || ((await isUp(origin, () => true)) ? '' : `the origin at ${origin}`)
    if (!waitingFor) return true
    if (waitingFor !== shown) console.log(`Waiting for ${waitingFor} …`)
    shown = waitingFor
    await new Promise(resolve => setTimeout(resolve, 250))
  }
  return false
}

/** A Redis that has just been restarted is not connected yet. */
async function withRetries<T>(act: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let left = 20; ; left--) {
    try {
      return await act()
    } catch (error) {
      if (left === 0 || signal.aborted) throw error
      await new Promise(resolve => setTimeout(resolve, 250))
    }
  }
}

async function isUp(url: string, isGood: (ok: boolean) => boolean): Promise<boolean> {
  try {
    const response = await fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(5000) })
    await response.body?.cancel()
    return isGood(response.ok)
  } catch {
    return false
  }
}

interface Demo {
  /** Absent: none was written. */
  key?: string
  /** The variables of the store are set already. */
  hasVariablesSet: boolean
  /** The config has the HTTP API. */
  hasApi: boolean
}

/** Stands for the key in the commands to paste. */
const NO_KEY = 'YOUR_KEY'

function greet({ url, rest }: Stack, { key = NO_KEY, hasVariablesSet, hasApi }: Demo): void {
  const command = (words: string) => commandFor(rest, hasVariablesSet, words)
  console.log(`${
    key === NO_KEY
      ? ''
      : `Demo key: ${key}

`
  }Send one request:
    curl -i ${url}/hello -H 'Authorization: Bearer ${key}'
Send thirty at once, more than the config admits in a second:
    curl -Z --no-progress-meter -o /dev/null -w '%{http_code} ' '${url}/?[1-30]' -H 'X-API-Key: ${key}'; echo
Create a key of your own:
    ${command('keys create --consumer acme')}
${hasApi ? `${tokenHint({ url, rest }, hasVariablesSet)}\n` : ''}Find out whether it works where you deploy it: npx sluicegate doctor

Sluice is ready on ${url}`)
}

function tokenHint({ url, rest }: Pick<Stack, 'url' | 'rest'>, hasVariablesSet: boolean): string {
  const command = commandFor(
    rest,
    hasVariablesSet,
    'tokens create --name my-service --scopes keys:write,limits:use',
  )
  return `Create a token for the HTTP API at ${url}/_sluice/v1/:\n    ${command}`
}

/** With the environment, because commands other than `start` do not read .dev.vars. */
function commandFor({ url, token }: Stack['rest'], hasVariablesSet: boolean, words: string): string {
  const { SLUICE_ENVIRONMENT } = process.env
  const environment = SLUICE_ENVIRONMENT ? ` --env ${SLUICE_ENVIRONMENT}` : ''
  const store = hasVariablesSet
    ? ''
    : `UPSTASH_REDIS_REST_URL=${url} \\\n    UPSTASH_REDIS_REST_TOKEN=${token} \\\n    `
  return `${store}npx sluicegate ${words}${environment}`
}

function report(message: WorkerMessage): void {
  switch (message.type) {
    case 'log':
      console.log(message.message)
      break
    case 'reloaded':
      console.log('Reloaded.')
      break
    case 'rejected':
      console.error(`${message.message}\nThe gateway keeps running with the previous version.`)
      break
    case 'stopped':
      console.error(`${message.message}\nThe Worker is down. Fix the file and save.`)
      break
    case 'restarted':
      console.error(
        'The Workers runtime ended unexpectedly. Requests in flight were lost, and so was what the Worker kept in memory. It has been restarted.',
      )
      break
    case 'ready':
    case 'failed':
      break
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
