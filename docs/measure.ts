/**
 * Measures the figures of docs/algorithms.md that only a Redis can show: bytes, commands, and time inside the server. Run `node
 * docs/measure.ts` on a machine with a redis-server; it takes some minutes. Commands and bytes are the same in every run, except
 * for the skip lists of sorted sets, which are random. Times differ.
 */
import { checkedConfig } from '../src/config/check/check.ts'
import type { NumbersInput } from '../src/config/check/rule-schema.ts'
import type { Rule } from '../src/config/compile.ts'
import type { BoundRule } from '../src/script/evaluation.ts'
import { chunksKey, consumerStateKey, ownKey } from '../src/store/keys.ts'
import { bound } from '../test/support/bound.ts'
import { startEngine } from './engine.ts'

/** 2026-11-20T12:00:00Z in µs. */
const NOON = Date.UTC(2026, 10, 20, 12) * 1e3
const STATE = consumerStateKey('acme')

const engine = await startEngine()

/** Prints the bytes of a state with 1 to 12 records. */
async function stateBytes(): Promise<void> {
  title(`MEMORY USAGE of a state (key of ${STATE.length} characters)`)
  for (const records of [1, 2, 3, 6, 12]) {
    await engine.send(['FLUSHALL'])
    await decide(plainRules(records), NOON)
    console.log(
      `${records} rules: ${await lengthOf(STATE)} bytes of state, ${await usageOf(STATE)} in memory`,
    )
  }
}

/** Prints the memory that Redis needs for one more caller, including its hash tables and the expiry. */
async function bytesPerCaller(): Promise<void> {
  title('used_memory per caller with three rules, of 100,000 callers')
  await engine.send(['FLUSHALL'])
  const rules = plainRules(3)
  const before = await usedMemory()
  for (let i = 0; i < 100_000; i++) {
    const key = consumerStateKey(`caller-${String(i).padStart(6, '0')}`)
    await engine.evaluate({ rules: rules.map(rule => bound(rule, key)), plans: [], now: NOON })
  }
  console.log(`${Math.round(((await usedMemory()) - before) / 100_000)} bytes`)
}

/** Prints the bytes of a log at its limit, after filling and while it stays full; those of sorted sets; and the time of a decision. */
async function logs(): Promise<void> {
  title(
    'sliding-log with so many entries that count: MEMORY USAGE, and time inside the server (best of 5 × 500)',
  )
  for (const entries of [10, 100, 1000, 10_000, 100_000]) {
    await engine.send(['FLUSHALL'])
    const [rule] = rulesOf({ algorithm: 'sliding-log', limit: entries, period: `${entries}s` })
    const log = ownKey(STATE, 'log', rule!.tag)
    for (let i = 0; i < entries; i++) await decide([rule!], NOON + i * 1e6)
    const usage = async () => (await usageOf(log)) + (await usageOf(chunksKey(log)))
    const bytes = [await usage()]
    const time = await timeOf(async i => {
      await decide([rule!], NOON + (entries + i) * 1e6)
      if (i % 20 === 0) bytes.push(await usage())
    })
    const sets = [await sortedSetBytes(entries, 16), await sortedSetBytes(entries, 24)]
    const figures = [bytes[0]!, Math.min(...bytes), Math.max(...bytes), ...sets]
    const [filled, least, most] = figures
    console.log(
      `${entries}: filled ${filled}, kept full ${least} to ${most}, sorted set ${sets.join(' and ')}; an entry: ` +
        `${figures.map(figure => (figure / entries).toFixed(1)).join(' ')}; ${time} µs`,
    )
  }
  const rules = plainRules(1)
  console.log(`gcra: ${await timeOf(i => decide(rules, NOON + i * 3600e6))} µs`)
}

/** The bytes of a sorted set that is filled by `ZADD key microseconds member`. Each member is unique, and has `characters` characters. */
async function sortedSetBytes(entries: number, characters: number): Promise<number> {
  const key = `rate:{c:acme}:${characters}`
  for (let i = 0; i < entries; i++) {
    const member = `${i}`.padStart(characters, 'x')
    await engine.send(['ZADD', key, String(NOON + i * 1e6), member])
  }
  return usageOf(key)
}

/** Prints the commands that Redis runs for one decision. */
async function commands(): Promise<void> {
  title('commands of a decision')
  const log = rulesOf({ algorithm: 'sliding-log', limit: 2, period: '1h' })
  const gcra = plainRules(3)
  await engine.send(['FLUSHALL'])
  const other = consumerStateKey('other')
  const cases: [string, () => Promise<unknown>][] = [
    ['three rules of one identity', () => ask(gcra.map(rule => bound(rule, STATE)))],
    [
      'three rules of each of two',
      () => ask([STATE, other].flatMap(key => gcra.map(rule => bound(rule, key)))),
    ],
    ['a peek', () => ask(gcra.map(rule => bound(rule, STATE, 0)))],
    ['refused', () => ask(gcra.map(rule => bound(rule, STATE, 1e9)))],
    ['sliding-log, its first entry', () => ask([bound(log[0]!, STATE)])],
    ['sliding-log, one more', () => ask([bound(log[0]!, STATE)])],
    ['sliding-log, refused', () => ask([bound(log[0]!, STATE)])],
  ]
  for (const [name, run] of cases) {
    await engine.send(['CONFIG', 'RESETSTAT'])
    await run()
    console.log(`${name}: ${[...(await commandStatistics()).keys()].sort().join(' + ')}`)
  }

  // By the clock of Redis, as in production.
  async function ask(rules: BoundRule[]) {
    await engine.evaluate({ rules, plans: [] } as never)
  }
}

/** The time of a decision inside the server (µs): the best of five rounds. `run` makes one decision. */
async function timeOf(run: (i: number) => Promise<void>): Promise<number> {
  const times = []
  for (let round = 0; round < 5; round++) {
    await engine.send(['CONFIG', 'RESETSTAT'])
    for (let i = 0; i < 500; i++) await run(round * 500 + i)
    times.push((await commandStatistics()).get('evalsha')!)
  }
  return Math.min(...times)
}

/** The time per call (µs) of each command, without the commands that read and reset the statistics. */
async function commandStatistics(): Promise<Map<string, number>> {
  const text = String(await engine.send(['INFO', 'commandstats']))
  const lines = [...text.matchAll(/^cmdstat_([^:]+):calls=(\d+),usec=\d+,usec_per_call=([\d.]+)/gm)]
  const own = lines.filter(([, name]) => name !== 'info' && !name!.startsWith('config'))
  return new Map(
    own.map(([, name, calls, time]) => [Number(calls) === 1 ? name! : nameOf(name!, calls!), Number(time)]),
  )
}

const nameOf = (name: string, calls: string) => (Number(calls) < 10 ? `${calls} ${name}` : name)

async function decide(rules: readonly Rule[], now: number): Promise<void> {
  const { status } = await engine.evaluate({ rules: rules.map(rule => bound(rule, STATE)), plans: [], now })
  if (status !== 'admitted') throw new Error(`Refused at ${now}`)
}

function plainRules(n: number): readonly Rule[] {
  const numbers = { algorithm: 'gcra', limit: 10, period: '1h' } as const
  return rulesOf(...Array.from({ length: n }, () => numbers))
}

function rulesOf(...inputs: NumbersInput[]): readonly Rule[] {
  const rules = inputs.map((input, i) => ({ name: `rule-${i}`, by: 'consumer', ...input }))
  return checkedConfig({ origin: 'https://api.example.com', rules }).rules
}

const lengthOf = async (key: string) => Number(await engine.send(['STRLEN', key]))
const usageOf = async (key: string) => Number(await engine.send(['MEMORY', 'USAGE', key, 'SAMPLES', '0']))

async function usedMemory(): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(String(await engine.send(['INFO', 'memory'])))![1])
}

function title(text: string): void {
  console.log(`\n${text}`)
}

try {
  console.log(`On ${engine.redis}`)
  console.log(/^mem_allocator:.*$/m.exec(String(await engine.send(['INFO', 'memory'])))![0])
  await stateBytes()
  await bytesPerCaller()
  await commands()
  await logs()
} finally {
  await engine.close()
}
