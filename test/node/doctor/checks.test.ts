/** The parts of `npx sluicegate doctor` that need no store: the verdict, the document, the vectors, and the cost of a load. */
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../../src/config/check/check.ts'
import { doctorDocument, lineOf, verdictText } from '../../../src/node/cli/doctor.ts'
import { type Checked, type Checks, overallOf, runChecks } from '../../../src/node/doctor/checks.ts'
import { algorithmVectors } from '../../../src/node/doctor/decisions.ts'
import { fault, limit, ok, unknown } from '../../../src/node/doctor/findings.ts'
import { costOfLoad } from '../../../src/node/doctor/load.ts'
import { KeySpace } from '../../../src/node/doctor/store.ts'
import { ScriptModel } from '../../../src/script/model.ts'
import { examined, found } from '../../support/examinations.ts'

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
    const hostile = { ...BAD, finding: 'It replies \x1b[2J.' }
    expect([lineOf(hostile), verdictText([hostile])]).toEqual([
      expect.stringContaining('It replies ?[2J.'),
      expect.stringContaining('It replies ?[2J.'),
    ])
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

  it('end when one gets no answer in time, because each further request would wait as long', async () => {
    const late = () => Promise.reject(Object.assign(new Error(), { name: 'TimeoutError' }))
    expect(await run({ first: () => GOOD, second: late, third: () => GOOD, fourth: () => GOOD })).toEqual([
      expect.objectContaining({ verdict: 'ok' }),
      expect.objectContaining(
        found('fault', 'stopped answering: a request got no answer in time. Not checked: third, fourth.'),
      ),
    ])
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
  // 4 commands for each decision (EVALSHA, TIME, MGET, SETEX), and for each of the 50 callers those that remove its keys.
  const small = { perSecond: 20, seconds: 60, isBilled: true }
  expect(costOfLoad(config, small)).toBe(
    '1200 decisions in 60 s take at most 5100 commands: $0.01 at Upstash, pay as you go (prices of autumn 2026).',
  )
  expect(costOfLoad(config, { ...small, perSecond: 500, seconds: 600 })).toMatch(
    / 1200300 commands: \$2\.40 /,
  )
  expect(costOfLoad(config, { ...small, isBilled: false })).toBe(
    '1200 decisions in 60 s take at most 5100 commands.',
  )
})
