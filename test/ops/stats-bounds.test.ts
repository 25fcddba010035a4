/** Bounds of shares, for `npx sluicegate stats --fail-above`. */
import { describe, expect, it } from 'vitest'
import type { Stats } from '../../src/ops/stats.ts'
import { checkBounds, checkWord, formatCheck, parseBound } from '../../src/ops/stats-bounds.ts'

const NOTHING: Stats = {
  ...{ since: new Date(0), unit: 'minute', rules: [], requests: [], withoutTrip: {}, test: {}, lost: 0 },
  ...{ calls: [], callsWithoutTrip: {}, lostCalls: 0 },
}

const STATS: Stats = {
  ...NOTHING,
  requests: [
    { outcome: 'allowed', cause: '-', route: '-', count: 900 },
    { outcome: 'allowed', cause: '-', route: 'reports', count: 90 },
    { outcome: 'limited', cause: 'breaker-open', route: '-', count: 1 },
    { outcome: 'failed_open', cause: 'store-timeout', route: '-', count: 9 },
  ],
  calls: [
    { limit: 'mail', outcome: 'allowed', cause: '-', count: 1 },
    { limit: 'mail', outcome: 'failed_closed', cause: 'store-timeout', count: 1 },
    { limit: 'zendesk', outcome: 'limited', cause: '-', count: 7 },
  ],
  rules: [
    {
      ...{ rule: 'minute', route: '-', plan: 'free', mode: 'live', allowed: 3, limited: 1 },
      ...{ shadowAllowed: 0, shadowLimited: 0, agreed: 97, disagreed: 2 },
    },
    {
      ...{ rule: 'minute', route: '-', plan: 'pro', mode: 'live', allowed: 4, limited: 0 },
      ...{ shadowAllowed: 9, shadowLimited: 1, agreed: 1, disagreed: 0 },
    },
  ],
}

const check = (text: string, stats = STATS, rule?: string) =>
  checkBounds(stats, [parseBound(text)], rule).map(({ of, count, sum, isAbove }) => [of, count, sum, isAbove])

describe('a bound', () => {
  it('is compared with the share of requests, and of the calls of each limit', () => {
    expect(check('degraded>0.9%')).toEqual([
      ['requests', 10, 1000, true],
      ['calls of mail', 1, 2, true],
      ['calls of zendesk', 0, 7, false],
    ])
    expect(check('limited > 0.1 %')).toEqual([
      ['requests', 1, 1000, false],
      ['calls of mail', 0, 2, false],
      ['calls of zendesk', 7, 7, true],
    ])
    expect(check('store-timeout>0%').map(([of, count]) => [of, count])).toEqual([
      ['requests', 9],
      ['calls of mail', 1],
      ['calls of zendesk', 0],
    ])
    expect(check('failed_closed>49.9%', { ...STATS, requests: [] })).toEqual([
      ['calls of mail', 1, 2, true],
      ['calls of zendesk', 0, 7, false],
    ])
  })

  it('is compared with the verdicts of a rule', () => {
    expect(check('limited>12.5%', STATS, 'minute')).toEqual([['rule minute', 1, 8, false]])
    expect(check('limited>12.4%', STATS, 'minute')).toEqual([['rule minute', 1, 8, true]])
    expect(check('shadow_limited>9%', STATS, 'minute')).toEqual([['rule minute', 1, 10, true]])
    expect(check('disagreed>2%', STATS, 'minute')).toEqual([['rule minute', 2, 100, false]])
  })

  it('does not count calls of a paused limit as degraded, but by their cause', () => {
    const row = { limit: 'zendesk', outcome: 'limited', cause: 'paused', count: 4 }
    const paused = { ...NOTHING, calls: [row] }
    const failedOf = (text: string) => check(text, paused).map(([, count]) => count)
    expect(failedOf('degraded>0%')).not.toContain(4)
    expect(failedOf('paused>0%')).toContain(4)
  })

  it('is not exceeded if nothing was counted', () => {
    expect(check('degraded>0%', NOTHING)).toEqual([['requests', 0, 0, false]])
    expect(check('limited>0%', NOTHING, 'minute')).toEqual([['rule minute', 0, 0, false]])
    const [all] = checkBounds(NOTHING, [parseBound('degraded>0%')])
    const [own] = checkBounds(NOTHING, [parseBound('limited>0%')], 'minute')
    expect([formatCheck(all!), formatCheck(own!)]).toEqual([
      'degraded>0%: there were no requests',
      'limited>0%: there were no verdicts of rule minute',
    ])
  })

  it.each([
    [
      'degraded',
      "--fail-above 'degraded' is not a bound. Write a word, > and a percentage, as in 'degraded>0.1%'.",
    ],
    ['degraded>0.1', "--fail-above 'degraded>0.1' is not a bound. Write a word, > and a percentage, as in"],
    ['degraded<1%', "--fail-above 'degraded<1%' is not a bound. "],
    ['degraded>-1%', "--fail-above 'degraded>-1%' is not a bound. "],
    [
      'shed>100%',
      "--fail-above 'shed>100%': no share is above 100%. Use a percentage from 0% to less than 100%.",
    ],
    [
      'degrade>1%',
      "--fail-above 'degrade>1%': 'degrade' is not an outcome or a cause. Did you mean 'degraded'? Use allowed, ",
    ],
  ])('is refused with its value and a fix: %s', (text, message) => {
    expect(() => checkWord(parseBound(text), undefined)).toThrow(message)
  })

  it('for a rule is refused if rules do not count this', () => {
    expect(() => checkWord(parseBound('shed>1%'), 'minute')).toThrow(
      "--fail-above 'shed>1%': 'shed' is not counted for a rule. Use limited, shadow_limited, disagreed.",
    )
  })
})
