/**
 * The Lua text about reservations in the state of an identity, after the records of its rules. A decision reads and writes the state anyway,
 * so a reservation there takes no command of its own. If there is no room, it is in a sorted set (reservation-text.ts).
 *
 * A reservation has two records, and one more for each further rule that has reserved. They have 14 bytes, as those of rules have
 * (prelude.lua): a script of a config without reservations, which may write the same state during a deployment, keeps them as it keeps records of other
 * rules, until the reservation has ended.
 *
 *     1 byte   128 + the upper 5 of the lower 10 bits of the end; 160 + the lower 5 of them; or from 192 on for further rules. These are no
 *              letters, as tags have
 *     2 bytes  a part of the reservationId
 *     4 bytes  the upper 32 bits of the end, as in `idle_at`, less one: such a script decodes an instant after the end. In the second record
 *              less another part of the reservationId
 *     7 bytes  `spent_at`; or the family of a rule, and its units
 *
 * If there was no room, another record follows: 224, and when reservations may be added again.
 *
 * So a reservation is found by the time of its decision, by the clock of the store, and almost 40 bits of its id.
 */
import { literal, nameInLiteral } from './lua-text.ts'
import type { RuleText } from './rule-text.ts'
import { BASE, FIRST_DIGIT, ID_LETTERS } from './settle-along.ts'

/** Bytes of a record (prelude.lua). */
export const RECORD_BYTES = 14
/** The instant in May 2109 from which `idle_at` is counted backwards (ms). */
export const LAST_MS = 2 ** 42 - 1

/** The first byte of a record, by its place in the reservation. The third and the following are those of further rules. */
const FIRST = 128
const SECOND = 160
const THIRD = 192
/** The first byte of a record without a reservation. While it is the last one, new reservations go to the set. */
const CLOSED = 224

/**
 * The most bytes of reservations in a state, and how long after that new ones go to the set (ms). Each decision copies them, so many requests at
 * once cost more there than in the set, in particular if some have no room.
 */
const MAX_BYTES = 24 * 2 * RECORD_BYTES
const CLOSED_MS = 10_000

/** From here on, a number takes more than three or four bytes. */
const [THREE_BYTES, FOUR_BYTES] = [2 ** 24, 2 ** 32]

/** The records of reservations in a state: those of a Lua string from an index on. */
export interface Tail {
  /** Lua locals. */
  text: string
  from: string
  /** The first byte of the last record in the state. */
  last: string
}

/** Lua expression of a number from its digits (settle-along.ts). @param digits locals with their characters */
export const fromDigits = ([first, ...others]: readonly string[]): string =>
  `${others.reduce((value, digit, i) => `${i > 0 ? `(${value})` : value} * ${BASE} + ${digit}`, first!)} - ${others.reduce(offset => offset * BASE + FIRST_DIGIT, FIRST_DIGIT)}`

/**
 * Sets the two parts of an id that are in its records, `number` and `rest`. Of its last seven letters, the very last counts only by its remainder by 11.
 * @param letters Lua arguments of `byte` for these letters
 * @param numbers that follow the letters and are set too, by their number of digits
 */
function idParts(letters: string, numbers: Numbers = {}): string {
  const digits = Object.entries(numbers).map(([name, count]) => ({ name, of: digitsNamed(name, count) }))
  const all = ['a', 'b', 'c', 'd', 'e', 'f', 'g', ...digits.flatMap(({ of }) => of)]
  return `
do
local ${all.join(', ')} = byte(${letters})
number = (${fromDigits(['a', 'b'])}) * 11 + g % 11
rest = ${fromDigits(['c', 'd', 'e', 'f'])}
${digits.map(({ name, of }) => `${name} = ${fromDigits(of)}\n`).join('')}end
`.trimStart()
}

/** Numbers of digits, by the names of Lua locals. */
type Numbers = Readonly<Record<string, number>>

export const digitsNamed = (name: string, count: number) =>
  Array.from({ length: count }, (_, i) => `${name}${i}`)

/** Sets the parts of the end of a reservation that is made or renewed now. */
const endParts = (ttlMs: number) =>
  `
high = ${literal(LAST_MS - ttlMs)} - (now - now % 1000) / 1000
low = high % 1024
high = (high - low) / 1024 - 1
lowest = low % 32
`.trimStart()
const FIRST_BYTE = `${FIRST} + (low - lowest) / 32`
const SECOND_BYTE = `${SECOND} + lowest`

/** The first three bytes of a record as one number, because each field of a layout takes a tenth of a microsecond. */
const withNumber = (firstByte: string | number) => `(${firstByte}) * 65536 + number`

/** The end of a reservation (ms). */
const END = `(${LAST_MS - 1024 + FIRST * 32 + SECOND} - high * 1024 - first * 32 - second)`

const isBetween = (name: string, from: number, to: number) => `${name} >= ${from} and ${name} < ${to}`

/** From this first byte on, a record is one of reservations. */
export const RESERVED_FROM = FIRST

/** Lua condition: whether the record that begins at `at` in a state belongs to a reservation. */
export const isOfReservation = (state: string, at: string) => `byte(${state}, ${at}) >= ${FIRST}`

/** A Lua local of `keepOfOthers`: where the last record was that it has kept. */
export const KEPT_AT = 'kept_at'

/**
 * Keeps the record at `at` in a script whose config reserves nothing. An earlier config may have: of the records of a reservation, only the first
 * one has an instant, when it ends, and the others stay as long as that one.
 * @param keep Lua text that keeps a record, @param raise and keeps the state until its instant
 */
export const keepOfOthers = (state: string, keep: string, raise: string) =>
  `
local first = string.byte(${state}, at)
if first < ${SECOND} or first >= ${CLOSED} then
${KEPT_AT} = at
${keep}${raise}elseif ${KEPT_AT} == at - ${RECORD_BYTES} then
${KEPT_AT} = at
${keep}end
`.trimStart()

/** The end of such a time (ms). @param high Lua expression with one value */
const closedUntil = (high: string) => `${LAST_MS} - (${high}) * 1024`

/** A new reservation: records that are written together with those of the rules, before earlier reservations. */
export interface Added {
  /** Lua text that sets `is_added`, and the locals of the values; else `added` to a record for the end of the state, if there is one. */
  prepare: string
  layout: string
  values: readonly string[]
}

/**
 * Adds a reservation of all rules.
 * @param reserved Lua text that runs before, @param whenFull and after, if there is no room
 */
export function addToTail(
  { text, from, last }: Tail,
  rules: readonly RuleText[],
  { ttlMs, reserved, whenFull }: { ttlMs: number; reserved: string; whenFull: string },
): Added {
  const isSmall = rules.map(({ of }) => `${of('cost')} < ${FOUR_BYTES}`)
  const further = rules.flatMap(({ of, family }, i) => {
    const [firstByte, high] =
      i === 0 ? [SECOND_BYTE, 'high - rest'] : [THIRD + (i % (CLOSED - THIRD)), 'high']
    return [withNumber(firstByte), high, literal(family), of('cost')]
  })
  const prepare = `
local is_open = true
if ${last} == ${CLOSED} and #${text} >= ${from} then
is_open = ${closedUntil(`unpack_integers('>I4', ${text}, #${text} - ${RECORD_BYTES - 4})`)} <= now / 1000
if is_open then
${text}, ${from} = sub(${text}, ${from}, #${text} - ${RECORD_BYTES}), 1
end
end
if is_open and #${text} - ${from} >= ${MAX_BYTES - 1} then
is_open = false
local low = (${LAST_MS - CLOSED_MS} - (now - now % 1000) / 1000) % 1024
added = pack_integers('>I1I2I4I3I4', ${CLOSED}, 0, (${LAST_MS - CLOSED_MS} - (now - now % 1000) / 1000 - low) / 1024, 0, 0)
end
is_added = is_open and #reservation >= ${ID_LETTERS} and ${isSmall.join(' and ')}
if is_added then
${idParts('reservation, 6, 12')}${endParts(ttlMs)}early = now % ${THREE_BYTES}
else
${whenFull}end
`.trimStart()
  return {
    prepare: `local is_added, number, rest, high, low, lowest, early\nif reservation ~= '' then\n${reserved}${prepare}end\n`,
    layout: `I3I4I3I4${'I3I4c3I4'.repeat(rules.length)}`,
    values: [...[withNumber(FIRST_BYTE), 'high', 'early', `(now - early) / ${THREE_BYTES}`], ...further],
  }
}

/** What to look for. */
interface Search {
  /** Lua arguments of `byte` for the last seven letters of the id, and for `numbers`. */
  letters: string
  /** Numbers that follow the letters, and are read with them. With `time`, a record is only found if it has these lower bits. */
  numbers?: Numbers
  /** Lua condition under which a reservation with this id is the one, from `spent`, its lower bits `early`, when it `ends`, and the `units` of each rule. */
  isSame: string
  /** The Lua table of reservations that this script has removed. Absent: none of those from `from` on. */
  removed?: string
}

/**
 * Finds a reservation. The first one is tried before a search, as there are often no others.
 * @returns text that sets `found`, the index of its first record, or nil if it is not there or has ended; `last`, the index after its records;
 * `spent`, when it was made; and the local `units` of each rule
 */
export function findInTail(
  { text, from }: Tail,
  rules: readonly RuleText[],
  { letters, numbers = {}, isSame, removed }: Search,
): string {
  const none = rules.map(({ of }) => `${of('units')} = 0\n`).join('')
  const branches = rules.map(
    ({ of, family }) => `if family == '${nameInLiteral(family)}' then\n${of('units')} = units\nelse`,
  )
  const isThere = removed ? ` and not ${removed}[found]` : ''
  const locals = ['number', 'rest', 'needle', ...Object.keys(numbers)]
  return `local ${locals.join(', ')}
${idParts(letters, numbers)}found = ${from}
while found do
if (found - ${from}) % ${RECORD_BYTES} == 0 and #${text} >= found + ${2 * RECORD_BYTES - 1}${isThere} then
local head, high, early, late, second, other, family, units = unpack_integers('>I3I4I3I4I3I4c3I4', ${text}, found)
if high - other == rest and (head - number) % 65536 == 0${numbers.time ? ' and early == time' : ''} then
local first, has_others = (head - number) / 65536
second = (second - number) / 65536
spent, last = late * ${THREE_BYTES} + early, found + ${2 * RECORD_BYTES}
${none}while units do
${branches.join('')}
has_others = true
end
local third = #${text} >= last and byte(${text}, last) or 0
units = ${isBetween('third', THIRD, CLOSED)}
if units then
family, units = unpack_integers('>c3I4', ${text}, last + 7)
last = last + ${RECORD_BYTES}
end
end
local ends = ${END}
if ${isBetween('first', FIRST, SECOND)} and ${isBetween('second', SECOND, THIRD)} and ends > now / 1000 and ${isSame} then
break
end
end
end
needle = needle or pack_integers('>I2', number)
found = find(${text}, needle, found + 2, true)
found = found and found - 1
end
`.trimStart()
}

/** Moves the end of the reservation at `found` to one ttl from now. */
export const renewInTail = ({ text }: Tail, ttlMs: number) =>
  `
do
local high, low, lowest
${endParts(ttlMs)}local before, other = unpack_integers('>I4', ${text}, found + 3), unpack_integers('>I4', ${text}, found + 17)
local records = pack_integers('>I1', ${FIRST_BYTE}) .. sub(${text}, found + 1, found + 2) .. pack_integers('>I4', high) .. sub(${text}, found + 7, found + 13)
records = records .. pack_integers('>I1', ${SECOND_BYTE}) .. sub(${text}, found + 15, found + 16) .. pack_integers('>I4', high - before + other)
for from = found + 21, last - 1, ${RECORD_BYTES} do
records = records .. (from + 9 < last and sub(${text}, from, from + 9) .. pack_integers('>I4', high) or sub(${text}, from, last - 1))
end
${text} = sub(${text}, 1, found - 1) .. records .. sub(${text}, last)
end
`.trimStart()

/** Marks reservations that have ended as removed, and whatever is not whole. @param changed Lua text if there are any */
export const removeEnded = ({ text, from }: Tail, removed: string, changed: string) =>
  `
local at = ${from}
while at <= #${text} do
local last, is_over, first, second = at + ${RECORD_BYTES}, true, byte(${text}, at), byte(${text}, at + ${RECORD_BYTES}) or 0
if first < ${SECOND} and ${isBetween('second', SECOND, THIRD)} then
local high = unpack_integers('>I4', ${text}, at + 3)
is_over = ${END} <= now / 1000
local third
repeat
last = last + ${RECORD_BYTES}
third = byte(${text}, last) or 0
until not (${isBetween('third', THIRD, CLOSED)})
elseif first == ${CLOSED} then
local high = unpack_integers('>I4', ${text}, at + 3)
is_over = ${closedUntil('high')} <= now / 1000
end
if is_over and not ${removed}[at] then
${removed}[at] = last
${changed}end
at = last
end
`.trimStart()

/** Leaves out what is marked as removed: by the index of its first record, the index after it. */
export const rebuildTail = ({ text, from }: Tail, removed: string) =>
  `
local kept, since = '', ${from}
for at = ${from}, #${text}, ${RECORD_BYTES} do
if ${removed}[at] then
kept = kept .. sub(${text}, since, at - 1)
since = ${removed}[at]
end
end
${text}, ${from} = kept .. sub(${text}, since), 1
`.trimStart()

/**
 * Appends the reservations in a state to the list `found`, as they are in the set: `<id> <spent_at> <family>=<units> …`, without the id.
 * @param now Lua expression (ms). Those that have ended are left out
 */
export const readTail = (state: string, now: string) =>
  `
local function number(at, bytes)
local value = 0
for i = at, at + bytes - 1 do
value = value * 256 + string.byte(${state}, i)
end
return value
end
for at = 1, #${state} % ${RECORD_BYTES} == 0 and #${state} - ${2 * RECORD_BYTES - 1} or 0, ${RECORD_BYTES} do
local first, second, high = string.byte(${state}, at), string.byte(${state}, at + ${RECORD_BYTES}), number(at + 3, 4)
if ${isBetween('first', FIRST, SECOND)} and ${isBetween('second', SECOND, THIRD)} and ${END} > ${now} then
local text, place = string.format('- %.0f', number(at + 10, 4) * ${THREE_BYTES} + number(at + 7, 3)), at + ${RECORD_BYTES}
repeat
text = text .. ' ' .. string.sub(${state}, place + 7, place + 9) .. '=' .. string.format('%.0f', number(place + 10, 4))
place = place + ${RECORD_BYTES}
local third = string.byte(${state}, place) or 0
until not (${isBetween('third', THIRD, CLOSED)})
found[#found + 1] = text
end
end
`.trimStart()
