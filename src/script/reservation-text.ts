/**
 * The Lua text about the reservations of an identity: units of requests whose cost is known only afterwards (settle.ts). They are in the state
 * (reserved-records.ts), as far as there is room, or members of a sorted set: `<reservationId> <spent_at> <family>=<units> …`, with the time of its end (ms) as score. Families
 * are in alphabetical order, so that a config with the same rules in another order can settle it.
 *
 * If the units of a rate are given back at the end, ` <family>~<record>` follows its units: the limit and burst of the override under which it has
 * reserved, or the tag. Its record then is another one under other numbers, and gets nothing back. Members of earlier versions do not have this.
 */
import { ABSENT } from './constants.ts'
import { expandMacros, type Locals, literal, nameInLiteral } from './lua-text.ts'
import {
  type Added,
  addToTail,
  digitsNamed,
  findInTail,
  fromDigits,
  RECORD_BYTES,
  rebuildTail,
  removeEnded,
  renewInTail,
  type Tail,
} from './reserved-records.ts'
import { PER_SETTLED } from './rule-set-shape.ts'
import { hasVariableNumbers, type RuleText } from './rule-text.ts'
import { COST_DIGITS, ID_LETTERS, LAST_LETTERS, partAt, TAG_LETTERS, TIME_DIGITS } from './settle-along.ts'

/**
 * How many reservations that have ended one call gives back at most, in pages, of which each has twice as many as the one before: about 2 µs each.
 * Later calls give back the others.
 */
const ENDED_AT_ONCE = 20
const MAX_ENDED = 127 * ENDED_AT_ONCE

/** Which share of settlements also drops reservations that have ended without one: as the microseconds of `now` are as good as random. */
const DROP_EVERY = 32

/**
 * How many members are read first to find a reservation whose reply was lost, about 0.3 µs each, and the most at once. Each page has twice as many as the
 * one before, because Redis walks over those before it.
 */
const SEEN_AT_ONCE = 100
const MAX_SEEN_AT_ONCE = 3200

/**
 * How much longer Redis keeps the set than its last member is valid (ms). If the units are given back then, which the next decision of
 * the identity does: as long as they are spent.
 */
const KEEP_MS = 1000
const keepMsOf = (rule: RuleText) =>
  isReleased(rule)
    ? Math.max(
        ...rule.variants.map(({ quota: { rate, period, burst } }) =>
          Math.ceil(Math.max(2 * period, (burst / rate) * period) / 1000),
        ),
      )
    : KEEP_MS

/** Whether the units of a reservation are given back if nothing settles it. */
export const isReleased = ({ settlement }: RuleText) => settlement?.onUnsettled === 'release'

/** Whether a settlement says under which numbers the rule has reserved: under those of an override, some rules have another record. */
export const isOverridable = ({ settlement, takesOverrides }: RuleText) =>
  settlement !== undefined && takesOverrides

/** Whether members name the record of the rule. */
const namesRecord = (rule: RuleText) => isReleased(rule) && hasRecordOfLimit(rule)

/** The local with the tag of the rule without an override, where overrides are applied. */
export const tagOfPlan = (rule: RuleText) =>
  rule.takesOverrides && namesRecord(rule) ? rule.of('tag_of_plan') : undefined

/** Lua expression of the record under the numbers of now, after overrides were applied. */
const recordOf = (rule: RuleText) =>
  rule.takesOverrides ? `(${rule.of('written')} or ${rule.tag})` : rule.tag

/** Lua expression of the part of a member after its units, or nothing. @param record Lua expression */
const recordPart = (rule: RuleText, record: string) =>
  namesRecord(rule) ? ` .. ' ${nameInLiteral(rule.family)}~' .. ${record}` : ''

/** Lua condition: whether a member names another record. */
const hasOtherRecord = (rule: RuleText, member: string) =>
  `(match(${member}, ' ${nameInLiteral(rule.family)}~(%S+)') or ${recordOf(rule)}) ~= ${recordOf(rule)}`

/** Reserves at most the whole limit. */
export function clampCost(rule: RuleText): string {
  const { of, lua, variants } = rule
  const name = lua.numbers.includes('burst') ? 'burst' : 'limit'
  const most = hasVariableNumbers(rule) ? of(name) : literal(variants[0]!.quota.burst)
  return `if ${of('cost')} > ${most} then\n${of('cost')} = ${most}\nend\n`
}

/** Where the arguments of settlements are (settle.ts). */
export interface Amounts {
  /** The rules of the rule set that have a settlement. */
  settled: readonly RuleText[]
  /** ARGV of the limit and burst of the override under which the requests were counted. */
  writtenOf(rule: RuleText): string
}

/** The record in which the requests of a call have reserved, as Lua. */
const recordOfRequest = (rule: RuleText, { writtenOf }: Amounts) =>
  rule.takesOverrides ? `(${writtenOf(rule)} ~= '' and ${writtenOf(rule)} or ${tagOfPlan(rule)})` : rule.tag

/** ARGV of what a rule has reserved in the request at `at`. */
const reservedIn = ({ settled }: Amounts, { ruleNumber }: RuleText) =>
  `ARGV[at + ${3 + 2 * settled.findIndex(rule => rule.ruleNumber === ruleNumber)}]`
const actualIn = ({ settled }: Amounts, { ruleNumber }: RuleText) =>
  `ARGV[at + ${4 + 2 * settled.findIndex(rule => rule.ruleNumber === ruleNumber)}]`

export class ReservationText {
  /** Whether a rule of the identity reserves. If not, all texts are empty. */
  readonly isUsed: boolean
  /** The local with the index of the set in KEYS; nil if the identity is not part of the call. */
  readonly keyName: string
  /** The reservations in the state, and the local that says whether a settlement has changed them. */
  readonly tail: Tail
  readonly changed: string
  /** The longest of the rules (ms). */
  readonly ttlMs: number
  readonly #rules: readonly RuleText[]
  readonly #key: string
  readonly #ended: string
  readonly #hasMore: string
  readonly #released: readonly RuleText[]
  readonly #spilled: string
  readonly #removed: string
  /** The members that a settlement removes, and the ends and names of those that it renews. */
  readonly #over: () => string
  readonly #renewed: () => string
  readonly #keepMs: number

  constructor(rules: readonly RuleText[], identityNumber: number, locals: Locals) {
    this.#rules = rules.filter(({ settlement }) => settlement).sort((a, b) => (a.family < b.family ? -1 : 1))
    this.isUsed = this.#rules.length > 0
    this.keyName = `reserved_key_${identityNumber}`
    this.ttlMs = Math.max(0, ...this.#rules.map(({ settlement }) => settlement!.ttlMs))
    this.#keepMs = Math.max(0, ...this.#rules.map(keepMsOf))
    const local = (name: string) => (this.isUsed ? locals.of(`${name}_${identityNumber}`) : '')
    this.#key = local('reserved_key')
    this.tail = { text: local('tail'), from: local('tail_from'), last: local('tail_last') }
    this.#removed = local('removed')
    this.#over = () => local('over_members')
    this.#renewed = () => local('renewed_members')
    this.changed = local('is_changed')
    this.#spilled = local('is_spilled')
    // Not `ended`: a rule that counts units in flight has a local of that name, and can have this number.
    this.#released = this.#rules.filter(isReleased)
    const ofEnded = (name: string) =>
      this.#released.length > 0 ? locals.of(`${name}_${identityNumber}`) : ''
    this.#ended = ofEnded('ended_members')
    this.#hasMore = ofEnded('has_more')
  }

  /**
   * Lists the reservations that have ended, if units are given back then: those with units of a rule that is part of the request. If there are more
   * than one call gives back, `has_more` is set.
   */
  findEnded = (): string => {
    if (!this.#ended) return ''
    const isOwn = this.#released.map(
      ({ of, family }) =>
        `${of('mark')} ~= ${ABSENT} and find(member, ' ${nameInLiteral(family)}=', 1, true)`,
    )
    return `
${this.#ended}, ${this.#hasMore} = {}, false
if ${this.#key} then
local seen, found = 0, {}
repeat
local most = seen + ${ENDED_AT_ONCE}
found = redis.call('ZRANGEBYSCORE', KEYS[${this.#key}], '0', format('%.0f', (now - now % 1000) / 1000), 'LIMIT', seen, most)
for j = 1, #found do
local member = found[j]
if ${isOwn.join(' or ')} then
${this.#ended}[#${this.#ended} + 1] = member
end
end
seen = seen + #found
${this.#hasMore} = #found == most
until not ${this.#hasMore} or seen >= ${MAX_ENDED}
end
`.trimStart()
  }

  /** Gives the units of those reservations back to a rule, before it is checked. A peek does not store the result. */
  giveBackEnded(rule: RuleText): string {
    if (!isReleased(rule)) return ''
    const { of, family } = rule
    return `
for j = 1, #${this.#ended} do
local at, units = match(${this.#ended}[j], ' (%d+).- ${nameInLiteral(family)}=(%d+)')
if at${namesRecord(rule) ? ` and not (${hasOtherRecord(rule, `${this.#ended}[j]`)})` : ''} then
spent_at = at + 0
${of('units')}, ${of('spent')} = units + 0, units + 0
${rule.section('refund')}${of('settled')} = true
end
end
`.trimStart()
  }

  /** Lets a request that is refused come back at once, if more has ended than this call has given back. */
  retryAtOnce(rule: RuleText): string {
    if (!isReleased(rule)) return ''
    const retryAfter = rule.of('retry_after')
    return `if ${retryAfter} > 0 and ${this.#hasMore} then\n${retryAfter} = 1\nend\n`
  }

  /** Lua condition: whether a call that spends nothing has units to give back. */
  get anyEnded(): string {
    return this.#ended && `#${this.#ended} > 0`
  }

  /**
   * Adds what a request reserves to the state, when it is written, if all rules of the identity spend. If there is no room, or units are
   * given back at the end, `reserve` adds it to the set.
   */
  reserveInState(): Added | undefined {
    if (!this.isUsed) return undefined
    const spill = `${this.#spilled} = true\n`
    const reserved = this.#rules.map(({ of }) => `${of('reserved')} = ${of('cost')}\n`).join('')
    return this.#ended
      ? { prepare: `if reservation ~= '' then\n${reserved}${spill}end\n`, layout: '', values: [] }
      : addToTail(this.tail, this.#rules, { ttlMs: this.ttlMs, reserved, whenFull: spill })
  }

  /**
   * Stores what the request has reserved in the set, and drops the reservations that were given back. It runs when the states are written. If a command
   * fails, it sets `failure`, and has changed nothing.
   * @param afterState whether `reserveInState` has run before
   */
  reserve(afterState: boolean): string {
    if (!this.isUsed) return ''
    const key = `KEYS[${this.#key}]`
    const parts = this.#rules.map(rule => {
      const { of, family } = rule
      return `
if ${of('mark')} ~= ${ABSENT} and ${of('retry_after')} == 0 and ${of('cost')} > 0 then
${of('reserved')} = ${of('cost')}
units = units .. ' ${nameInLiteral(family)}=' .. format('%.0f', ${of('cost')})${recordPart(rule, recordOf(rule))}
end
`.trimStart()
    })
    return `
if ${this.#key} then
${this.#tryDropping()}if ${afterState ? this.#spilled : "reservation ~= ''"} then
local units = ''
${parts.join('')}if units ~= '' and not failure then
local member = sub(reservation, 1, ${ID_LETTERS}) .. format(' %.0f', now) .. units
${tryTo(`'ZADD', ${key}, ${this.#end()}, member`)}if not failure then
${tryTo(this.#keepKey())}if failure then
redis.pcall('ZREM', ${key}, member)
end
end
end
end
${this.#dropGivenBack()}end
`.trimStart()
  }

  /** As `reserve`, if the request spends nothing. */
  giveBack(): string {
    return this.#ended && `if ${this.#key} then\n${this.#tryDropping()}${this.#dropGivenBack()}end\n`
  }

  /** Tries whether ZREM can fail, because after another command it must not. No member has this name. */
  #tryDropping(): string {
    return this.#ended && `if ${this.anyEnded} then\n${tryTo(`'ZREM', KEYS[${this.#key}], ''`)}end\n`
  }

  /**
   * Drops the reservations that were given back. What one has reserved under a rule that is not part of the request stays, and has ended: it
   * is added first, because an empty set would lose its expiry.
   */
  #dropGivenBack(): string {
    if (!this.#ended) return ''
    const key = `KEYS[${this.#key}]`
    const ended = this.#ended
    const isPartial = this.#released.map(({ of }) => `${of('mark')} == ${ABSENT}`)
    const strip = this.#rules.map(rule => {
      const text = `rest = string.gsub(rest, ' ${nameInLiteral(rule.family)}[=~]%S+', '')\n`
      return isReleased(rule) ? `if ${rule.of('mark')} ~= ${ABSENT} then\n${text}end\n` : text
    })
    const keepOthers = `
if ${isPartial.join(' or ')} then
local others = {}
for j = 1, #${ended} do
local rest = ${ended}[j]
${strip.join('')}if find(rest, '=', 1, true) then
others[#others + 1] = format('%.0f', (now - now % 1000) / 1000)
others[#others + 1] = rest
end
end
if #others > 0 then
${tryTo(`'ZADD', ${key}, unpack(others)`)}end
end
`.trimStart()
    return `
if ${this.anyEnded} and not failure then
${this.#released.length > 1 ? keepOthers : ''}if not failure then
redis.call('ZREM', ${key}, unpack(${ended}))
end
end
`.trimStart()
  }

  /**
   * Settles or renews the reservations of all requests of the call. Those that have ended stay as they are. The set is read only if one of them
   * is not in the state, and written afterwards (`writeSettled`).
   */
  settle(amounts: Amounts): string {
    if (!this.isUsed) return ''
    const key = `KEYS[${this.#key}]`
    const width = 3 + 2 * amounts.settled.length
    const reservedAt = (rule: RuleText) => reservedIn(amounts, rule)
    const actualAt = (rule: RuleText) => actualIn(amounts, rule)
    const changed = `${this.changed} = true\n`
    const isTooOld = `ends < (now - now % 1000) / 1000 - lost_for + ${literal(this.ttlMs)}`
    const isSame = this.#rules.map(rule => `${rule.of('units')} == ${reservedAt(rule)} + 0`).join(' and ')
    const found = findInTail(this.tail, this.#rules, {
      letters: 'ARGV[at], 6, 12',
      isSame: `(kind == 'lost' and not (${isTooOld}) or kind ~= 'lost' and spent == ARGV[at + 1] + 0 and not has_others and ${isSame})`,
      removed: this.#removed,
    })
    const unitsOfMember = this.#rules.map(rule => `${rule.of('units')} = ${reservedAt(rule)} + 0\n`).join('')
    // A rule that has reserved nothing is not settled.
    const lost = this.#rules.map(rule => `if ${rule.of('units')} == 0 then\n${actualAt(rule)} = 0\nend\n`)
    const settled = this.#rules.map(rule =>
      `
if ${rule.of('mark')} ~= ${ABSENT} then
${settleRule(rule, actualAt(rule), isSameRecord(rule))}end
`.trimStart(),
    )
    return `
if ${this.#key} then
local members, is_over, lost_for
${this.#removed} = {}
for at = requests_at, #ARGV, ${width} do
if ARGV[at + 2] == 'lost' then
lost_for = math.max(lost_for or 0, ARGV[at + 1] + 0)
end
end
for at = requests_at, #ARGV, ${width} do
local kind, found, last, spent, member = ARGV[at + 2], nil, nil, nil, nil
if kind ~= 'job' and #${this.tail.text} >= ${this.tail.from} and #ARGV[at] == ${ID_LETTERS} then
${found}if found and kind == 'lost' then
${lost.join('')}end
end
if not found and kind ~= 'job' then
if not members then
members, is_over, ${this.#over()}, ${this.#renewed()} = {}, {}, {}, {}
${this.#findInSet(key, amounts)}end
member = members[at]
if member and is_over[member] then
member = nil
end
end
if found or member or kind == 'job' then
applied = applied + 1
if kind == 'renew' then
if found then
${renewInTail(this.tail, this.ttlMs)}${changed}else
${this.#renewed()}[#${this.#renewed()} + 1] = ${this.#end()}
${this.#renewed()}[#${this.#renewed()} + 1] = member
end
else
if found then
${this.#removed}[found] = last
${changed}else
if member then
${this.#over()}[#${this.#over()} + 1] = member
is_over[member] = true
end
spent = (kind == 'lost' and match(member, ' (%d+)') or ARGV[at + 1]) + 0
${unitsOfMember}end
spent_at = spent
${settled.join('')}end
end
end
if now % ${DROP_EVERY} == 0 then
${removeEnded(this.tail, this.#removed, changed)}${this.#dropEnded(key)}end
if ${this.changed} then
${rebuildTail(this.tail, this.#removed)}end
end
`.trimStart()
  }

  /** Writes the set after the states, so that what fails changes nothing. It then sets `failure`. */
  writeSettled(): string {
    if (!this.isUsed) return ''
    const key = `KEYS[${this.#key}]`
    const [over, renewed] = [this.#over(), this.#renewed()]
    return `
if ${over} and not failure then
if #${renewed} > 0 then
${tryTo(`'ZADD', ${key}, 'XX', unpack(${renewed})`)}if not failure then
${tryTo(this.#keepKey())}end
end
if #${over} > 0 and not failure then
${tryTo(`'ZREM', ${key}, unpack(${over})`)}end
end
`.trimStart()
  }

  /** Whether reservations are in the state: units that are given back at the end are not. */
  get settlesAlong(): boolean {
    return this.isUsed && !this.#ended
  }

  /**
   * Settles reservations that are in the state, before the rules of a decision are checked (settle-along.ts). Whatever is not there is left to a
   * message of its own.
   * @param settled the rules of the rule set that have a settlement
   */
  settleAlong(settled: readonly RuleText[]): string {
    if (!this.settlesAlong) return ''
    const { text, from, last } = this.tail
    const partOf = ({ ruleNumber }: RuleText) =>
      partAt(
        settled,
        settled.findIndex(rule => rule.ruleNumber === ruleNumber),
      )
    const charactersAt = (at: number, length: number) => `settlements, at + ${at}, at + ${at + length - 1}`
    // A record has the units of a rule if its tag is the same, as for the numbers of another plan or override it may not be.
    const isSame = this.#rules.map(rule => {
      const tag = hasVariableNumbers(rule)
        ? ` and ${rule.tag} == sub(${charactersAt(partOf(rule) + COST_DIGITS, TAG_LETTERS)})`
        : ''
      return `(${rule.of('units')} == 0 or ${rule.of('mark')} ~= ${ABSENT}${tag})`
    })
    // The cost of the first rule follows the time. One call of `byte` reads both.
    const isFirst = (rule: RuleText) => partOf(rule) === LAST_LETTERS + TIME_DIGITS
    const numbers = { time: TIME_DIGITS, ...(this.#rules.some(isFirst) && { first_cost: COST_DIGITS }) }
    const found = findInTail(this.tail, this.#rules, {
      letters: charactersAt(0, LAST_LETTERS + Object.values(numbers).reduce((sum, count) => sum + count)),
      numbers,
      isSame: ['not has_others', ...isSame].join(' and '),
    })
    const digits = digitsNamed('c', COST_DIGITS)
    const rules = this.#rules.map(rule => {
      const [read, actual] = isFirst(rule)
        ? ['', 'first_cost']
        : [
            `local ${digits.join(', ')} = byte(${charactersAt(partOf(rule), COST_DIGITS)})\n`,
            fromDigits(digits),
          ]
      return `
if ${rule.of('units')} > 0 then
local cost = ${rule.of('cost')}
${read}${settleRule(rule, actual)}${rule.of('settled')}, ${rule.of('cost')} = true, cost
end
`.trimStart()
    })
    return `
if settlements and ${this.#key} then
for at = ${ID_LETTERS + 1}, #${text} >= ${from} and #settlements or 0, ${partAt(settled, settled.length)} do
local found, last, spent
${found}if found then
applied, spent_at = applied + ${PER_SETTLED}, spent
if found == ${from} then
${from} = last
else
${text}, ${from} = sub(${text}, ${from}, found - 1) .. sub(${text}, last), 1
end
${rules.join('')}end
end
if now % ${DROP_EVERY} == 0 then
local removed = {}
${removeEnded(this.tail, 'removed', '')}${rebuildTail(this.tail, 'removed')}${last} = byte(${text}, #${text} - ${RECORD_BYTES - 1})
${this.#dropEnded(`KEYS[${this.#key}]`)}end
end
`.trimStart()
  }

  /** Finds the members of the request at `at` and of those after it, by their index in ARGV. */
  #findInSet(key: string, amounts: Amounts): string {
    const width = 3 + 2 * amounts.settled.length
    const units = (hasRecords: boolean) => {
      const parts = this.#rules.map(rule => {
        const reserved = reservedIn(amounts, rule)
        const record = hasRecords ? recordPart(rule, recordOfRequest(rule, amounts)) : ''
        return `(${reserved} ~= '0' and ' ${nameInLiteral(rule.family)}=' .. ${reserved}${record} or '')`
      })
      return parts.join(' .. ')
    }
    const add = (units: string) => `
all[#all + 1] = ARGV[at] .. ' ' .. ARGV[at + 1] .. ${units}
places[#places + 1] = at
`
    return `
local all, places, lost = {}, {}, {}
for at = at, #ARGV, ${width} do
if ARGV[at + 2] == 'lost' then
lost[ARGV[at]] = at
else
local units = ${units(false)}
if units ~= '' then${this.#rules.some(namesRecord) ? add(units(true)) : ''}${add('units')}end
end
end
${this.#findLost(key, amounts)}local ends = #all > 0 and redis.call('ZMSCORE', ${key}, unpack(all)) or {}
for j = 1, #all do
if ends[j] and ends[j] + 0 > now / 1000 then
members[places[j]] = all[j]
end
end
`.trimStart()
  }

  /** Finds the members whose replies were lost, and puts the units that they have reserved into ARGV. */
  #findLost(key: string, amounts: Amounts): string {
    // A rule that has reserved nothing is not settled.
    const reserved = this.#rules.map(rule =>
      `
local units = match(found[j], ' ${nameInLiteral(rule.family)}=(%d+)')
${reservedIn(amounts, rule)} = units or '0'
${actualIn(amounts, rule)} = units and ${actualIn(amounts, rule)} or '0'
${namesRecord(rule) ? `if units and ${hasOtherRecord(rule, 'found[j]')} then\n${actualIn(amounts, rule)} = math.max(${actualIn(amounts, rule)}, units)\nend\n` : ''}`.trimStart(),
    )
    const since = `format('%.0f', (now - now % 1000) / 1000 - lost_for + ${literal(this.ttlMs)})`
    return `
local from, page, found = 0, ${SEEN_AT_ONCE}, nil
while next(lost) and (not found or #found == page) do
if found then
from, page = from + page, math.min(2 * page, ${MAX_SEEN_AT_ONCE})
end
found = redis.call('ZRANGEBYSCORE', ${key}, ${since}, '+inf', 'LIMIT', from, page)
for j = 1, #found do
local id = match(found[j], '^%S+')
local at = lost[id]
if at then
lost[id] = nil
all[#all + 1] = found[j]
places[#places + 1] = at
${reserved.join('')}end
end
end
`.trimStart()
  }

  /** Drops reservations that have ended, if their units stay spent. The others are dropped when their units are given back. */
  #dropEnded(key: string): string {
    if (this.#ended) return ''
    return `redis.call('ZREMRANGEBYSCORE', ${key}, '0', format('%.0f', (now - now % 1000) / 1000))\n`
  }

  #end(): string {
    return `format('%.0f', (now - now % 1000) / 1000 + ${literal(this.ttlMs)})`
  }

  /** A command without its call. */
  #keepKey(): string {
    return `'PEXPIRE', KEYS[${this.#key}], ${literal(this.ttlMs + this.#keepMs)}`
  }
}

/** Runs a command whose reply is a number. If it fails, the local `failure` gets the error. */
export const tryTo = (command: string) =>
  `failure = redis.pcall(${command})\nfailure = type(failure) == 'table' and failure\n`

/**
 * Replies with the error of a command that has failed after states were written, which are then as before. They stay for long, because how long
 * they would have stayed is not known. Only SETEX is used, which the user may run.
 * @param records Lua expression of how many KEYS come before the states
 * @param last of the last KEY that was read
 */
export const undoStates = (records: string, last: string) =>
  expandMacros(
    `
if failure then
for i = 1 + (${records}), ${last} do
redis.call('SETEX', KEYS[i], format('%d', values[i] and life_until(now + HORIZON) or 1), values[i] or '')
end
do return failure end
end
`.trimStart(),
  )

/** Whether a rule has another record if its limit is another one. Windows and logs have one record for all limits. */
export const hasRecordOfLimit = ({ lua }: Pick<RuleText, 'lua'>) => lua.numbers.includes('rate')

/** Lua condition, after another one, under which the record is the one that was spent from. */
const isSameRecord = (rule: RuleText) =>
  isOverridable(rule) && hasRecordOfLimit(rule) ? ` and not ${rule.of('moved')}` : ''

/**
 * Gives back what was reserved in excess of `units`, or spends what was missing, without a check.
 * @param andIsSame Lua condition, after another one, under which units can be given back
 */
function settleRule(rule: RuleText, actual: string, andIsSame = ''): string {
  const { of } = rule
  return `
${of('spent')} = ${of('units')}
${of('cost')} = ${actual} - ${of('spent')}
if ${of('cost')} > 0 then
${spendExtra(rule)}${of('settled')} = true
elseif ${of('cost')} < 0${andIsSame} then
${of('units')} = -${of('cost')}
${rule.section('refund')}${of('settled')} = true
end
`.trimStart()
}

/** More than the algorithm counts at most would not be exact. */
function spendExtra(rule: RuleText): string {
  const { of, lua, variants } = rule
  const name = lua.numbers.includes('burst') ? 'burst' : 'limit'
  const most = hasVariableNumbers(rule) ? of(name) : literal(variants[0]!.quota.burst)
  return `
if ${of('cost')} > MAX_DEBT * ${most} then
${of('cost')} = MAX_DEBT * ${most}
end
${rule.section('spend')}`.trimStart()
}
