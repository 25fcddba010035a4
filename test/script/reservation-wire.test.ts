/** What reservations add to the arguments and replies of a decision, without a store. */
import { expect, it } from 'vitest'
import { prepareDecide } from '../../src/limiter/prepared-call.ts'
import type { Evaluation } from '../../src/script/evaluation.ts'
import { settledIn, withReservations } from '../../src/script/reservation-wire.ts'
import { createRuleSet } from '../../src/script/rule-set.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { bound } from '../support/bound.ts'
import { rulesOf } from '../support/engines.ts'
import { ruleSetOf } from '../support/rule-set.ts'
import { settled } from '../support/settled-rules.ts'

const [plain, tokens, month] = rulesOf(
  { name: 'plain', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
  { name: 'tokens', by: 'consumer', algorithm: 'fixed-window', limit: 1000, period: '1h' },
  { name: 'month', by: 'address', algorithm: 'fixed-window', limit: 5000, period: 'month' },
)
const rules = [bound(plain!, 'C'), bound(settled(tokens!), 'C', 40), bound(settled(month!), 'A', 40)]
const ruleSet = ruleSetOf(rules)
const ends = rules[2]!.ends!.join(' ')

const callOf = (evaluation: Evaluation) => prepareDecide(evaluation).call as ScriptCall
const decode = (reply: unknown, evaluation: Evaluation = { ruleSet, rules }) =>
  prepareDecide(evaluation).decode(reply)

it('the keys of the reservations come last, in the order of the identities', () => {
  expect(callOf({ ruleSet, rules }).keys).toEqual(['C', 'A', 'C:reserved', 'A:reserved'])
  expect(callOf({ ruleSet, rules: rules.toReversed() }).keys).toEqual(['C', 'A', 'C:reserved', 'A:reserved'])
  expect(callOf({ ruleSet, rules: rules.slice(2) }).keys).toEqual(['A', 'A:reserved'])
  expect(callOf({ ruleSet, rules: rules.slice(0, 1) }).keys).toEqual(['C', 'C:reserved'])
})

it('the reservationId stands between the arguments of rules and the costs, and is empty if nothing is reserved', () => {
  const start = ['decide', '1ee1e', '', '', '']
  const costs = ['1', '40', '40']
  expect(callOf({ ruleSet, rules, reservationId: 'abc' }).args).toEqual([...start, ends, 'abc', ...costs])
  expect(callOf({ ruleSet, rules }).args).toEqual([...start, ends, '', ...costs])
  const ofOne = { ruleSet, rules: rules.slice(0, 1) }
  expect(callOf(ofOne).args).toEqual(['decide', '1e000'])
  expect(callOf({ ...ofOne, reservationId: 'abc' }).args).toEqual(['decide', '1e000', '', '', '', '', 'abc'])
})

it('a verdict of a rule that is settled later has what was reserved, and the debt', () => {
  const { verdicts } = decode([1, '', 17, 0, 9, 5, 0, 960, 7, 40, 0, 0, 0, 8, 40, 3])
  expect(verdicts.map(({ reserved, debt }) => [reserved, debt])).toEqual([
    [undefined, undefined],
    [40, 0],
    [40, 3],
  ])
  expect(verdicts.map(({ remaining, resetAfter }) => [remaining, resetAfter])).toEqual([
    [9, 5],
    [960, 7],
    [0, 8],
  ])
})

it('a status above 2 counts the reservations that the decision has settled', () => {
  const reply = [2 + 3 * 4, '', 17, 9, 5, 960, 7, 40, 0, 0, 8, 40, 3]
  expect(settledIn(reply)).toBe(3)
  expect(decode(reply)).toEqual(decode([2, ...reply.slice(1)]))
  expect(decode([4, '', 17, 0, 9, 5, -1, 0, 7, 0, 0, 0, 0, 8, 0, 3]).status).toBe('refused')
})

it.each([
  ['no list', 'OK'],
  ['no status', []],
  ['an unknown status', [3, '', 17, 9, 5, 960, 7, 40, 0, 0, 8, 40, 3]],
  ['a row that is too short', [2, '', 17, 9, 5, 960, 7, 40, 0, 0, 8, 40]],
  ['a row that is too long', [2, '', 17, 9, 5, 960, 7, 40, 0, 0, 8, 40, 3, 1, 1]],
  ['a debt that is not a number', [2, '', 17, 9, 5, 960, 7, 40, 0, 0, 8, 40, '3']],
])('a reply with %s is not valid', (_, reply) => {
  expect(() => decode(reply)).toThrow(expect.objectContaining({ code: 'ERR_STORE_REPLY_INVALID' }))
})

it('built scripts get the wire format only if a rule of the rule set is settled later', () => {
  const setOf = (rule: (typeof rules)[number]) =>
    createRuleSet(
      [{ rule: rule.rule, identity: 'C' }],
      { plans: [], hasSubject: false },
      withReservations(compileScripts),
    )
  expect(setOf(rules[0]!).reservations).toBeUndefined()
  expect(setOf(rules[1]!).reservations).toBeDefined()
  expect(setOf(rules[1]!).decide).toEqual(compileScripts(setOf(rules[1]!)).decide)
})
