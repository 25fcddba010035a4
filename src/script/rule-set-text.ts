/**
 * Compiles a rule set to Lua: straight-line code for all its rules, with their numbers as constants, or loops if there are many
 * (loop-text.ts). `decideText` is the script that decides and peeks, `refundText` the one that gives units back. docs/internals/script.md shows
 * an example.
 *
 * Each rule has its own copy of the sections of its algorithm. Their locals end in the number of the rule: `backlog_2`. A decision
 * has three ends:
 *
 *     nothing is spent    the request is refused, or it is a peek
 *     the usual end       all rules spend, and the states have the expected layout: one call reads each state, one call writes it
 *     any other           some rules do not spend, or a state has other records
 */
import { chunked } from '../chunked.ts'
import { ABSENT, ENFORCE } from './constants.ts'
import { LEASE_DIVISOR } from './lease.ts'
import { LoopText } from './loop-text.ts'
import { OVERRIDES, SUBJECT } from './lua.generated.ts'
import { Locals, literal, nameInLiteral } from './lua-text.ts'

import {
  type Amounts,
  clampCost,
  hasRecordOfLimit,
  isOverridable,
  ReservationText,
  tagOfPlan,
  tryTo,
  undoStates,
} from './reservation-text.ts'

import type { RuleSetShape, Variant } from './rule-set-shape.ts'
import {
  assignment,
  createRuleText,
  hasVariableNumbers,
  isNumber,
  numberOf,
  type RuleText,
  spendsEarly,
} from './rule-text.ts'
import {
  assembleScript,
  countRecords,
  countRefundOnce,
  forPlan,
  numbersOfLimit,
  RECORDS_OF_LIMIT,
  RECORDS_OF_REFUND,
  RECORDS_OF_SUBJECT,
  RESOLVE_POINTER,
  replaceUnknownPlan,
  settingsOfRefund,
  storeRefundOnce,
} from './script-text.ts'
import { UNKNOWN_NUMBERS } from './settle.ts'
import { ID_LETTERS } from './settle-along.ts'
import {
  commitAny,
  commitSettled,
  commitUsual,
  type Identity,
  notePause,
  readStanding,
  readState,
} from './state-text.ts'

/**
 * From this size on, a rule set is compiled to loops: 25 rules by consumer, or 50 rules by address. With fewer rules, straight-line code
 * can be faster. A rule whose numbers depend on the caller counts twice, because its numbers are locals.
 */
export const LOOPS_FROM = 50

const sizeOf = ({ entries }: RuleSetShape) =>
  entries.reduce((size, entry) => size + (hasVariableNumbers(entry) ? 2 : 1), 0)

/** Loops have no reservations. */
const textOf = (ruleSet: RuleSetShape, loopsFrom: number) =>
  sizeOf(ruleSet) >= loopsFrom && !ruleSet.entries.some(({ settlement }) => settlement)
    ? new LoopText(ruleSet)
    : new RuleSetText(ruleSet)

/**
 * The script that decides and peeks. src/script/decide.ts encodes its arguments and decodes its reply.
 * @param loopsFrom for tests, which also compile small rule sets to loops
 */
export function decideText(ruleSet: RuleSetShape, loopsFrom = LOOPS_FROM): string {
  return textOf(ruleSet, loopsFrom).decide()
}

/** The script that gives units back. src/script/refund.ts encodes its arguments and decodes its reply. */
export function refundText(ruleSet: RuleSetShape, loopsFrom = LOOPS_FROM): string {
  return textOf(ruleSet, loopsFrom).refund()
}

/** The script that settles reservations. src/script/settle.ts encodes its arguments and decodes its reply. */
export function settleText(ruleSet: RuleSetShape): string {
  return new RuleSetText(ruleSet).settle()
}

class RuleSetText {
  readonly #ruleSet: RuleSetShape
  readonly #locals: Locals
  readonly #rules: readonly RuleText[]
  readonly #identities: readonly (Identity & { isPresent: string })[]
  readonly #reservations: readonly ReservationText[]

  constructor(ruleSet: RuleSetShape) {
    this.#ruleSet = ruleSet
    // Each rule that reserves needs registers in the call that writes the state; Lua has 250 for them and for the locals.
    this.#locals = new Locals(ruleSet.entries.filter(({ settlement }) => settlement).length > 4 ? 30 : 100)
    const sizes = Map.groupBy(ruleSet.entries, ({ identity }) => identity)
    this.#rules = ruleSet.entries.map((entry, i) =>
      createRuleText(entry, i + 1, sizes.get(entry.identity)!.length, this.#locals),
    )
    const rulesOf = (i: number) => this.#rules.filter(({ identity }) => identity === i)
    this.#reservations = Array.from(
      { length: ruleSet.identities },
      (_, i) => new ReservationText(rulesOf(i), i + 1, this.#locals),
    )
    this.#identities = this.#reservations.map(({ isUsed, tail, ttlMs }, i) => ({
      rules: rulesOf(i),
      isPresent: this.#locals.of(`present_${i + 1}`),
      key: this.#locals.of(`key_${i + 1}`),
      state: this.#locals.of(`state_${i + 1}`),
      fits: this.#locals.of(`fits_${i + 1}`),
      ...(isUsed && { reserved: { tail, ttlMs } }),
    }))
  }

  decide(): string {
    const { hasSubject, leases } = this.#ruleSet
    const reserves = this.#hasReservations()
    const body = [
      'verb = ARGV[1]\n',
      hasSubject ? "subject = ARGV[3] or ''\n" : '',
      reserves ? readReservation(6 + this.#withArgument().length) : '',
      this.#readArguments(5 + this.#withArgument().length + (reserves ? 1 : 0)),
      this.#locateKeys(hasSubject ? RECORDS_OF_SUBJECT : this.#recordsOr('0')),
      hasSubject ? RESOLVE_POINTER : '',
      this.#fetchValues(),
      hasSubject ? `plan = ''\n${SUBJECT}` : "plan = ARGV[4] or ''\n",
      numbersOfLimit(this.#ruleSet),
      this.#applyPlan(hasSubject ? "subject ~= '' and not is_unknown" : undefined),
      hasSubject ? this.#skipRulesOnRequests() : '',
      this.#applyOverrides(
        hasSubject ? 'overrides_at and not is_unknown' : 'overrides_at',
        true,
        this.#rules.filter(tagOfPlan),
      ),
      'admitted = true\n',
      ...this.#identities.map((identity, i) => this.#checkIdentity(identity, this.#reservations[i]!)),
      this.#endDecision(),
    ]
    const names = ['verb', 'plan', 'values', 'admitted', 'place', 'reply']
    const ofOverrides = ['changes', 'settings', 'overrides_at']
    const ofSubject = hasSubject ? ['subject', 'is_unknown', 'instead', 'consumer'] : []
    const ofLease = leases ? ['grant'] : []
    const ofReservations = reserves ? ['reservation', 'spent_at', 'settlements', 'applied', 'failure'] : []
    const ofPauses = hasSubject ? [] : ['paused']
    return this.#assembleScript(
      [...names, ...ofOverrides, ...ofSubject, ...ofLease, ...ofReservations, ...ofPauses],
      "local now = ARGV[5] or ''\n",
      body,
    )
  }

  refund(): string {
    const overridable = this.#rules.filter(({ takesOverrides }) => takesOverrides)
    const writtenAt = 6 + this.#withArgument().length
    const first = writtenAt - 1 + overridable.length
    const isRefunded = ({ of }: RuleText) => `${of('mark')} ~= ${ABSENT} and ${of('units')} > 0`
    const body = [
      'spent_at = ARGV[1] + 0\n',
      this.#ruleSet.hasSubject ? '' : countRefundOnce(first + 1, this.#rules),
      this.#readArguments(undefined),
      ...this.#rules.map(
        ({ of, ruleNumber }) =>
          `${of('units')}, ${of('spent')} = ARGV[${first + 2 * ruleNumber - 1}] + 0, ARGV[${first + 2 * ruleNumber}] + 0\n`,
      ),
      this.#locateKeys(this.#recordsOr(RECORDS_OF_REFUND)),
      this.#fetchValues(),
      settingsOfRefund(numbersOfLimit(this.#ruleSet)),
      this.#applyPlan(),
      this.#applyOverrides('overrides_at', false, overridable),
      ...overridable.map((rule, i) =>
        hasRecordOfLimit(rule)
          ? `if (${rule.of('written')} or '') ~= ARGV[${writtenAt + i}] then\n${rule.of('units')} = 0\nend\n`
          : '',
      ),
      ...this.#identities.map(identity => readState(identity, () => '')),
      this.#changeEarly('refund', isRefunded),
      ...this.#identities.map(identity =>
        commitAny(identity, {
          isSpent: isRefunded,
          spend: rule => (spendsEarly(rule) ? '' : rule.section('refund')),
        }),
      ),
      this.#ruleSet.hasSubject ? '' : storeRefundOnce(first + 1, this.#rules),
      `return { now${this.#rules.map(({ of }) => `, ${of('remaining')} or 0, ${of('reset_after')} or 0`).join('')} }\n`,
    ]
    const names = [
      'totals',
      'spent_at',
      'plan',
      'values',
      'place',
      'settings',
      'overrides_at',
      'changes',
      '_',
    ]
    return this.#assembleScript(names, 'local now = ARGV[5]\n', body)
  }

  settle(): string {
    const settled = this.#settled()
    const overridable = this.#rules.filter(isOverridable)
    const first = 6 + this.#withArgument().length
    const amounts: Amounts = {
      settled,
      writtenOf: rule => `ARGV[${first + overridable.indexOf(rule)}]`,
    }
    const firstRequest = first + overridable.length
    const latestOf = (i: number) =>
      this.#reservations[i]!.isUsed ? this.#locals.of(`latest_${i + 1}`) : undefined
    const body = [
      this.#readArguments(undefined),
      this.#locateKeys(this.#recordsOr(RECORDS_OF_REFUND)),
      this.#fetchValues(),
      settingsOfRefund(numbersOfLimit(this.#ruleSet)),
      this.#applyPlan(),
      ...overridable.map(rule => (tagOfPlan(rule) ? `${tagOfPlan(rule)} = ${rule.tag}\n` : '')),
      this.#applyOverrides('overrides_at', false, overridable),
      ...overridable.map(
        ({ of }, i) =>
          `${of('moved')} = ARGV[${first + i}] ~= '${UNKNOWN_NUMBERS}' and (${of('written')} or '') ~= ARGV[${first + i}]\n`,
      ),
      ...this.#identities.map((identity, i) => readState(identity, () => '', { latest: latestOf(i) })),
      'applied = 0\n',
      // A job that was settled before leaves nothing to do.
      `is_job = ARGV[${firstRequest + 2}] == 'job'\n`,
      `requests_at = is_job and redis.call('EXISTS', KEYS[#KEYS]) == 0 and #ARGV + 1 or ${firstRequest}\n`,
      ...this.#reservations.map(reservations => reservations.settle(amounts)),
      ...this.#identities.map((identity, i) =>
        commitSettled(identity, { changed: this.#reservations[i]!.changed, latest: latestOf(i)! }),
      ),
      ...this.#reservations.map(reservations => reservations.writeSettled()),
      `if is_job and not failure then\n${tryTo("'DEL', KEYS[#KEYS]")}end\n`,
      undoStates(this.#recordsOr(RECORDS_OF_REFUND), this.#locals.of('whole')),
      `return { now, applied${settled.map(({ of }) => `, ${of('remaining')} or 0, ${of('reset_after')} or 0, ${of('debt')} or 0`).join('')} }\n`,
    ]
    const names = ['spent_at', 'applied', 'is_job', 'requests_at', 'plan', 'values', 'place', 'settings']
    return this.#assembleScript(
      [...names, 'overrides_at', 'changes', 'failure', '_'],
      'local now = ARGV[5]\n',
      body,
    )
  }

  /** The Lua expression of how many records come first in KEYS. @param others in rule sets whose identities have no overrides */
  #recordsOr = (others: string) => (this.#ruleSet.overridable ? RECORDS_OF_LIMIT : others)

  #settled = () => this.#rules.filter(({ settlement }) => settlement)

  #hasReservations = () => this.#settled().length > 0

  /** Reads the state of an identity, gives back what has ended without being settled, and checks the rules. */
  #checkIdentity(identity: Identity, reservations: ReservationText): string {
    const { findEnded } = reservations
    return (
      findEnded() +
      readState(
        identity,
        rule => reservations.giveBackEnded(rule) + checkRule(rule, reservations.retryAtOnce(rule)),
        {
          pause: this.#ruleSet.hasSubject ? '' : notePause('other_idle_at'),
          settle: reservations.settleAlong(this.#settled()),
        },
      )
    )
  }

  #assembleScript(names: readonly string[], now: string, body: readonly string[]): string {
    return assembleScript({
      algorithms: this.#rules.map(({ lua }) => lua),
      ...{ now, names: [...names, ...(this.#ruleSet.overridable ? [RECORDS_OF_LIMIT] : [])], body },
      declaration: () => this.#locals.declaration(),
    })
  }

  /** The rules that have an argument in each request. */
  #withArgument(): readonly RuleText[] {
    return this.#rules.filter(({ argument }) => argument)
  }

  /** Reads the marks, the arguments of rules, and the costs. @param lastBefore index in ARGV before the costs; undefined: there are none */
  #readArguments(lastBefore: number | undefined): string {
    const names = this.#identities.flatMap(({ isPresent, rules }) => [
      isPresent,
      ...rules.map(({ of }) => of('mark')),
    ])
    const read = chunked(names, 50).map(
      (part, i) => `${part.join(', ')} = byte(ARGV[2], ${i * 50 + 1}, ${i * 50 + part.length})\n`,
    )
    const given = this.#withArgument().map(
      ({ of, argument }, i) => `${of(argument!)} = ARGV[${6 + i}]${argument === 'ends' ? '' : " or ''"}\n`,
    )
    if (lastBefore === undefined || this.#rules.length === 0) return [...read, ...given].join('')
    const costs = this.#rules.map(({ of }) => of('cost'))
    const amounts = costs.map((_, i) => `ARGV[${lastBefore + 1 + i}] + 0`)
    return [
      ...read,
      ...given,
      `if ARGV[${lastBefore + 1}] then\n`,
      ...chunked(costs, 50).map((part, i) => assignment(part, amounts.slice(i * 50, i * 50 + part.length))),
      'else\n',
      ...chunked(costs, 50).map(part =>
        assignment(
          part,
          part.map(() => '1'),
        ),
      ),
      'end\n',
    ].join('')
  }

  /** Computes the indexes in KEYS: first the records of the caller, then each state with the keys of its rules, then the chunks of logs. */
  #locateKeys(records: string): string {
    const next = (name: string) => `place = place + 1\n${this.#locals.of(name)} = place\n`
    const where = (mark: string, text: string) => `if ${mark} ~= ${ABSENT} then\n${text}end\n`
    const logs = this.#rules.filter(({ sideKey }) => sideKey === 'log')
    const { overridable = [] } = this.#ruleSet
    return [
      countRecords(overridable.map(i => this.#identities[i]!.isPresent)),
      `place = ${records}\n`,
      ...this.#identities.map(({ rules, isPresent }, i) =>
        where(
          isPresent,
          next(`key_${i + 1}`) +
            rules
              .filter(({ sideKey }) => sideKey)
              .map(({ of, ruleNumber }) => where(of('mark'), next(`side_key_${ruleNumber}`)))
              .join(''),
        ),
      ),
      logs.length > 0 || this.#hasReservations() ? `${this.#locals.of('whole')} = place\n` : '',
      ...logs.map(({ of, ruleNumber }) => where(of('mark'), next(`chunks_key_${ruleNumber}`))),
      ...this.#reservations.map(({ isUsed, keyName }, i) =>
        isUsed ? where(this.#identities[i]!.isPresent, next(keyName)) : '',
      ),
    ].join('')
  }

  #fetchValues(): string {
    const hasOthers = this.#hasReservations() || this.#rules.some(({ sideKey }) => sideKey === 'log')
    const keys = hasOthers ? `unpack(KEYS, 1, ${this.#locals.of('whole')})` : 'unpack(KEYS)'
    return `values = redis.call('MGET', ${keys})\n`
  }

  /**
   * Assigns the numbers of the caller's plan, and skips rules that do not apply to that plan.
   * @param mayBeUnknown Lua condition under which the config may not know the plan
   */
  #applyPlan(mayBeUnknown?: string): string {
    const varying = this.#rules.filter(hasVariableNumbers)
    const limited = this.#rules.filter(({ variants }) => variants.some(({ plans }) => plans))
    const defaults = varying.map(rule => this.#assignNumbers(rule, rule.variants[0]!)).join('')
    const { plans } = this.#ruleSet
    if (plans.length === 0) return defaults
    const unknown = mayBeUnknown === undefined ? '' : replaceUnknownPlan(plans, mayBeUnknown)
    const changesFor = (plan: string) => {
      const changes = limited.map(rule => {
        const variant = rule.variants.find(({ plans }) => !plans || plans.includes(plan))
        if (!variant) return `${rule.of('mark')} = ${ABSENT}\n`
        return variant === rule.variants[0] ? '' : this.#assignNumbers(rule, variant)
      })
      return changes.join('')
    }
    return [defaults, unknown, forPlan(plans, changesFor)].join('')
  }

  #assignNumbers({ of, lua }: RuleText, variant: Variant): string {
    const names = lua.numbers.filter(isNumber)
    return assignment(
      [of('tag'), ...names.map(of)],
      [literal(variant.tag), ...names.map(name => literal(numberOf(variant, name)))],
    )
  }

  /** Skips all rules but those on bad credentials, if the credential is bad, or they are not to decide (subject.lua). */
  #skipRulesOnRequests(): string {
    const others = this.#rules.filter(({ isGuess }) => !isGuess).map(({ of }) => of('mark'))
    if (others.length === 0) return ''
    const none = chunked(others, 50).map(part =>
      assignment(
        part,
        part.map(() => String(ABSENT)),
      ),
    )
    return `if is_unknown or instead then\n${none.join('')}end\n`
  }

  /** @param isDecision whether overrides also set the mode. A refund gives units back whatever the mode is now */
  #applyOverrides(condition: string, isDecision: boolean, withWritten: readonly RuleText[] = []): string {
    const rules = this.#rules.filter(({ takesOverrides }) => takesOverrides)
    if (rules.length === 0) return ''
    return [
      `if ${condition} then\n`,
      OVERRIDES,
      ...rules.map(rule => this.#applyOverride(rule, isDecision, withWritten.includes(rule))),
      'end\n',
    ].join('')
  }

  #applyOverride(
    { of, ruleNumber, family, lua: { numbers } }: RuleText,
    isDecision: boolean,
    withWritten: boolean,
  ): string {
    // Arguments of the call cannot be overridden.
    const own = numbers.map(number => (isNumber(number) ? of(number) : undefined))
    const values = [of('tag'), ...own.filter(value => value !== undefined)].join(', ')
    const mark = of('mark')
    const given = `'${ruleNumber}', '=${nameInLiteral(family)},', ${mark}, ${values}`
    const written = withWritten ? `, ${of('written')}` : ''
    return `${isDecision ? mark : '_'}, ${values}${written} = overridden(${given})\n`
  }

  #endDecision(): string {
    const { hasSubject, leases } = this.#ruleSet
    const isUsual = this.#identities.map(({ rules, key, fits }) => {
      const spent = rules
        .filter(({ isGuess }) => !isGuess)
        .map(({ of }) => `${of('retry_after')} == 0 and ${of('cost')} > 0`)
      // Rules on bad credentials do not spend for a good credential. If such a rule refuses (as a shadow), the reply has its retry time.
      const guesses = rules
        .filter(({ isGuess }) => isGuess)
        .map(({ of }) => `(${of('retry_after')} or 0) == 0`)
      return `(not ${key} or ${[fits, ...spent, ...guesses].join(' and ')})`
    })
    const isKnown = hasSubject ? ['not is_unknown'] : []
    const standing = this.#rules.map(readStanding).join('')
    const anySpent = (rule: RuleText) =>
      `${rule.of('retry_after')} == 0 and ${rule.of('cost')} > 0${rule.isGuess ? ' and is_unknown' : ''}`
    const any = {
      isSpent: (rule: RuleText) =>
        rule.settlement ? `(${rule.of('settled')} or ${anySpent(rule)})` : anySpent(rule),
      spend(rule: RuleText) {
        if (spendsEarly(rule)) return ''
        return rule.settlement
          ? `if ${anySpent(rule)} then\n${rule.section('spend')}end\n`
          : rule.section('spend')
      },
    }
    const commitOnlySettled = ({ rules, ...identity }: Identity) =>
      commitAny(
        { ...identity, rules: rules.filter(({ settlement }) => settlement) },
        { isSpent: ({ of }) => of('settled'), spend: () => '' },
      )
    const onlySettled = this.#identities
      .filter((_, i) => this.#reservations[i]!.settlesAlong)
      .map(commitOnlySettled)
    const undo = this.#hasReservations()
      ? undoStates(hasSubject ? RECORDS_OF_SUBJECT : this.#recordsOr('0'), this.#locals.of('whole'))
      : ''
    const reserve = (afterState: boolean) =>
      this.#reservations.map(reservations => reservations.reserve(afterState)).join('') + undo
    // A refused request gives back what has ended, too: or else each one would look at all of it again.
    const anyEnded = this.#reservations.flatMap(({ anyEnded }) => anyEnded || [])
    const givenBack = this.#identities.flatMap((identity, i) =>
      this.#reservations[i]!.anyEnded ? commitOnlySettled(identity) : [],
    )
    const giveBack = this.#reservations.map(reservations => reservations.giveBack())
    const grant = leases ? 'grant' : ''
    // Each end returns. With `elseif`, the first end would jump over all others, and Lua limits the length of jumps.
    return [
      `if not admitted or verb == 'peek'${hasSubject ? ' and not instead' : ''} then\n`,
      standing,
      onlySettled.length > 0 ? `if applied > 0 then\n${onlySettled.join('')}end\n` : '',
      anyEnded.length > 0
        ? `if verb ~= 'peek' and (${anyEnded.join(' or ')}) then\n${[...givenBack, ...giveBack].join('')}${undo}end\n`
        : '',
      this.#returnReply(1, hasSubject ? '' : 'paused'),
      'end\n',
      hasSubject ? 'if instead then\nreturn instead\nend\n' : '',
      leases ? this.#computeGrant() : '',
      this.#changeEarly('spend', anySpent),
      `if ${[...isKnown, ...isUsual].join(' and ') || 'true'} then\n`,
      ...this.#identities.map((identity, i) =>
        commitUsual(identity, this.#reservations[i]!.reserveInState()),
      ),
      reserve(true),
      this.#returnReply(2, grant),
      'end\n',
      ...this.#identities.map(identity => commitAny(identity, any)),
      reserve(false),
      this.#returnReply(1, grant),
    ].join('')
  }

  /** Changes the rules that do so before any state is written. @param isChanged Lua condition */
  #changeEarly(section: 'spend' | 'refund', isChanged: (rule: RuleText) => string): string {
    const early = this.#rules.filter(spendsEarly)
    return early.map(rule => `if ${isChanged(rule)} then\n${rule.section(section)}end\n`).join('')
  }

  /**
   * If the verb is a number, computes for how many requests to spend (lease.ts), and multiplies the costs. The delay of a queue is that
   * of the first request; the others depart evenly after it.
   */
  #computeGrant(): string {
    // Rules on bad credentials spend only if the credential is bad, and then no other rule spends.
    const rules = this.#rules.filter(({ isGuess }) => !isGuess)
    const bounds = rules.map(rule => {
      const { of } = rule
      return [
        `if ${of('retry_after')} == 0 and ${of('cost')} > 0 then\n${rule.section('standing')}`,
        `local most = ${of('remaining')} / (${literal(LEASE_DIVISOR)} * ${of('cost')})\n`,
        'if most < grant then\ngrant = most\nend\nend\n',
      ].join('')
    })
    const costs = rules.map(({ of }) => of('cost'))
    const raised = chunked(costs, 50).map(part =>
      assignment(
        part,
        part.map(cost => `${cost} * grant`),
      ),
    )
    return [
      `if verb ~= 'decide'${this.#ruleSet.hasSubject ? ' and not is_unknown' : ''} then\n`,
      'grant = verb + 0\n',
      ...bounds,
      'grant = grant < 1 and 1 or grant - grant % 1\n',
      ...raised,
      'end\n',
    ].join('')
  }

  /**
   * Returns the reply (decide.ts).
   * @param admitted 2: every rule has spent, so the rows have no `retry_after`
   * @param last the local that the reply ends with, if it is set
   */
  #returnReply(admitted: 1 | 2, last: string): string {
    const { hasSubject } = this.#ruleSet
    const rows = this.#rules.map(({ of, isQueue, settlement }) => {
      const retryAfter = admitted === 2 ? [] : [`${of('retry_after')} or -2`]
      const standing = [`${of('remaining')} or 0`, `${of('reset_after')} or 0`]
      const ofQueue = isQueue ? [`${of('delay')} or 0`] : []
      const ofSettlement = settlement ? [`${of('reserved')} or 0`, `${of('debt')} or 0`] : []
      return [...retryAfter, ...standing, ...ofQueue, ...ofSettlement].join(', ')
    })
    const known = hasSubject ? 'not admitted and 0 or is_unknown and -1 or 1' : 'admitted and 1 or 0'
    const settled = this.#hasReservations() ? ' + applied' : ''
    const status = admitted === 2 ? `2${settled}` : settled ? `(${known})${settled}` : known
    const plan = hasSubject ? "consumer and plan .. ' ' .. consumer or plan" : 'plan'
    const values = [status, plan, 'now', ...rows]
    // If it is nil, the list is shorter.
    if (!this.#rules.some(({ takesOverrides }) => takesOverrides))
      return `do return { ${[...values, ...(last ? [last] : [])].join(', ')} } end\n`
    return `
reply = { ${values.join(', ')} }
if changes then
reply[#reply + 1] = changes
end
${last && `reply[#reply + 1] = ${last}\n`}do return reply end
`.trimStart()
  }
}

/** Reads the reservationId, which settlements follow if there are any (settle-along.ts). @param place its index in ARGV */
const readReservation = (place: number) =>
  `
reservation = ARGV[${place}] or ''
applied = 0
if #reservation > ${ID_LETTERS} and verb ~= 'peek' then
settlements = reservation
end
`.trimStart()

/** Checks whether the rule admits its cost. @param afterwards text that runs after the check */
function checkRule(rule: RuleText, afterwards: string): string {
  const { of } = rule
  return [
    `${of('retry_after')} = 0\n`,
    rule.settlement?.aboveLimit === 'clamp' ? clampCost(rule) : '',
    `if ${of('cost')} > 0 then\n${rule.section('check')}${afterwards}`,
    `if ${of('retry_after')} ~= 0 and ${of('mark')} == ${ENFORCE} then\nadmitted = false\nend\nend\n`,
  ].join('')
}
