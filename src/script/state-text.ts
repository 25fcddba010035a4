/** The Lua text that reads and writes the state of an identity. prelude.lua describes the format. */
import { chunked } from '../chunked.ts'
import { ABSENT } from './constants.ts'
import { expandMacros } from './lua-text.ts'
import { isExpectedInState, type RuleText } from './rule-text.ts'

/** The rules that share one state, and the names of its locals in the Lua text. */
export interface Identity {
  rules: readonly RuleText[]
  /** Index of its key in KEYS; nil if no rule of this identity is part of the request. */
  key: string
  /** The bytes of the state. */
  state: string
  /** Whether the state is as expected: empty, or exactly the records of these rules in their order. */
  fits: string
}

/** Bytes of a record, and the layout of the three integers after its tag (prelude.lua). */
export const RECORD_BYTES = 14
export const INTEGERS = 'I4I4I3'
/** The instant in May 2109 from which `idle_at` is counted backwards (ms). */
export const LAST_MS = 2 ** 42 - 1

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
 */
export function readState(
  { rules, state, key, fits }: Identity,
  then: (rule: RuleText) => string,
  pause = '',
): string {
  const expected = rules.filter(isExpectedInState)
  const recorded = rules.filter(({ isApart }) => !isApart)
  return [
    `${state} = ${key} and values[${key}]\n`,
    `${fits} = not ${state}\n`,
    'do\n',
    ...chunked(recorded, RECORDS_PER_CALL).map(part => declareNumbers(part, '0, 0')),
    ...(recorded.length > 0 || pause
      ? [
          `if ${state} then\n`,
          readExpected(expected, state, fits),
          `if not ${fits} and #${state} % ${RECORD_BYTES} == 0 then\n`,
          readAny(recorded, state, pause),
          'end\nend\n',
        ]
      : []),
    ...rules.map(
      rule => `if ${rule.of('mark')} ~= ${ABSENT} then\n${rule.section('read')}${then(rule)}end\n`,
    ),
    'end\n',
  ].join('')
}

/** Reads all records at once, if they are those of the rules in their order. */
function readExpected(expected: readonly RuleText[], state: string, fits: string): string {
  if (expected.length === 0) return ''
  const chunks = chunked(expected, RECORDS_PER_CALL).map((part, i) => {
    const names = part.flatMap(({ ruleNumber }) => [
      `tag_at_${ruleNumber}`,
      `a_${ruleNumber}`,
      `b_${ruleNumber}`,
      `c_${ruleNumber}`,
    ])
    const at = i === 0 ? '' : `, ${i * RECORDS_PER_CALL * RECORD_BYTES + 1}`
    const layout = `'>${part.map(() => `c3${INTEGERS}`).join('')}'`
    const isOurs = part.map(({ ruleNumber, tag }) => `tag_at_${ruleNumber} == ${tag}`).join(' and ')
    const text = [
      `local ${names.join(', ')} = unpack_integers(${layout}, ${state}${at})\n`,
      `if ${isOurs} then\n`,
      ...part.map(rule => decodeRecord(rule, `_${rule.ruleNumber}`)),
      `${fits} = true\n`,
      'end\n',
    ].join('')
    return i === 0 ? text : `if ${fits} then\n${fits} = false\n${text}end\n`
  })
  const [first = '', ...rest] = chunks
  const all = rest.length === 0 ? first : `do\n${first}end\n${rest.join('')}`
  return `if #${state} == ${expected.length * RECORD_BYTES} then\n${all}end\n`
}

/** Reads one record after the other, for any other state. If two records have the same tag, the first one counts. */
function readAny(rules: readonly RuleText[], state: string, pause: string): string {
  const again = chunked(rules, RECORDS_PER_CALL).map(part =>
    declareNumbers(part, '0, 0').replace(/^local /, ''),
  )
  const branches = [
    ...rules.map(
      ({ tag, idleAt, count }) => `if tag == ${tag} then\n${idleAt}, ${count} = other_idle_at, other_n\n`,
    ),
    ...(pause ? [`if tag == PAUSE then\n${pause}`] : []),
  ]
  return [
    ...(rules.length > RECORDS_PER_CALL ? again : []),
    `for at = #${state} - ${RECORD_BYTES - 1}, 1, -${RECORD_BYTES} do\n`,
    `local tag, a, b, c = unpack_integers('>c3${INTEGERS}', ${state}, at)\n`,
    'local other_idle_at, other_n\n',
    decodeRecord({ idleAt: 'other_idle_at', count: 'other_n' }, ''),
    ...branches.map((branch, i) => (i === 0 ? branch : `else${branch}`)),
    'end\nend\n',
  ].join('')
}

/** Computes `remaining` and `reset_after` of a rule that applies. */
export function readStanding(rule: RuleText): string {
  return `if ${rule.of('mark')} ~= ${ABSENT} then\n${rule.section('standing')}end\n`
}

/** Writes the state in one call. For the usual case: every rule of the identity has spent, and the state has no other records. */
export function commitUsual({ rules, key }: Identity): string {
  const expected = rules.filter(isExpectedInState)
  const others = rules
    .filter(rule => !isExpectedInState(rule))
    .map(rule =>
      rule.isApart && !rule.isGuess ? spendApart(rule, rule.section('spend')) : readStanding(rule),
    )
  if (expected.length === 0) return others.length > 0 ? `if ${key} then\n${others.join('')}end\n` : ''
  const [first = [], ...rest] = chunked(expected, RECORDS_PER_CALL)
  return [
    `if ${key} then\n`,
    'local idle_at, bytes = 0\n',
    packRecords(first, ''),
    ...rest.map(part => `do\n${packRecords(part, 'bytes .. ')}end\n`),
    setex(`KEYS[${key}]`, 'bytes'),
    ...others,
    'end\n',
  ].join('')
}

/** Spends under a rule that has no record in the state, and writes its side key. */
function spendApart(rule: RuleText, spend: string): string {
  return `do\n${declareNumbers([rule])}${spend}${rule.section('standing')}${rule.section('write')}${writeSideKey(rule)}end\n`
}

/** Spends under the rules, and packs their records into `bytes`. */
function packRecords(rules: readonly RuleText[], before: string): string {
  const layout = `'>${rules.map(() => `c3${INTEGERS}`).join('')}'`
  const values = rules.map(rule => `${rule.tag}, ${integers(rule)}`).join(', ')
  return [
    declareNumbers(rules),
    ...rules.map(rule =>
      [
        rule.section('spend'),
        rule.section('standing'),
        rule.section('write'),
        encodeRecord(rule, `_${rule.ruleNumber}`),
        `if ${rule.idleAt} > idle_at then\nidle_at = ${rule.idleAt}\nend\n`,
        writeSideKey(rule),
      ].join(''),
    ),
    `bytes = ${before}pack_integers(${layout}, ${values})\n`,
  ].join('')
}

/** A rule that never spends in this script. */
export const NEVER = 'false'

/** Writes the state in all other cases: only some rules have spent, or the state has other records. Records that are not idle are kept. */
export function commitAny(
  { rules, key, state }: Identity,
  { isSpent, spend }: { isSpent: (rule: RuleText) => string; spend: (rule: RuleText) => string },
): string {
  const unspent = rules.filter(rule => isSpent(rule) === NEVER)
  const standings = unspent.map(readStanding).join('')
  const spending = rules.filter(rule => isSpent(rule) !== NEVER)
  if (spending.length === 0) return standings && `if ${key} then\n${standings}end\n`
  return [
    `if ${key} then\n`,
    standings,
    "local bytes, idle_at = '', 0\n",
    ...spending.map(rule =>
      rule.isApart
        ? `if ${isSpent(rule)} then\n${spendApart(rule, spend(rule))}else${readStanding(rule)}`
        : `
if ${isSpent(rule)} then
${spend(rule)}${rule.section('standing')}${declareNumbers([rule])}${rule.section('write')}${encodeRecord(rule, `_${rule.ruleNumber}`)}bytes = bytes .. ${rule.tag} .. pack_integers('>${INTEGERS}', ${integers(rule)})
if ${rule.idleAt} > idle_at then
idle_at = ${rule.idleAt}
end
${writeSideKey(rule)}else${readStanding(rule)}`.trimStart(),
    ),
    "if bytes ~= '' then\n",
    `for at = 1, ${state} and #${state} % ${RECORD_BYTES} == 0 and #${state} or 0, ${RECORD_BYTES} do\n`,
    `local a, b = unpack_integers('>I4I4', ${state}, at + 3)\n`,
    `local other = (${LAST_MS} - a * 1024 - (b - b % 4194304) / 4194304) * 1000\n`,
    `if other > now and other - now < HORIZON then\n`,
    `local tag = string.sub(${state}, at, at + 2)\n`,
    'local found = string.find(bytes, tag, 1, true)\n',
    `while found and found % ${RECORD_BYTES} ~= 1 do\nfound = string.find(bytes, tag, found + 1, true)\nend\n`,
    `if not found then\nbytes = bytes .. string.sub(${state}, at, at + ${RECORD_BYTES - 1})\n`,
    'if other > idle_at then\nidle_at = other\nend\nend\nend\nend\n',
    setex(`KEYS[${key}]`, 'bytes'),
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
