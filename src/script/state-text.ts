/** The Lua text that reads and writes the state of an identity. prelude.lua describes the format. */
import { chunked } from '../chunked.ts'
import { ABSENT } from './constants.ts'
import { expandMacros } from './lua-text.ts'
import {
  type Added,
  isOfReservation,
  KEPT_AT,
  keepOfOthers,
  LAST_MS,
  RECORD_BYTES,
  RESERVED_FROM,
  type Tail,
} from './reserved-records.ts'
import { isExpectedInState, type RuleText, spendsEarly } from './rule-text.ts'

/** The rules that share one state, and the names of its locals in the Lua text. */
export interface Identity {
  rules: readonly RuleText[]
  /** Index of its key in KEYS; nil if no rule of this identity is part of the request. */
  key: string
  /** The bytes of the state. */
  state: string
  /** Whether the state is as expected: empty, or exactly the records of these rules in their order, before those of reservations. */
  fits: string
  /** Set if requests reserve units of its rules. */
  reserved?: {
    /** The records of reservations in the state. */
    tail: Tail
    ttlMs: number
  }
}

/** The layout of the three integers after the tag of a record (prelude.lua). */
export const INTEGERS = 'I4I4I3'

/** How many records one call reads or writes. It is bounded because a Lua function can have at most 200 locals. */
const RECORDS_PER_CALL = 8

/**
 * Notes in the local `paused` that the identity is paused. A state with a pause never fits, so other states cost nothing.
 * @param ends the end of the pause
 */
export const notePause = (ends: string) =>
  `if ${ends} > now and ${ends} - now < HORIZON then\nadmitted, paused = false, ${ends} > (paused or 0) and ${ends} or paused\nend\n`

/**
 * Reads the state, and then runs the `read` section of each rule.
 * @param then more text for each rule
 * @param pause text for the record of a pause
 * @param settle text that runs when the rules with a settlement have been read, before `then`
 * @param latest a local that gets the latest instant at which a record of the state becomes idle, if it is as expected; `is_idle` of each rule then
 * says whether its record is
 */
export function readState(
  { rules, state, key, fits, reserved }: Identity,
  then: (rule: RuleText) => string,
  { pause = '', settle = '', latest }: { pause?: string; settle?: string; latest?: string | undefined } = {},
): string {
  const tail = reserved?.tail
  const expected = rules.filter(isExpectedInState)
  const recorded = rules.filter(({ isApart }) => !isApart)
  return [
    `${state} = ${key} and values[${key}]\n`,
    `${fits} = not ${state}\n`,
    tail ? `${tail.text}, ${tail.from}, ${tail.last} = '', 1, nil\n` : '',
    'do\n',
    ...chunked(recorded, RECORDS_PER_CALL).map(part => declareNumbers(part, '0, 0')),
    ...(recorded.length > 0 || pause
      ? [
          `if ${state} then\n`,
          readExpected(expected, state, { fits, tail }),
          `if not ${fits} and #${state} % ${RECORD_BYTES} == 0 then\n`,
          readAny(recorded, state, { pause, tail }),
          'end\nend\n',
        ]
      : []),
    ...(latest ? [`${latest} = 0\n`, ...expected.map(rule => noteIdle(rule, latest))] : []),
    ...(settle
      ? [
          ...rules.filter(({ settlement }) => settlement).map(rule => ifPresent(rule, rule.section('read'))),
          settle,
        ]
      : []),
    ...rules.map(rule =>
      ifPresent(rule, (settle && rule.settlement ? '' : rule.section('read')) + then(rule)),
    ),
    'end\n',
  ].join('')
}

const ifPresent = ({ of }: RuleText, text: string) => `if ${of('mark')} ~= ${ABSENT} then\n${text}end\n`

const raiseIdleAt = (name: string, value: string) => `if ${value} > ${name} then\n${name} = ${value}\nend\n`

const noteIdle = ({ idleAt, of }: RuleText, latest: string) =>
  `if ${idleAt} <= now or ${idleAt} - now >= HORIZON then\n${of('is_idle')} = true\nelseif ${idleAt} > ${latest} then\n${latest} = ${idleAt}\nend\n`

/** Reads all records at once, if they are those of the rules in their order. */
function readExpected(
  expected: readonly RuleText[],
  state: string,
  { fits, tail }: { fits: string; tail: Tail | undefined },
): string {
  if (expected.length === 0) return ''
  const size = expected.length * RECORD_BYTES
  const parts = chunked(expected, RECORDS_PER_CALL)
  const chunks = parts.map((part, i) => {
    const names = part.flatMap(({ ruleNumber }) => [
      `tag_at_${ruleNumber}`,
      `a_${ruleNumber}`,
      `b_${ruleNumber}`,
      `c_${ruleNumber}`,
    ])
    const at = i === 0 ? '' : `, ${i * RECORDS_PER_CALL * RECORD_BYTES + 1}`
    const records = part.map(() => `c3${INTEGERS}`).join('')
    const isOurs = part.map(({ ruleNumber, tag }) => `tag_at_${ruleNumber} == ${tag}`)
    // Reservations follow all other records, so the first byte after those of the rules is theirs.
    const isBeforeTail = tail && i === parts.length - 1
    const layout = isBeforeTail
      ? `#${state} == ${size} and '>${records}' or '>${records}I1'`
      : `'>${records}'`
    if (isBeforeTail) {
      names.push('kind')
      isOurs.push(`(#${state} == ${size} or kind >= ${RESERVED_FROM})`)
    }
    const text = [
      `local ${names.join(', ')} = unpack_integers(${layout}, ${state}${at})\n`,
      `if ${isOurs.join(' and ')} then\n`,
      ...part.map(rule => decodeRecord(rule, `_${rule.ruleNumber}`)),
      isBeforeTail
        ? `${fits}, ${tail.text}, ${tail.from}, ${tail.last} = true, ${state}, ${size + 1}, last_kind\n`
        : `${fits} = true\n`,
      'end\n',
    ].join('')
    return i === 0 ? text : `if ${fits} then\n${fits} = false\n${text}end\n`
  })
  const [first = '', ...rest] = chunks
  const all = rest.length === 0 ? first : `do\n${first}end\n${rest.join('')}`
  if (!tail) return `if #${state} == ${size} then\n${all}end\n`
  // Scripts that do not know of reservations write a pause after them.
  return `local last_kind = byte(${state}, #${state} - ${RECORD_BYTES - 1})\nif #${state} == ${size} or #${state} > ${size} and last_kind >= ${RESERVED_FROM} then\n${all}end\n`
}

/** Reads one record after the other, for any other state. If two records have the same tag, the first one counts. */
function readAny(
  rules: readonly RuleText[],
  state: string,
  { pause, tail }: { pause: string; tail: Tail | undefined },
): string {
  const again = chunked(rules, RECORDS_PER_CALL).map(part =>
    declareNumbers(part, '0, 0').replace(/^local /, ''),
  )
  const branches = rules.map(
    ({ tag, idleAt, count }) => `if tag == ${tag} then\n${idleAt}, ${count} = other_idle_at, other_n\n`,
  )
  if (pause) branches.push(`if tag == PAUSE then\n${pause}`)
  if (tail) {
    const isReserved = `${isOfReservation('tag', '1')} and other_idle_at - now < HORIZON`
    branches.push(
      `if ${isReserved} then\n${tail.text} = sub(${state}, at, at + ${RECORD_BYTES - 1}) .. ${tail.text}\n`,
    )
  }
  return [
    ...(rules.length > RECORDS_PER_CALL ? again : []),
    `for at = #${state} - ${RECORD_BYTES - 1}, 1, -${RECORD_BYTES} do\n`,
    `local tag, a, b, c = unpack_integers('>c3${INTEGERS}', ${state}, at)\n`,
    'local other_idle_at, other_n\n',
    decodeRecord({ idleAt: 'other_idle_at', count: 'other_n' }, ''),
    ...branches.map((branch, i) => (i === 0 ? branch : `else${branch}`)),
    'end\nend\n',
    tail ? `${tail.last} = byte(${tail.text}, #${tail.text} - ${RECORD_BYTES - 1})\n` : '',
  ].join('')
}

/** Computes `remaining` and `reset_after` of a rule that applies. */
export function readStanding(rule: RuleText): string {
  return ifPresent(rule, rule.section('standing'))
}

/**
 * Writes the state in one call. For the usual case: every rule of the identity has spent, and the state has no other records.
 * @param added a reservation for the state
 */
export function commitUsual({ rules, key, reserved }: Identity, added: Added | undefined): string {
  const expected = rules.filter(isExpectedInState)
  const others = rules
    .filter(rule => !isExpectedInState(rule))
    .map(rule =>
      rule.isApart && !rule.isGuess ? spendApart(rule, spendUnlessEarly(rule)) : readStanding(rule),
    )
  if (expected.length === 0) return others.length > 0 ? `if ${key} then\n${others.join('')}end\n` : ''
  const parts = chunked(expected, RECORDS_PER_CALL)
  return [
    `if ${key} then\n`,
    `local idle_at, bytes${added ? ', added' : ''} = 0\n`,
    ...parts.map((part, i) => {
      const text = packRecords(part, i === 0 ? '' : 'bytes .. ', i === parts.length - 1 ? added : undefined)
      return i === 0 ? text : `do\n${text}end\n`
    }),
    appendTail(reserved, `#bytes > ${expected.length * RECORD_BYTES}`),
    setex(`KEYS[${key}]`, 'bytes'),
    ...others,
    'end\n',
  ].join('')
}

/**
 * Adds the reservations to the `bytes` of a state, which is then kept for as long as one can last.
 * @param isReserved Lua condition under which there are reservations, if some are new: in `bytes`, and the local `added`
 */
function appendTail(reserved: Identity['reserved'], isReserved?: string): string {
  if (!reserved) return ''
  const { tail, ttlMs } = reserved
  const latest = raiseIdleAt('idle_at', `now + ${ttlMs * 1000}`)
  const addTail = `if #${tail.text} >= ${tail.from} then\nbytes = bytes .. sub(${tail.text}, ${tail.from})\n`
  if (!isReserved) return `${addTail}${latest}end\n`
  return `${addTail}end\nif added then\nbytes = bytes .. added\nend\nif ${isReserved} then\n${latest}end\n`
}

const spendUnlessEarly = (rule: RuleText) => (spendsEarly(rule) ? '' : rule.section('spend'))

/** Spends under a rule that has no record in the state, and writes its side key. */
function spendApart(rule: RuleText, spend: string): string {
  return `do\n${declareNumbers([rule])}${spend}${rule.section('standing')}${rule.section('write')}${writeSideKey(rule)}end\n`
}

/** Spends under the rules, and packs their records into `bytes`. @param added a reservation after them */
function packRecords(rules: readonly RuleText[], before: string, added: Added | undefined): string {
  const pack = (moreLayout = '', more: readonly string[] = []) => {
    const layout = `'>${rules.map(() => `c3${INTEGERS}`).join('')}${moreLayout}'`
    const values = [...rules.map(rule => `${rule.tag}, ${integers(rule)}`), ...more]
    return `bytes = ${before}pack_integers(${layout}, ${values.join(', ')})\n`
  }
  return [
    declareNumbers(rules),
    ...rules.map(rule =>
      [
        spendUnlessEarly(rule),
        rule.section('standing'),
        rule.section('write'),
        encodeRecord(rule, `_${rule.ruleNumber}`),
        raiseIdleAt('idle_at', rule.idleAt),
        writeSideKey(rule),
      ].join(''),
    ),
    added?.prepare ?? '',
    added?.layout ? `if is_added then\n${pack(added.layout, added.values)}else\n${pack()}end\n` : pack(),
  ].join('')
}

/** Writes the state in all other cases: only some rules have spent, or the state has other records. Records that are not idle are kept. */
export function commitAny(
  { rules, key, state, reserved }: Identity,
  { isSpent, spend }: { isSpent: (rule: RuleText) => string; spend: (rule: RuleText) => string },
): string {
  return [
    `if ${key} then\n`,
    "local bytes, idle_at = '', 0\n",
    ...rules.map(rule =>
      rule.isApart
        ? `if ${isSpent(rule)} then\n${spendApart(rule, spend(rule))}else${readStanding(rule)}`
        : `
if ${isSpent(rule)} then
${spend(rule)}${rule.section('standing')}${declareNumbers([rule])}${rule.section('write')}${encodeRecord(rule, `_${rule.ruleNumber}`)}bytes = bytes .. ${rule.tag} .. pack_integers('>${INTEGERS}', ${integers(rule)})
${raiseIdleAt('idle_at', rule.idleAt)}${writeSideKey(rule)}else${readStanding(rule)}`.trimStart(),
    ),
    "if bytes ~= '' then\n",
    keepOthers(state, reserved),
    setex(`KEYS[${key}]`, 'bytes'),
    'end\nend\n',
  ].join('')
}

/**
 * Adds the records of a state that are not in `bytes` and not idle, and the reservations.
 * @param orIdle Lua condition under which idle records stay, too
 */
function keepOthers(state: string, reserved: Identity['reserved'], orIdle?: string): string {
  const isActive = 'other > now and other - now < HORIZON'
  const isRule = reserved ? ` and not (${isOfReservation(state, 'at')})` : ''
  const keep = `others[#others + 1], others[tag] = string.sub(${state}, at, at + ${RECORD_BYTES - 1}), true\n`
  const raise = `if other > idle_at${orIdle ? ' and other - now < HORIZON' : ''} then\nidle_at = other\nend\n`
  return [
    reserved ? '' : `local ${KEPT_AT}\n`,
    'local others = {}\n',
    `for at = 1, ${state} and #${state} % ${RECORD_BYTES} == 0 and #${state} or 0, ${RECORD_BYTES} do\n`,
    `local a, b = unpack_integers('>I4I4', ${state}, at + 3)\n`,
    `local other = (${LAST_MS} - a * 1024 - (b - b % 4194304) / 4194304) * 1000\n`,
    `if ${orIdle ? `(${isActive} or ${orIdle})` : isActive}${isRule} then\n`,
    `local tag = string.sub(${state}, at, at + 2)\n`,
    'local found = others[tag] or string.find(bytes, tag, 1, true)\n',
    `while found and found ~= true and found % ${RECORD_BYTES} ~= 1 do\nfound = string.find(bytes, tag, found + 1, true)\nend\n`,
    `if not found then\n${reserved ? keep + raise : keepOfOthers(state, keep, raise)}end\nend\nend\n`,
    'bytes = bytes .. table.concat(others)\n',
    appendTail(reserved),
  ].join('')
}

/** A record without its tag, as if there was none: idle_at and n are 0. */
const IDLE = '\\255\\255\\255\\255\\255\\192\\0\\0\\0\\0\\0'

/**
 * Writes the state after settlements, whose idle records are dropped if a rule has settled. If it is as expected, it stays so, with the records of the other rules as they are, because other states
 * take longer to read.
 * @param changed Lua condition: whether the reservations in the state have changed
 */
export function commitSettled(
  identity: Identity,
  { changed, latest }: { changed: string; latest: string },
): string {
  const { rules, key, state, fits, reserved } = identity
  const settling = rules.filter(({ settlement }) => settlement)
  if (settling.length === 0) return ''
  const expected = rules.filter(isExpectedInState)
  const pieces = expected.map((rule, i) => {
    const record = `sub(${state}, ${i * RECORD_BYTES + 1}, ${(i + 1) * RECORD_BYTES})`
    const orIdle = `${rule.of('is_idle')} and ${rule.tag} .. '${IDLE}' or ${record}`
    return rule.settlement ? `(${rule.of('record')} or ${orIdle})` : `(${orIdle})`
  })
  return [
    `if ${key} then\n`,
    "local bytes, idle_at = '', now\n",
    ...settling.map(rule =>
      `
if ${rule.of('settled')} then
${rule.section('standing')}${declareNumbers([rule])}${rule.section('write')}${encodeRecord(rule, `_${rule.ruleNumber}`)}${rule.of('record')} = ${rule.tag} .. pack_integers('>${INTEGERS}', ${integers(rule)})
${raiseIdleAt('idle_at', rule.idleAt)}bytes = bytes .. ${rule.of('record')}
else${readStanding(rule)}`.trimStart(),
    ),
    "local has_settled = bytes ~= ''\n",
    `if ${changed} or has_settled then\n`,
    `if ${fits} and ${state} then\n`,
    `bytes = has_settled and ${pieces.join(' .. ')} or sub(${state}, 1, ${expected.length * RECORD_BYTES})\n`,
    raiseIdleAt('idle_at', latest),
    appendTail(reserved),
    'else\n',
    keepOthers(state, reserved, 'not has_settled'),
    'end\n',
    `if bytes == '' then\nredis.call('DEL', KEYS[${key}])\nelse\n${setex(`KEYS[${key}]`, 'bytes')}end\n`,
    'end\nend\n',
  ].join('')
}

/** Declares the two numbers of each record as locals of a block. If they are locals of the whole script, only assigns the values. */
function declareNumbers(rules: readonly RuleText[], values?: string): string {
  const { isBlockLocal } = rules[0]!
  const names = rules.map(({ idleAt, count }) => `${idleAt}, ${count}`).join(', ')
  const start = values ? ` = ${rules.map(() => values).join(', ')}` : ''
  return isBlockLocal ? `local ${names}${start}\n` : start && `${names}${start}\n`
}

/** The names of the two numbers of a record. */
type RecordNumbers = Pick<RuleText, 'idleAt' | 'count'>

/** Decodes a record: the integers in the locals a, b and c become `idle_at` and `n`. */
export const decodeRecord = ({ idleAt, count }: RecordNumbers, suffix: string) =>
  `
${count} = b${suffix} % 4194304
${idleAt} = (${LAST_MS} - a${suffix} * 1024 - (b${suffix} - ${count}) / 4194304) * 1000
${count} = ${count} * 16777216 + c${suffix}
`.trimStart()

/** Encodes a record: `idle_at` (a multiple of 1000) and `n` become the integers in the locals a, b and c. */
export const encodeRecord = ({ idleAt, count }: RecordNumbers, suffix: string) =>
  `
local b${suffix}, c${suffix} = (${LAST_MS} - ${idleAt} / 1000) % 1024, ${count} % 16777216
local a${suffix} = (${LAST_MS} - ${idleAt} / 1000 - b${suffix}) / 1024
b${suffix} = b${suffix} * 4194304 + (${count} - c${suffix}) / 16777216
`.trimStart()

const integers = ({ ruleNumber }: RuleText) => `a_${ruleNumber}, b_${ruleNumber}, c_${ruleNumber}`

/** Declares the life of a key, for the TTL. */
export const declareLife = (idleAt: string) => expandMacros(`local life = life_until(${idleAt})\n`)
/** The TTL as text: longer than the life, so that keys that become idle together expire apart. */
export const TTL = /* @__PURE__ */ (() => expandMacros("format('%d', spread(life))"))()

const setex = (key: string, bytes: string) =>
  `${declareLife('idle_at')}redis.call('SETEX', ${key}, ${TTL}, ${bytes})\n`

/** Writes the rule's side key, if it has one. */
export function writeSideKey({ sideKey, of, idleAt }: Pick<RuleText, 'sideKey' | 'of' | 'idleAt'>): string {
  if (!sideKey) return ''
  const key = `KEYS[${of('side_key')}]`
  return `
if ${of('side_bytes')} then
${declareLife(idleAt)}redis.call('SETEX', ${key}, ${TTL}, ${of('side_bytes')})
end
`.trimStart()
}
