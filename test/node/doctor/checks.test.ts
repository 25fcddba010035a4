/** The parts of `npx sluicegate doctor` that need no store: the verdict, the document, what is hidden, the vectors, and the cost of a load. */
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../../src/config/check/check.ts'
import { doctorDocument, lineOf, verdictText } from '../../../src/node/cli/doctor-output.ts'
import {
  type Checked,
  type Checks,
  fault,
  limit,
  ok,
  overallOf,
  runChecks,
  unknown,
} from '../../../src/node/doctor/checks.ts'
import { algorithmVectors } from '../../../src/node/doctor/decisions.ts'
import { KeySpace } from '../../../src/node/doctor/key-space.ts'
import { costOfLoad } from '../../../src/node/doctor/load.ts'
import { hiderOf } from '../../../src/node/doctor/secrets.ts'
import { ScriptModel } from '../../../src/script/model.ts'
import { examined } from '../../support/examinations.ts'

const GOOD: Checked = { name: 'a', ...ok`It works.` }
const LIMITED: Checked = { name: 'b', ...limit`It is slow. → Move it.`, measured: { p99_ms: 7 } }
const BAD: Checked = { name: 'c', ...fault`It is broken. → Mend it.` }
const HIDDEN: Checked = { name: 'd', ...unknown`It is hidden. → Look at it.` }

describe('the verdict', () => {
  it.each([
    [[GOOD], 'works'],
    [[GOOD, HIDDEN], 'works'],
    [[GOOD, LIMITED], 'works-with-limits'],
    [[LIMITED, BAD, GOOD], 'do-not-deploy'],
  ])('is that of the worst finding', (all, overall) => {
    expect(overallOf(all)).toBe(overall)
  })

  it('is printed with the faults first, each with its fix, and with what was not found out', () => {
    expect(verdictText([GOOD, LIMITED, BAD, HIDDEN])).toBe(
      [
        'Verdict: do not deploy:',
        ...['  c: It is broken.', '    Fix: Mend it.', '  b: It is slow.', '    Fix: Move it.'],
        'Not found out: d.',
      ].join('\n'),
    )
    expect(verdictText([GOOD])).toBe('Verdict: works.')
    expect(lineOf(BAD)).toBe('FAULT  c                It is broken.\n                        Mend it.')
  })

  it('has a document whose fields programs can rely on', () => {
    expect(doctorDocument([GOOD, LIMITED], false)).toEqual({
      ...{ verdict: 'works-with-limits', stopped: false, prices_of: 'autumn 2026' },
      checks: [
        { name: 'a', verdict: 'ok', finding: 'It works.', fix: null, measured: {} },
        { name: 'b', verdict: 'limit', finding: 'It is slow.', fix: 'Move it.', measured: { p99_ms: 7 } },
      ],
    })
  })
})

describe('checks', () => {
  const run = async (checks: Checks) =>
    (await examined(examination => runChecks(checks, examination))).all.map(({ name, ...finding }) => finding)

  it('end after a fault of one without which the others can say nothing, and go on after others', async () => {
    const countAfter = async (first: string) => (await run({ [first]: () => BAD, second: () => GOOD })).length
    expect([await countAfter('protocol'), await countAfter('memory')]).toEqual([1, 2])
  })

  it('that throw are faults, and quote no message of others', async () => {
    const error = Object.assign(new Error('no key sluice:{c:acme} at db.example'), { code: 'ECONNRESET' })
    const [checked] = await run({
      async first() {
        throw error
      },
    })
    expect(checked).toMatchObject({ verdict: 'fault', finding: 'The check failed: ECONNRESET.' })
  })
})

it('hosts, tokens, keys and passwords are hidden in every text, however they are written', () => {
  const inputs = [
    'https://brave-cat-1.upstash.io/path-of-it',
    'rediss://admin:p%40ssword@10.1.2.3:6380',
    'redis+cluster://user-of-it:pass-word@one.example:7001,two.example:7002',
    'unix:///run/of-redis.sock?password=of-socket',
    'tok+en/"quoted"=',
    'slk_live_4711',
    undefined,
    'abc',
  ]
  const hide = hiderOf(inputs)
  const texts = [
    ...inputs.filter(text => text !== undefined && text !== 'abc'),
    ...['BRAVE-CAT-1', 'brave-cat-1.upstash.io:443', 'p%40ssword', '10.1.2.3', '10.1.2.3:6380', 'path-of-it'],
    ...['two.example', 'one.example:7001', 'pass-word', 'of-redis.sock', 'of-socket'],
    ...['tok+en/"quoted"=', 'slk_live_4711'].flatMap(text => [
      encodeURIComponent(text),
      JSON.stringify(text),
      Buffer.from(text).toString('base64'),
    ]),
  ]
  for (const text of texts) {
    const hidden = JSON.stringify(hide({ a: [`before ${text} after`], n: 1 }))
    for (const part of [
      'rave-cat',
      'upstash',
      'ssword',
      '10.1.2',
      'path-of',
      'example',
      'pass-word',
      'of-redis',
      'of-socket',
      'tok+en',
      'tok%2Ben',
      'slk_live',
      '4711',
    ])
      expect(hidden.toLowerCase(), text).not.toContain(part)
    expect(hidden).toMatch(/"before .*<hidden>.* after"/)
  }
  expect(hide('http://127.0.0.1 has no secret, and abc is a word')).toContain(
    '127.0.0.1 has no secret, and abc',
  )
})

it.each(algorithmVectors())('%s: the decisions that are compared admit, refuse and count down', (_, all) => {
  const model = new ScriptModel()
  const verdicts = all.map(evaluation => model.decide(evaluation).verdicts[0]!)
  expect(new Set(verdicts.map(({ allowed }) => allowed)).size).toBe(2)
  expect(new Set(verdicts.map(({ remaining }) => remaining)).size).toBeGreaterThan(1)
})

it('a key outside of the key space of the examination is refused', () => {
  const space = new KeySpace()
  expect(space.environment).toMatch(/^doctor[a-z0-9]{10}$/)
  expect(space.at('sluice:{switches}')).toBe(`${space.prefix}{switches}`)
  expect(() => space.at('session:1')).toThrow('outside of its key space')
})

it('a load says what it costs before it starts', () => {
  const rule = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 5, period: '1s' } as const
  const config = checkedConfig({ origin: 'route', rules: [rule] })
  // 4 commands for each decision (EVALSHA, TIME, MGET, SETEX), and for each of the 50 callers those of its keys.
  const small = { perSecond: 20, seconds: 60, isBilled: true }
  expect(costOfLoad(config, small)).toBe(
    '1200 decisions in 60 s take at most 5400 commands: $0.01 at Upstash, pay as you go (prices of autumn 2026).',
  )
  expect(costOfLoad(config, { ...small, perSecond: 500, seconds: 600 })).toMatch(
    / 1200600 commands: \$2\.40 /,
  )
  expect(costOfLoad(config, { ...small, isBilled: false })).toBe(
    '1200 decisions in 60 s take at most 5400 commands, which have no price at a Redis of your own.',
  )
})
