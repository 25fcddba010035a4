/**
 * `npm run bench:peers`: decisions of six fixed-window limits in one process on one Redis, beside the limiters that Node teams use. `-- --write`
 * writes bench/peers.md.
 */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import { Redis } from 'ioredis'
import { RedisStore } from 'rate-limit-redis'
import { RateLimiterRedis, RateLimiterUnion } from 'rate-limiter-flexible'
import { createClient } from 'redis'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import { startGuardian } from '../src/node/start/guardian.ts'
import { findServer, startPrivateServer } from '../src/node/start/redis.ts'
import { createLimiter } from '../src/set-ups/limits/create-limiter.ts'
import { times } from './figures.ts'
import { inRounds, measureTimes, median, quantile, runConcurrently } from './measure.ts'
import { loadAverage, machine, versions } from './report.ts'
import { NoRedis } from './test-bed.ts'

const RESULTS = new URL('peers.md', import.meta.url)
const ROUNDS = 5
const IN_TURN = 3000
const AT_ONCE = 64
const DECISIONS = 20_000
const PERIODS = { second: 1, minute: 60, hour: 3600 }
/** Nothing is refused, so that every decision is one of the store. */
const LIMIT = 1e9

const { write } = new Command().option('--write').parse().opts<{ write?: true }>()
const program = await findServer(['redis-server'])
if (!program) throw new NoRedis()
const guardian = startGuardian()
const directory = mkdtempSync(join(tmpdir(), 'sluice-peers-'))
guardian.guard({ directory })
const server = await startPrivateServer(program, { guardian, directory: join(directory, 'r') })

const nodeRedis = await createClient({ url: server.url }).connect()
const ioredis = new Redis(server.url)

type Decide = (n: number) => Promise<unknown>

/** The caller and the team of a decision: six limits, three of each. */
const accountOf = (n: number) => `a${n % 10_000}`
const teamOf = (n: number) => `t${n % 100}`

function sluice(redis: typeof nodeRedis | Redis) {
  const limiter = createLimiter(
    {
      rules: [],
      limits: {
        calls: ['account', 'team'].flatMap(by =>
          Object.entries(PERIODS).map(([name, seconds]) => ({
            ...{ name: `${by}-${name}`, by: [by], algorithm: 'fixed-window' as const },
            ...{ limit: LIMIT, period: `${seconds}s` as const },
          })),
        ),
      },
    },
    { redis },
  )
  const decide: Decide = async n => {
    const { allowed, degraded } = await limiter.limit('calls', { account: accountOf(n), team: teamOf(n) })
    if (!allowed || degraded) throw new Error('A decision was not that of the store.')
  }
  return { decide, close: () => limiter.close() }
}

function flexible(storeClient: typeof nodeRedis | Redis): Decide {
  const useRedisPackage = storeClient === nodeRedis
  const unionFor = (by: string) =>
    new RateLimiterUnion(
      ...Object.entries(PERIODS).map(
        ([name, duration]) =>
          new RateLimiterRedis({
            ...{ storeClient, useRedisPackage, keyPrefix: `${by}-${name}`, points: LIMIT, duration },
          }),
      ),
    )
  const [accounts, teams] = [unionFor('account'), unionFor('team')]
  return n => Promise.all([accounts.consume(accountOf(n)), teams.consume(teamOf(n))])
}

/** The store of express-rate-limit, without the middleware around it: each middleware has one limit, so six follow each other. */
function express(client: typeof nodeRedis | Redis): Decide {
  const sendCommand = (...command: string[]) =>
    (client === nodeRedis
      ? nodeRedis.sendCommand(command)
      : ioredis.call(command[0]!, ...command.slice(1))) as Promise<number>
  const stores = ['account', 'team'].flatMap(by =>
    Object.entries(PERIODS).map(([name, seconds]) => {
      const store = new RedisStore({ sendCommand, prefix: `${by}-${name}:` })
      store.init({ windowMs: seconds * 1000 } as Parameters<RedisStore['init']>[0])
      return { store, keyOf: by === 'account' ? accountOf : teamOf }
    }),
  )
  return async n => {
    for (const { store, keyOf } of stores) await store.increment(keyOf(n))
  }
}

let decisions = 0

async function measure(decide: Decide) {
  const next = () => decide(decisions++)
  await runConcurrently(AT_ONCE, 2000, next)
  const inTurn = await measureTimes(IN_TURN, next)
  const startedAt = performance.now()
  await runConcurrently(AT_ONCE, DECISIONS, next)
  return {
    p50: quantile(inTurn, 0.5),
    p99: quantile(inTurn, 0.99),
    perSecond: (DECISIONS / (performance.now() - startedAt)) * 1000,
  }
}

const limiters = { 'node-redis': sluice(nodeRedis), ioredis: sluice(ioredis) }
try {
  const CONTENDERS = {
    'Sluice, node-redis': limiters['node-redis'].decide,
    'Sluice, ioredis': limiters.ioredis.decide,
    'rate-limiter-flexible, node-redis': flexible(nodeRedis),
    'rate-limiter-flexible, ioredis': flexible(ioredis),
    'express-rate-limit, node-redis': express(nodeRedis),
    'express-rate-limit, ioredis': express(ioredis),
  }
  type Name = keyof typeof CONTENDERS
  const names = Object.keys(CONTENDERS) as Name[]
  const runs = await inRounds(
    ROUNDS,
    Object.fromEntries(names.map(name => [name, () => measure(CONTENDERS[name])])) as Record<
      Name,
      () => ReturnType<typeof measure>
    >,
  )
  type What = 'p50' | 'p99' | 'perSecond'
  const of = (name: Name, what: What) => median(runs[name].map(run => run[what]))
  /** Sluice ÷ the other, within each round. */
  const ratio = (name: Name, what: What) => {
    const own: Name = name.endsWith('ioredis') ? 'Sluice, ioredis' : 'Sluice, node-redis'
    return times(median(runs[name].map((run, round) => runs[own][round]![what] / run[what])))
  }
  const rows = names.map(name => [
    name,
    ...[of(name, 'p50').toFixed(2), of(name, 'p99').toFixed(2), String(Math.round(of(name, 'perSecond')))],
    ...(name.startsWith('Sluice') ? ['', ''] : [ratio(name, 'p50'), ratio(name, 'perSecond')]),
  ])
  const head = ['', 'p50, ms', 'p99, ms', 'decisions a second', 'p50 of Sluice ÷ this', 'decisions ÷ this']
  const packages = ['rate-limiter-flexible', 'rate-limit-redis', 'ioredis', 'redis']
  const page = [
    '# Beside other limiters in Node\n\nMade by `npm run bench:peers -- --write`.\n',
    markdownOf({ head, rows }, { isAligned: true }),
    '\n## Machine and versions\n',
    ...[...machine(), versions(program.version, packages), new Date().toISOString().slice(0, 10)].map(
      line => `- ${line}`,
    ),
    `- Load average at the end: ${loadAverage()}`,
    '\n## Method\n',
    '- Six fixed-window limits: one a second, one a minute and one an hour, for an account and again for its team. All admit the request.',
    '- Sluice: one `limiter.limit`, all or nothing, in one trip. rate-limiter-flexible: two unions of three limiters, whose six commands are sent together; a refusal of one leaves the others spent. express-rate-limit: the stores of six middlewares, one after the other, without the middlewares.',
    '- Sluice takes the address of the client and connects by itself with `redis`, whichever client it is.',
    `- Times: ${IN_TURN} decisions in turn. Decisions a second: ${DECISIONS} with ${AT_ONCE} at once. Medians of ${ROUNDS} rounds in alternating order, after a warm-up in each; ratios are computed within each round. All in one process, with redis-server beside it.\n`,
  ].join('\n')
  console.log(page)
  if (write) writeFileSync(RESULTS, page)
} finally {
  await Promise.all(Object.values(limiters).map(limiter => limiter.close()))
  nodeRedis.destroy()
  ioredis.disconnect()
  await server.close()
  await guardian.dismiss()
}
