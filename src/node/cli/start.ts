/** `npm start`: the gateway and all it needs, on this machine. */
import { Command } from 'commander'
import { type AdminStore, adminStore, loadScripts } from '../../ops/admin-store.ts'
import { revokeKey } from '../../ops/key-changes.ts'
import { createKey, unlistIfEmpty } from '../../ops/keys.ts'
import { sha256 } from '../../sha256.ts'
import type { Stack } from '../start/stack.ts'
import type { WorkerMessage } from '../start/worker-messages.ts'
import { configOf } from './administration.ts'
import { originUrl, port, redisChoice, restStore } from './arguments.ts'
import { whenNpmIsGone } from './npm-parent.ts'

const DEMO_CONSUMER = 'demo'
/** A demo key that a killed process leaves in a lasting store must not live for ever. */
const DEMO_KEY_MS = 86400e3

interface Flags {
  redis: string
  origin?: string
  port: number
  bridgePort: number
  originPort: number
}

export function startCommand(): Command {
  return new Command('start')
    .description('Run the gateway here, with a Redis, the REST bridge and a demo origin.')
    .option(
      '--redis <which>',
      'auto, embedded, redis://… or unix://… (default: $REDIS_URL, else auto)',
      redisChoice,
    )
    .option('--origin <url>', 'where admitted requests go (default: a demo origin that echoes)', originUrl)
    .option('--port <port>', 'of the gateway', port, 8787)
    .option('--bridge-port <port>', 'of the REST bridge', port, 8079)
    .option('--origin-port <port>', 'of the demo origin', port, 8788)
    .addHelpText(
      'after',
      '\nWith UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN set, that store is used and no bridge is started.',
    )
    .action(start)
}

async function start(flags: Flags): Promise<void> {
  const config = await configOf({})
  const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token } = process.env
  const { REDIS_URL, SLUICE_ENVIRONMENT } = process.env
  // A Redis that is named on the command line is meant, whatever the environment says.
  const rest = url && token && !flags.redis ? restStore({ url, token }) : undefined

  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stop.abort())
  void whenNpmIsGone(() => stop.abort())

  // What it takes is loaded by this command alone: half of the time that any other one has.
  const { startStack } = await import('../start/stack.ts')
  const stack = await startStack({
    redis: flags.redis ?? redisFrom(REDIS_URL),
    ports: { gateway: flags.port, bridge: flags.bridgePort, origin: flags.originPort },
    watch: true,
    onMessage: report,
    ...(SLUICE_ENVIRONMENT && { environment: SLUICE_ENVIRONMENT }),
    ...(rest && { rest }),
    ...(flags.origin && { origin: flags.origin }),
  })
  void stack.redisLost?.then(what =>
    console.error(`${what} The gateway goes on without it; start anew to have one.`),
  )
  console.log(`Redis    ${stack.redis}`)
  if (!rest) console.log(`Bridge   ${stack.rest.url}`)
  console.log(`Origin   ${stack.origin}${flags.origin ? '' : ' (demo: echoes what it receives)'}`)

  const { environment, credentials } = config
  const store = adminStore({ ...stack.rest, environment, keyPrefix: credentials.keyPrefix })
  let key: string | undefined
  try {
    await loadScripts(store, config).catch(error => {
      const hint = ' UPSTASH_REDIS_REST_URL says so: unset it, or give --redis, for a store of its own.'
      throw rest && error instanceof Error ? new Error(error.message.replace(/\.?$/, '.') + hint) : error
    })
    const expiresAt = new Date(Date.now() + DEMO_KEY_MS)
    const created = await createKey(store, { consumer: DEMO_CONSUMER, plan: config.plans[0]!, expiresAt })
    key = created.key
    if (await servesUntil(stack, stop.signal)) {
      greet(stack, { key, plan: config.plans[0]!, isLasting: Boolean(rest) })
      await aborted(stop.signal)
    }
  } finally {
    // The store may be gone by now; the key expires by itself.
    if (key !== undefined) await forget(store, key).catch(() => {})
    await stack.close()
  }
}

/** The demo consumer stays while others have started this too. */
async function forget(store: AdminStore, key: string): Promise<void> {
  await revokeKey(store, { consumer: DEMO_CONSUMER, digest: sha256(key) })
  await unlistIfEmpty(store, DEMO_CONSUMER)
}

function redisFrom(variable: string | undefined): string {
  try {
    return redisChoice(variable || 'auto')
  } catch (error) {
    throw new Error(`REDIS_URL: ${(error as Error).message}`)
  }
}

/** True once a request would succeed: the gateway's store answers, and so does the origin. */
async function servesUntil({ url, origin }: Stack, signal: AbortSignal): Promise<boolean> {
  let told = ''
  while (!signal.aborted) {
    const missing = (await answers(`${url}/_sluice/health`, ok => ok)) ? '' : 'the store'
    const waitingFor = missing || ((await answers(origin, () => true)) ? '' : `the origin at ${origin}`)
    if (!waitingFor) return true
    if (waitingFor !== told) console.log(`Waiting for ${waitingFor} …`)
    told = waitingFor
    await new Promise(resolve => setTimeout(resolve, 250))
  }
  return false
}

async function answers(url: string, isGood: (ok: boolean) => boolean): Promise<boolean> {
  try {
    const response = await fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(5000) })
    await response.body?.cancel()
    return isGood(response.ok)
  } catch {
    return false
  }
}

interface Demo {
  key: string
  plan: string
  /** The variables of the store are set already. */
  isLasting: boolean
}

function greet({ url, rest }: Stack, { key, plan, isLasting }: Demo): void {
  // What the Worker is started with is there for this command only.
  const { SLUICE_ENVIRONMENT } = process.env
  const environment = SLUICE_ENVIRONMENT ? ` --env ${SLUICE_ENVIRONMENT}` : ''
  const store = isLasting
    ? ''
    : `UPSTASH_REDIS_REST_URL=${rest.url} \\\n    UPSTASH_REDIS_REST_TOKEN=${rest.token} \\\n    `
  console.log(`Demo key: ${key}

One request:
    curl -i ${url}/hello -H 'Authorization: Bearer ${key}'
Fifteen at once:
    for i in $(seq 15); do curl -s -o /dev/null -w '%{http_code} ' ${url}/ -H 'X-API-Key: ${key}'; done; echo
A key of your own:
    ${store}npx sluice keys create --consumer acme --plan ${plan}${environment}

Sluice is ready on ${url}`)
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
      console.error(`${message.message}\nThe gateway goes on as it was.`)
      break
    case 'stopped':
      console.error(
        `${message.message}\nThe Worker stopped with this change, and comes back with the next one that starts.`,
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
