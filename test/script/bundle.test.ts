import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { RuleInput } from '../../src/config/check/rule-schema.ts'
import { bundleAlgorithms, bundleOps, bundleScripts } from '../../src/node/bundle-lua.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import { RESET, resetText } from '../../src/script/reset.ts'
import { decideText, refundText } from '../../src/script/rule-set-text.ts'
import { signalScript, signalText } from '../../src/script/signal-text.ts'
import { syncText } from '../../src/script/sync-text.ts'
import type { Script } from '../../src/store/store.ts'
import { sized } from '../selection.ts'
import { ModelEngine, RedisEngine, type TimedEvaluation } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'
import { newCaller, played, traffic } from '../support/traffic.ts'

const config = checkedConfig({
  origin: 'https://api.example.com',
  plans: ['free', 'pro'],
  rules: [
    ...(['gcra', 'token-bucket', 'leaky-bucket'] as const).map(
      (algorithm): RuleInput => ({ name: algorithm, by: 'consumer', algorithm, limit: 10, period: '1s' }),
    ),
    { name: 'window', by: 'address', algorithm: 'sliding-window', limit: 10, period: '1s' },
    {
      name: 'day',
      by: 'address',
      algorithm: 'fixed-window',
      limit: 10,
      period: 'day',
      plans: { pro: { limit: 20 } },
    },
    { name: 'log', by: 'global', algorithm: 'sliding-log', limit: 10, period: '1s' },
  ],
})
const { decide, refund } = gatewayRuleSet(config)
const SCRIPTS = [decide, refund, RESET, signalScript()]
/** Compiles small rule sets to loops, too. */
const WITH_LOOPS = 1
/** The texts of the scripts before they are shortened. */
const TEXTS = [
  ...[decideText(gatewayRuleSet(config)), decideText(gatewayRuleSet(config), WITH_LOOPS)],
  ...[refundText(gatewayRuleSet(config)), refundText(gatewayRuleSet(config), WITH_LOOPS)],
  resetText(),
  syncText(),
  signalText(),
]

const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')

describe('the bundle', () => {
  it.each([
    ['algorithms', bundleAlgorithms],
    ['script', bundleScripts],
    ['ops', bundleOps],
  ])('of src/%s is up to date with its .lua files (npm run bundle-lua)', (folder, bundle) => {
    const written = readFileSync(new URL(`../../src/${folder}/lua.generated.ts`, import.meta.url), 'utf8')
    expect(written).toBe(bundle())
  })
})

describe('a script', () => {
  it('has the SHA-1 of both builds, which have the same line numbers', () => {
    for (const { keyLocking, plain } of SCRIPTS) {
      for (const { source, sha1: sha } of [keyLocking, plain]) expect(sha).toBe(sha1(source))
      expect(keyLocking.source.split('\n').slice(1)).toEqual(plain.source.split('\n').slice(1))
      expect(keyLocking.source.startsWith('#!lua flags=allow-key-locking\n')).toBe(true)
    }
  })

  it('formats every number that it sends to Redis', () => {
    // tostring and .. keep 14 digits, and the current time in microseconds has 16.
    for (const text of TEXTS) expect(text).not.toMatch(/tostring\(|\.\. *(now|idle_at|keep_ms)\b/)
  })

  it('has no macros and directives left', () => {
    for (const text of TEXTS) expect(text).not.toMatch(/floor_div|ceil_div|ceil_to_ms|life_until|spread|--@/)
  })
})

describeOnRedis('the script', start => {
  let redis: TestRedis
  beforeAll(async () => {
    redis = await start()
  })
  afterAll(() => redis?.close())

  it(`returns the same on a server without the struct library (SEED=${SEED})`, async () => {
    const withoutStruct = ({ plain }: Script) => {
      const source = plain.source.replace("rawget(_G,'struct')", 'nil')
      expect(source).not.toBe(plain.source)
      return { source, sha1: sha1(source) }
    }
    await redis.connection.send(['FLUSHALL'])
    const bare = new RedisEngine(redis.connection, withoutStruct)
    const whole = new RedisEngine(redis.connection)
    const engines = [bare, whole, bare.withLoops(), whole.withLoops()]
    await forEvery(traffic(30), sized(20, 5), async scenario => {
      const model = new ModelEngine()
      let requests = 0
      const onAll = async (evaluation: TimedEvaluation) => {
        // In turn, so that each reads the data that the other has written.
        const actual = await engines[requests++ % engines.length]!.evaluate(evaluation)
        expect(actual).toEqual(await model.evaluate(evaluation))
        return actual
      }
      for await (const _ of played(scenario, newCaller(), onAll));
    })
  })

  it('is known to Redis by its SHA-1', async () => {
    for (const { plain } of SCRIPTS)
      expect(String(await redis.connection.send(['SCRIPT', 'LOAD', plain.source]))).toBe(plain.sha1)
  })
})
