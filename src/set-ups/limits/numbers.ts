/**
 * Numbers at the call: a limit whose `limit` and `period` your own database has, for each tenant. A call gives them, and they act as an
 * override does in the gateway: the script gets them in the same form, and counts in the same records. A Worker whose limits have their numbers
 * from the config does not carry this file.
 */
import type { AlgorithmName } from '../../algorithms/all.ts'
import type { Flaw, Numbers } from '../../algorithms/descriptor.ts'
import { BASE62 } from '../../base62.ts'
import { show } from '../../config/check/mistake.ts'
import { mistakesOfNumbers } from '../../config/check/mistakes-of-numbers.ts'
import type { LimitRuleInput } from '../../config/check/rule-schema.ts'
import type { GatewayRule, LimitRule } from '../../config/compile.ts'
import { compileNumbers } from '../../config/compile-rule.ts'
import { type Duration, formatDuration, parseDuration } from '../../config/duration.ts'
import { findFreeTag } from '../../config/tags.ts'
import { type CallNumbers, checkRule, isRecord, refuseNumbers } from './arguments.ts'

/** What a Worker knows of the algorithms of its own rules. */
export interface NumbersParts {
  ruleNumbers: Readonly<Partial<Record<AlgorithmName, RuleNumbers>>>
  /** With rules that are estimated. */
  mistakesOfSettlement(rule: GatewayRule | LimitRule): Flaw[]
}

interface RuleNumbers {
  numbers: Numbers
  /** The third number of the script, if it depends on the numbers of a rule. */
  third?: 'burst' | 'step'
}

/**
 * Gives rules the numbers of a call.
 * @param numbers of an earlier call, if `isEarlier`: those of rules that a deployment has changed since are left out, and `max` may be lower now
 * @throws TypeError for a rule without numbers, for numbers of another rule, and for numbers that the rule cannot have
 */
export type GiveNumbers = (
  name: string,
  rules: readonly LimitRule[],
  numbers: CallNumbers | undefined,
  isEarlier?: boolean,
) => readonly LimitRule[]

const MAX_UNITS = 1e9
const MAX_PERIOD = 366 * 86400e6

export function createGiveNumbers({ ruleNumbers, mistakesOfSettlement }: NumbersParts): GiveNumbers {
  /** The numbers as the config would have them. */
  function read(name: string, rule: LimitRule, written: unknown): LimitRuleInput {
    const place = `numbers.${rule.name}`
    const { atOnce } = ruleNumbers[rule.algorithm]!.numbers
    const max = rule.atCall!
    const period = 'period' in max ? max.period : undefined
    if (written === undefined)
      throw new TypeError(
        `The limit '${name}' has the numbers of '${rule.name}' from each call, and this call gives none. ${fixFor(rule)}`,
      )
    if (!isRecord(written)) throw new TypeError(`${place} is ${show(written)}. ${fixFor(rule)}`)
    // Read once, without what it inherits, such as the getters of a row. Otherwise the numbers of `max` would count.
    const given = { ...written }
    const known = [
      'limit',
      ...(period === undefined ? [] : ['period']),
      ...(atOnce ? [atOnce.parameter] : []),
    ]
    const unknown = Object.keys(given).find(key => !known.includes(key))
    if (unknown !== undefined)
      throw new TypeError(
        `${place}.${unknown} has no effect with ${rule.algorithm}. Use ${known.join(', ')}, and nothing else.`,
      )
    const units = (key: string, low: number) => {
      const value = given[key]
      if (Number.isInteger(value) && (value as number) >= low && (value as number) <= MAX_UNITS) return
      throw new TypeError(
        `${place}.${key} is ${show(value)}. Use a whole number from ${low} to ${MAX_UNITS}.`,
      )
    }
    units('limit', 1)
    if (atOnce && given[atOnce.parameter] !== undefined) units(atOnce.parameter, 1 - atOnce.notIncluded)
    if (given.period !== undefined && given.period !== period) {
      const length = typeof given.period === 'string' ? parseDuration(given.period) : undefined
      if (rule.calendar)
        throw new TypeError(
          `${place}.period is ${show(given.period)}, and a calendar period is that of the config. Leave it out, or use '${period}'.`,
        )
      if (length === undefined || length < 1e3 || length > MAX_PERIOD)
        throw new TypeError(
          `${place}.period is ${show(given.period)}. Use a duration from '1ms' to '366d', such as '1m'.`,
        )
    }
    const { burst: _, queue: __, ...others } = { burst: 0, queue: 0, ...max }
    const defined = Object.entries(given).filter(([, value]) => value !== undefined)
    return { ...others, ...Object.fromEntries(defined) } as LimitRuleInput
  }

  /** @throws TypeError for numbers that the algorithm cannot have, or above `max` */
  function check(name: string, rule: LimitRule, input: LimitRuleInput, own: LimitRule, isEarlier: boolean) {
    const { numbers } = ruleNumbers[rule.algorithm]!
    const flaws = [
      ...mistakesOfNumbers(input, numbers),
      ...(rule.settlement ? mistakesOfSettlement(own) : []),
      ...(isEarlier ? [] : flawsOfMax(rule, own, numbers)),
    ]
    const [flaw] = flaws
    if (flaw) throw new TypeError(`numbers.${rule.name}.${flaw[0]}: ${flaw[1]} (limit '${name}')`)
  }

  return (name, rules, numbers, isEarlier = false) => {
    if (!rules.some(({ atCall }) => atCall))
      return numbers === undefined || isEarlier ? rules : refuseNumbers(name)
    if (numbers !== undefined && !isRecord(numbers))
      throw new TypeError(
        `numbers is ${show(numbers)}. Use an object with the numbers of each rule, such as { quota: { limit: 300, period: '1m' } }.`,
      )
    for (const other of isEarlier ? [] : Object.keys(numbers ?? {})) {
      checkRule(name, other, rules)
      if (!rules.some(rule => rule.name === other && rule.atCall))
        throw new TypeError(
          `numbers.${other}: this rule of the limit '${name}' has its numbers from the config. Leave them out, or write numbers: 'call' there.`,
        )
    }
    const owners = new Map(rules.filter(({ atCall }) => !atCall).map(({ tag, name }) => [tag, name]))
    return rules.map(rule => {
      const given: unknown = Object.hasOwn(numbers ?? {}, rule.name) ? numbers![rule.name] : undefined
      if (!rule.atCall || (isEarlier && given === undefined)) return rule
      const input = read(name, rule, given)
      const own = { ...rule, ...compileNumbers(rule, input) }
      check(name, rule, input, own, isEarlier)
      const tag = findFreeTag(rule.name, own.tag, owners)
      owners.set(tag, rule.name)
      return { ...own, tag, ofCall: ofCall(rule, { ...own, tag }) }
    })
  }

  function ofCall(base: LimitRule, { limit, quota, tag }: LimitRule): NonNullable<LimitRule['ofCall']> {
    const { third } = ruleNumbers[base.algorithm]!
    const written = `${limit},${numberOf(tag)}`
    const thirdNumber = third && quota[third]
    const fields = [base.family, '', '', tag, quota.rate, quota.period, thirdNumber, written]
    return { base, override: fields.join(','), written }
  }
}

/** A tag as a number: the limit and burst alone do not tell two periods apart. */
const numberOf = (tag: string) => [...tag].reduce((sum, letter) => sum * 62 + BASE62.indexOf(letter), 0)

/** What is above `max`: the limit, its rate, and what can be spent at once. */
function flawsOfMax(rule: LimitRule, own: LimitRule, { atOnce }: Numbers): Flaw[] {
  const fix = "Lower it, or raise the rule's max in the config."
  if (own.limit > rule.limit) return [['limit', `${own.limit} is above max.limit, ${rule.limit}. ${fix}`]]
  if (own.limit * rule.period > rule.limit * own.period)
    return [
      [
        'limit',
        `${own.limit} per ${formatDuration(own.period)} is a higher rate than max allows, ${rule.limit} per ${formatDuration(rule.period)}. ${fix}`,
      ],
    ]
  if (!atOnce || own.quota.burst <= rule.quota.burst) return []
  const [units, most] = [own, rule].map(({ quota }) => quota.burst - atOnce.notIncluded)
  return [[atOnce.parameter, `${units} is above max.${atOnce.parameter}, ${most}. ${fix}`]]
}

const fixFor = ({ name, atCall }: LimitRule): string => {
  const period = 'period' in atCall! ? `, period: '${atCall.period satisfies Duration | string}'` : ''
  return `Use numbers: { ${/^\w+$/.test(name) ? name : `'${name}'`}: { limit: ${Math.min(300, atCall!.limit)}${period} } }.`
}
