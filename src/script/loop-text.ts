/**
 * Compiles a rule set with many rules to Lua: loops over its rules, whose numbers are in tables. The script has each section of an
 * algorithm once, however many rules there are. It takes the same arguments, sends the same replies and stores the same states as the
 * straight-line code of rule-set-text.ts, which is faster with few rules.
 *
 * A first loop reads the states and checks all rules, a second one spends, writes, and makes the reply. Between them, the locals of
 * the rules are in the list `kept`, one rule after the other.
 */
import { ABSENT, ENFORCE } from './constants.ts'
import { LEASE_DIVISOR } from './lease.ts'
import {
  changeState,
  declareKept,
  type Kind,
  type LoopRule,
  LoopRules,
  loadKept,
  type Section,
  skipKept,
  storeKept,
  updateKept,
} from './loop-rules.ts'
import { OVERRIDES, SUBJECT } from './lua.generated.ts'
import { literal } from './lua-text.ts'
import { hasRecordOfLimit } from './reservation-text.ts'
import { KEPT_AT, keepOfOthers, LAST_MS, RECORD_BYTES } from './reserved-records.ts'
import type { RuleSetShape, Variant } from './rule-set-shape.ts'
import { assignment, isExpectedInState, isNumber, numberOf, spendsEarly } from './rule-text.ts'
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
import { declareLife, decodeRecord, INTEGERS, notePause, TTL } from './state-text.ts'

/** The layout of a record. */
const LAYOUT = `'>c3${INTEGERS}'`

/** The locals of both scripts. */
const NAMES = [
  ...['plan', 'values', 'place', 'settings', 'overrides_at', 'changes', 'reply'],
  ...['marks', 'keys', 'side_keys', 'chunks_keys', 'states', 'packed', 'from'],
]

export class LoopText {
  readonly #ruleSet: RuleSetShape
  readonly #rules: LoopRules

  constructor(ruleSet: RuleSetShape) {
    this.#ruleSet = ruleSet
    this.#rules = new LoopRules(ruleSet)
  }

  decide(): string {
    const { hasSubject, leases } = this.#ruleSet
    const body = [
      'verb = ARGV[1]\n',
      hasSubject ? "subject = ARGV[3] or ''\n" : '',
      this.#readMarks(),
      `has_costs = ARGV[${this.#rules.lastArgument + 1}]\n`,
      this.#locateKeys(hasSubject ? RECORDS_OF_SUBJECT : this.#recordsOr('0')),
      hasSubject ? RESOLVE_POINTER : '',
      this.#fetchValues(),
      hasSubject ? `plan = ''\n${SUBJECT}` : "plan = ARGV[4] or ''\n",
      numbersOfLimit(this.#ruleSet),
      this.#applyPlan(hasSubject ? "subject ~= '' and not is_unknown" : undefined),
      hasSubject ? this.#skipRulesOnRequests() : '',
      this.#applyOverrides(hasSubject ? 'overrides_at and not is_unknown' : 'overrides_at', true),
      this.#checkRules(),
      hasSubject ? 'if instead and admitted then\nreturn instead\nend\n' : '',
      "is_spending = admitted and verb ~= 'peek'\nis_usual = is_usual and is_spending\n",
      leases ? this.#computeGrant() : '',
      this.#spendEarly(),
      this.#endDecision(),
    ]
    const names = ['verb', 'has_costs', 'admitted', 'is_usual', 'is_spending', 'retry_afters', 'kept', 'slot']
    const ofSubject = hasSubject ? ['subject', 'is_unknown', 'instead', 'consumer'] : []
    const ofLease = leases ? ['grant'] : []
    const ofPauses = hasSubject ? [] : ['paused']
    const ofEarly = this.#rules.all.some(spendsEarly) ? ['early'] : []
    return this.#assembleScript(
      [...names, ...ofSubject, ...ofLease, ...ofPauses, ...ofEarly],
      "local now = ARGV[5] or ''\n",
      body,
    )
  }

  refund(): string {
    const { all, lastArgument } = this.#rules
    const { length } = this.#overridable
    const { hasSubject } = this.#ruleSet
    const units = lastArgument + length + 1
    const body = [
      'spent_at = ARGV[1] + 0\n',
      hasSubject ? '' : countRefundOnce(units, all),
      this.#readMarks(),
      this.#locateKeys(this.#recordsOr(RECORDS_OF_REFUND)),
      this.#fetchValues(),
      settingsOfRefund(numbersOfLimit(this.#ruleSet)),
      this.#applyPlan(),
      length > 0 ? 'overrides = {}\n' : '',
      this.#applyOverrides('overrides_at', false),
      this.#skipOtherRecords(),
      this.#refundRules(),
      hasSubject ? '' : storeRefundOnce(units, all),
      'return reply\n',
    ]
    const ofOverrides = length > 0 ? ['overrides'] : []
    return this.#assembleScript(['totals', 'spent_at', '_', ...ofOverrides], 'local now = ARGV[5]\n', body)
  }

  #assembleScript(names: readonly string[], now: string, body: readonly string[]): string {
    return assembleScript({
      algorithms: this.#rules.all.map(({ lua }) => lua),
      ...{ now, names: [...NAMES, ...names, ...this.#ofRecords], body: [FIND_RECORD, ...body] },
      declaration: () => this.#rules.columns.declaration(),
    })
  }

  /** The Lua expression of how many records come first in KEYS. @param others in rule sets whose identities have no overrides */
  #recordsOr = (others: string) => (this.#ruleSet.overridable ? RECORDS_OF_LIMIT : others)

  get #ofRecords() {
    return this.#ruleSet.overridable ? [RECORDS_OF_LIMIT] : []
  }

  #readMarks(): string {
    return `marks = { byte(ARGV[2], 1, ${this.#ruleSet.identities + this.#rules.all.length}) }\n`
  }

  /** Runs text for each identity `k`, whose rules are `from` to `to`. */
  #forEachIdentity(text: string): string {
    const last = this.#rules.ofIdentity('lasts', rules => rules.at(-1)!.i)
    return `from = 1\nfor k = 1, ${this.#ruleSet.identities} do\nlocal to = ${last}\n${text}from = to + 1\nend\n`
  }

  /** Computes the indexes in KEYS: first the records of the caller, then each state with the keys of its rules, then the chunks of logs. */
  #locateKeys(records: string): string {
    const ofRule = (condition: string, keys: string) => `
if ${condition} ~= ${ABSENT} then
place = place + 1
${keys}[i] = place
end
`
    const { all } = this.#rules
    const hasOwn = this.#rules.column('have_side_keys', ({ sideKey }) => sideKey !== undefined)
    const ofIdentity = all.some(({ sideKey }) => sideKey)
      ? `for i = from, to do${ofRule(`${hasOwn} and marks[i + k]`, 'side_keys')}end\n`
      : ''
    const logs = all.filter(({ sideKey }) => sideKey === 'log').sort((a, b) => a.entryNumber - b.entryNumber)
    // The mark of an identity precedes those of its rules.
    const present = (this.#ruleSet.overridable ?? []).map(
      identity => `marks[${all.find(rule => rule.identity === identity)!.markAt - 1}]`,
    )
    return [
      countRecords(present),
      `keys, side_keys, chunks_keys, place = {}, {}, {}, ${records}\n`,
      this.#forEachIdentity(
        `if marks[from + k - 1] ~= ${ABSENT} then\nplace = place + 1\nkeys[k] = place\n${ofIdentity}end\n`,
      ),
      ...(logs.length > 0
        ? [
            `local whole, logs, marks_at = place, ${listOf(logs, 'i')}, ${listOf(logs, 'markAt')}\n`,
            `for j = 1, #logs do\nlocal i = logs[j]${ofRule('marks[marks_at[j]]', 'chunks_keys')}end\n`,
          ]
        : []),
    ].join('')
  }

  #fetchValues(): string {
    const hasLog = this.#rules.all.some(({ sideKey }) => sideKey === 'log')
    return `values = redis.call('MGET', ${hasLog ? 'unpack(KEYS, 1, whole)' : 'unpack(KEYS)'})\n`
  }

  /**
   * Assigns the numbers of the caller's plan, and skips rules that do not apply to that plan.
   * @param mayBeUnknown Lua condition under which the config may not know the plan
   */
  #applyPlan(mayBeUnknown?: string): string {
    const { plans } = this.#ruleSet
    if (plans.length === 0) return ''
    const limited = this.#rules.all.filter(({ variants }) => variants.some(({ plans }) => plans))
    const changesFor = (plan: string) =>
      limited.map(rule => {
        const variant = rule.variants.find(({ plans }) => !plans || plans.includes(plan))
        return variant ? this.#assignNumbers(rule, variant) : `marks[${rule.markAt}] = ${ABSENT}\n`
      })
    const unknown = mayBeUnknown === undefined ? '' : replaceUnknownPlan(plans, mayBeUnknown)
    return unknown + forPlan(plans, plan => changesFor(plan).join(''))
  }

  /** Assigns the numbers that differ from the first ones. */
  #assignNumbers({ i, lua, variants }: LoopRule, variant: Variant): string {
    const first = variants[0]!
    if (variant === first) return ''
    const changed = lua.numbers.flatMap((name, slot) =>
      isNumber(name) && numberOf(variant, name) !== numberOf(first, name)
        ? [{ table: this.#rules.numbers(slot), value: numberOf(variant, name) }]
        : [],
    )
    const all = [{ table: this.#rules.tags, value: variant.tag }, ...changed]
    return assignment(
      all.map(({ table }) => `${table}[${i}]`),
      all.map(({ value }) => literal(value)),
    )
  }

  /** Skips all rules but those on bad credentials, if the credential is bad, or they are not to decide (subject.lua). */
  #skipRulesOnRequests(): string {
    const { isNoGuess } = this.#rules
    const skip = `marks[i + k] = ${ABSENT}\n`
    const text = isNoGuess ? `if ${isNoGuess} then\n${skip}end\n` : skip
    return `if is_unknown or instead then\n${this.#forEachIdentity(`for i = from, to do\n${text}end\n`)}end\n`
  }

  /** @param isDecision whether overrides also set the mode. A refund gives units back whatever the mode is now */
  #applyOverrides(condition: string, isDecision: boolean): string {
    const { entryNumber, tags } = this.#rules
    const overridable = this.#overridable
    if (overridable.length === 0) return ''
    const counts = overridable.map(({ lua }) => lua.numbers.filter(isNumber).length)
    const numbers = Array.from({ length: Math.max(...counts) }, (_, slot) => this.#rules.numbers(slot))
    const values = [tags, ...numbers].map(table => `${table}[i]`).join(', ')
    return `
if ${condition} then
${OVERRIDES}local families = { ${overridable.map(({ family }) => literal(family)).join(', ')} }
local overridable, marks_at = ${listOf(overridable, 'i')}, ${listOf(overridable, 'markAt')}
for j = 1, #families do
local i, family, mark = overridable[j], '=' .. families[j] .. ',', marks_at[j]
${isDecision ? 'marks[mark]' : '_'}, ${values}${isDecision ? '' : ', overrides[j]'} = overridden(${entryNumber}, family, marks[mark], ${values})
end
end
`.trimStart()
  }

  /** In the order of the rule set: the reply has the overrides in this order, and a refund those of its request. */
  get #overridable(): readonly LoopRule[] {
    return this.#rules.all
      .filter(({ takesOverrides }) => takesOverrides)
      .sort((a, b) => a.entryNumber - b.entryNumber)
  }

  /** Gives nothing back to a rule that has another record than the one that was spent from, because its override is another one. */
  #skipOtherRecords(): string {
    const { lastArgument } = this.#rules
    const overridable = this.#overridable
    const units = overridable.map(rule =>
      hasRecordOfLimit(rule) ? 2 * rule.entryNumber + lastArgument + overridable.length - 1 : 0,
    )
    if (!units.some(Boolean)) return ''
    return `
local units_at = { ${units.join(', ')} }
for j = 1, ${overridable.length} do
if units_at[j] > 0 and (overrides[j] or '') ~= ARGV[${lastArgument} + j] then
ARGV[units_at[j]] = '0'
end
end
`.trimStart()
  }

  /** The loop that reads the states, and checks all rules. */
  #checkRules(): string {
    const { isNoGuess } = this.#rules
    const checkKind = (kind: Kind) => {
      // A rule on bad credentials need not spend in a usual decision.
      const otherwise = kind.isGuess ? '' : 'else\nis_usual = false\n'
      const check = (section: Section) =>
        `${section('read')}if cost > 0 then\n${section('check')}${otherwise}end\n`
      return this.#rules.sections(kind, declareKept(kind), check) + storeKept(kind)
    }
    const text = `
local key = keys[k]
if key then
${this.#readState(true)}local cost, retry_after = 1, 0
for i = from, to do
local mark = marks[i + k]
if mark ~= ${ABSENT} then
${this.#readCost()}${this.#readRecord(true)}${this.#rules.forKind(checkKind)}if retry_after ~= 0 then
retry_afters[i], is_usual, retry_after = retry_after, false, 0
if mark == ${ENFORCE} then
admitted = false
end
end
${isNoGuess ? `elseif ${isNoGuess} then` : 'else'}
is_usual = false
end
end
${this.#ruleSet.hasSubject ? '' : READ_PAUSE}end
`.trimStart()
    return [
      `admitted, is_usual = true, ${this.#ruleSet.hasSubject ? 'not is_unknown' : 'true'}\n`,
      'retry_afters, kept, slot, states = {}, {}, 0, {}\n',
      this.#forEachIdentity(text),
    ].join('')
  }

  /** The loop that spends if all rules admit, writes the states, and makes the reply. */
  #endDecision(): string {
    const { hasSubject, leases } = this.#ruleSet
    const { isNoGuess, tags } = this.#rules
    const delay = this.#rules.has('isQueue') ? 'delay, ' : ''
    const spendKind = (kind: Kind) =>
      this.#rules.sections(kind, loadKept(kind), section =>
        changeState(kind, spendsEarly(kind) ? undefined : 'spend', section),
      )
    const text = `
local cost, size, latest, written = ${leases ? 'grant or 1' : '1'}, 0, 0, not is_usual and {}
local are_spent = ${isNoGuess ? 'false' : 'is_usual and keys[k]'}
for i = from, to do
local is_spent, retry_after, remaining, reset_after, ${delay}idle_at, n = are_spent, 0
${this.#readCost(leases)}if not is_spent then
retry_after = marks[i + k] ~= ${ABSENT} and (retry_afters[i] or 0) or -2
is_spent = is_spending and retry_after == 0 and cost > 0${isNoGuess ? ` and (${isNoGuess} or is_unknown)` : ''}
if is_spent and written then
written[${tags}[i]] = true
end
end
if retry_after ~= -2 then
${this.#rules.forKind(spendKind)}${this.#packRecord()}else
remaining, reset_after = 0, 0
end
${this.#addRow()}end
${this.#writeState()}`.trimStart()
    const known = hasSubject ? 'not admitted and 0 or is_unknown and -1 or 1' : 'admitted and 1 or 0'
    const plan = hasSubject ? "consumer and plan .. ' ' .. consumer or plan" : 'plan'
    return [
      `reply, packed, slot = { is_usual and 2 or ${known}, ${plan}, now${this.#roomForRows()} }, {}, 0\nlocal row = 4\n`,
      this.#forEachIdentity(text),
      this.#rules.has('takesOverrides') ? 'if changes then\nreply[#reply + 1] = changes\nend\n' : '',
      leases ? 'if grant then\nreply[#reply + 1] = grant\nend\n' : '',
      hasSubject ? '' : 'if paused then\nreply[#reply + 1] = paused\nend\n',
      'return reply\n',
    ].join('')
  }

  /** If the verb is a number, computes for how many requests to spend (lease.ts). */
  #computeGrant(): string {
    const bound = (section: Section) => `
if not retry_afters[i] and cost > 0 then
${section('standing')}local most = remaining / (${literal(LEASE_DIVISOR)} * cost)
if most < grant then
grant = most
end
end
`
    // Rules on bad credentials spend only if the credential is bad, and then no other rule spends.
    const boundByKind = (kind: Kind) =>
      kind.isGuess ? skipKept(kind) : this.#rules.sections(kind, loadKept(kind), bound)
    return `
if is_spending and verb ~= 'decide'${this.#ruleSet.hasSubject ? ' and not is_unknown' : ''} then
grant, slot = verb + 0, 0
${this.#forEachIdentity(`
for i = from, to do
if marks[i + k] ~= ${ABSENT} then
local cost, remaining, reset_after = 1
${this.#readCost()}${this.#rules.forKind(boundByKind)}end
end
`)}grant = grant < 1 and 1 or grant - grant % 1
end
`.trimStart()
  }

  /** The loop over the rules that spend before any state is written. */
  #spendEarly(): string {
    if (!this.#rules.all.some(spendsEarly)) return ''
    const { isNoGuess } = this.#rules
    const { leases } = this.#ruleSet
    const spend = (kind: Kind) => (section: Section) =>
      `
if not retry_afters[i] and cost > 0${isNoGuess ? ` and (${isNoGuess} or is_unknown)` : ''} then
local side_bytes
${section('spend')}early[i] = side_bytes
${updateKept(kind)}end
`
    const spendByKind = (kind: Kind) =>
      spendsEarly(kind) ? this.#rules.sections(kind, loadKept(kind), spend(kind)) : skipKept(kind)
    return `
if is_spending then
early, slot = {}, 0
${this.#forEachIdentity(`
local cost = ${leases ? 'grant or 1' : '1'}
for i = from, to do
if marks[i + k] ~= ${ABSENT} then
${this.#readCost(leases)}${this.#rules.forKind(spendByKind)}end
end
`)}else
early = {}
end
`.trimStart()
  }

  /** The loop that gives units back, writes the states, and makes the reply. */
  #refundRules(): string {
    const { all, entryNumber, lastArgument, tags } = this.#rules
    const refundKind = (kind: Kind) => {
      const refund = (section: Section) => section('read') + changeState(kind, 'refund', section)
      return this.#rules.sections(kind, declareKept(kind), refund)
    }
    const unitsAt = `2 * ${entryNumber} + ${lastArgument + this.#overridable.length}`
    const text = `
local key = keys[k]
if key then
${this.#readState(false)}local size, latest, written = 0, 0, {}
for i = from, to do
if marks[i + k] ~= ${ABSENT} then
local units, spent = ARGV[${unitsAt} - 1] + 0, ARGV[${unitsAt}] + 0
local is_spent, remaining, reset_after = units > 0
if is_spent then
written[${tags}[i]] = true
end
${this.#readRecord(false)}${this.#rules.forKind(refundKind)}${this.#packRecord()}reply[2 * ${entryNumber}] = remaining
reply[2 * ${entryNumber} + 1] = reset_after
end
end
${this.#writeState()}end
`.trimStart()
    return [
      `reply, packed, states = { now }, {}, {}\nfor i = 2, ${1 + 2 * all.length} do\nreply[i] = 0\nend\n`,
      this.#forEachIdentity(text),
    ].join('')
  }

  /** Reads the cost of the rule `i`, if costs are sent. The local `cost` is that of the other requests. */
  #readCost(isForGrant = false): string {
    const { entryNumber, lastArgument } = this.#rules
    const times = isForGrant ? '* (grant or 1)' : '+ 0'
    return `if has_costs then\ncost = ARGV[${entryNumber} + ${lastArgument}] ${times}\nend\n`
  }

  /**
   * Reads the state of identity `k`. Its records are usually in the order of the rules, so the next one begins at `position`.
   * @param isDecision whether a state with other records makes a decision unusual
   */
  #readState(isDecision: boolean): string {
    const size = this.#rules.ofIdentity(
      'sizes',
      rules => RECORD_BYTES * rules.filter(isExpectedInState).length || -1,
    )
    return `
local state = values[key]
local length, position = state and #state or 0, 1
if state and length ~= ${size} then
${isDecision ? 'is_usual = false\n' : ''}if length % ${RECORD_BYTES} ~= 0 then
state, length = nil, 0
end
end
states[k] = state
`.trimStart()
  }

  /** Reads the record of the rule `i` into `idle_at` and `n`: the one at `position`, or else wherever it is. */
  #readRecord(isDecision: boolean): string {
    const { andHasRecord, isNoGuess, tags } = this.#rules
    const unpack = `tag, a, b, c = unpack_integers(${LAYOUT}, state, position)\n`
    // The state usually has no records of rules on bad credentials.
    const unusual = isNoGuess ? `is_usual = is_usual and not (${isNoGuess})\n` : 'is_usual = false\n'
    return `
local idle_at, n, tag, a, b, c
if position < length${andHasRecord} then
${unpack}end
if tag ~= ${tags}[i] and state${andHasRecord} then
${isDecision ? unusual : ''}local at = find_record(state, ${tags}[i])
if at then
position = at
${unpack}else
a = nil
end
end
if a then
position = position + ${RECORD_BYTES}
${decodeRecord({ idleAt: 'idle_at', count: 'n' }, '')}else
idle_at, n = 0, 0
end
`.trimStart()
  }

  /** Packs the record of the rule `i`, if it has spent. */
  #packRecord(): string {
    const { andHasRecord, tags } = this.#rules
    return `
if is_spent${andHasRecord} then
local ms = ${LAST_MS} - idle_at / 1000
local b, c = ms % 1024, n % 16777216
local a = (ms - b) / 1024
b = b * 4194304 + (n - c) / 16777216
size = size + 1
packed[size] = pack_integers(${LAYOUT}, ${tags}[i], a, b, c)
if idle_at > latest then
latest = idle_at
end
end
`.trimStart()
  }

  /** Adds the row of the rule `i` to the reply. */
  #addRow(): string {
    const isQueue = this.#rules.column('are_queues', ({ isQueue }) => isQueue)
    const addDelay = `if ${isQueue} then\nreply[row] = delay or 0\nrow = row + 1\nend\n`
    return `
${this.#rules.areInOrder ? '' : this.#findRow()}if not is_usual then
reply[row] = retry_after
row = row + 1
end
reply[row] = remaining
reply[row + 1] = reset_after
row = row + 2
${this.#rules.has('isQueue') ? addDelay : ''}`.trimStart()
  }

  /** Finds the row of the rule `i`, if it does not follow that of the rule before. */
  #findRow(): string {
    const { entryNumber } = this.#rules
    // The row of a queue is one longer.
    const queuesBefore = this.#rules.column(
      'queues_before',
      rule => this.#ruleSet.entries.slice(0, rule.entryNumber - 1).filter(({ isQueue }) => isQueue).length,
    )
    const start = (length: 2 | 3) => `row = ${length} * ${entryNumber} + ${4 - length} + ${queuesBefore}\n`
    return `if is_usual then\n${start(2)}else\n${start(3)}end\n`
  }

  /** Values for all rows, so that the list needs not grow row by row in a random order, which takes long. */
  #roomForRows(): string {
    const { all, areInOrder } = this.#rules
    if (areInOrder) return ''
    const queues = all.filter(({ isQueue }) => isQueue).length
    const length = `(is_usual and 2 or 3) * ${all.length} + ${queues}`
    return `, byte(rep(ARGV[2], 4), 1, ${length})`
  }

  /** Writes the state of identity `k`: the packed records, and others that are not idle. */
  #writeState(): string {
    return `
if size > 0 then
local state, ${KEPT_AT} = states[k]
for at = 1, written and state and #state or 0, ${RECORD_BYTES} do
local tag = sub(state, at, at + 2)
if not written[tag] then
local a, b = unpack_integers('>I4I4', state, at + 3)
local other = (${LAST_MS} - a * 1024 - (b - b % 4194304) / 4194304) * 1000
if other > now and other - now < HORIZON then
written[tag] = true
${keepOfOthers('state', KEEP_OTHER, 'if other > latest then\nlatest = other\nend\n')}end
end
end
${declareLife('latest')}redis.call('SETEX', KEYS[keys[k]], ${TTL}, concat(packed, '', 1, size))
end
`.trimStart()
  }
}

const KEEP_OTHER = `size = size + 1\npacked[size] = sub(state, at, at + ${RECORD_BYTES - 1})\n`

/** Finds the first record of a tag in a state. */
const FIND_RECORD = `
local function find_record(state, tag)
local at = find(state, tag, 1, true)
while at and at % ${RECORD_BYTES} ~= 1 do
at = find(state, tag, at + 1, true)
end
return at
end
`.trimStart()

/** Reads the pause of the identity, if its state has other records than those of its rules. */
const READ_PAUSE = `
local at = not is_usual and state and find_record(state, PAUSE)
if at then
local a, b = unpack_integers('>I4I4', state, at + 3)
local ends = (${LAST_MS} - a * 1024 - (b - b % 4194304) / 4194304) * 1000
${notePause('ends')}end
`.trimStart()

const listOf = (rules: readonly LoopRule[], property: 'i' | 'markAt') =>
  `{ ${rules.map(rule => rule[property]).join(', ')} }`
