/**
 * The Lua text about reservations in the state of an identity, after the records of its rules. A decision reads and writes the state anyway,
 * so a reservation there takes no command of its own. If there is no room, it is in a sorted set (reservation-text.ts).
 *
 * A reservation has two records, and one more for each further rule that has reserved. They have 14 bytes, as those of rules have
 * (prelude.lua): a script of a config without reservations, which may write the same state during a deployment, takes them for records of other
 * rules, and keeps them until the reservation has ended.
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
import { ID_LETTERS } from './settle-along.ts'

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
}

/**
 * Declares the two parts of an id that are in its records: the last seven letters, which are in a range of 75 characters, of the very last
 * only the remainder by 11.
 * @param letters Lua arguments of `byte` for these letters
 */
const declareId = (letters: string) => `
local a, b, c, d, e, f, g = byte(${letters})
local number = (a * 75 + b - ${48 * 76}) * 11 + g % 11
local rest = ((c * 75 + d) * 75 + e) * 75 + f - ${48 * (1 + 75 + 75 ** 2 + 75 ** 3)}
`

/** Declares the parts of the end of a reservation that is made or renewed now. */
const declareEnd = (ttlMs: number) => `
local high = ${literal(LAST_MS - ttlMs)} - (now - now % 1000) / 1000
local low = high % 1024
high = (high - low) / 1024 - 1
local lowest = low % 32
`
const FIRST_BYTE = `${FIRST} + (low - lowest) / 32`
const SECOND_BYTE = `${SECOND} + lowest`

/** The end of a reservation (ms). */
const END = `(${LAST_MS} - (high + 1) * 1024 - (first - ${FIRST}) * 32 - (second - ${SECOND}))`

const isBetween = (name: string, from: number, to: number) => `${name} >= ${from} and ${name} < ${to}`

/** Lua condition: whether the record that begins at `at` in a state belongs to a reservation. */
export const isOfReservation = (state: string, at: string) => `byte(${state}, ${at}) >= ${FIRST}`

/** The end of such a time (ms). @param high Lua expression with one value */
const closedUntil = (high: string) => `${LAST_MS} - (${high}) * 1024`

/**
 * Sets `added` to the records of a reservation of all rules.
 * @param whenFull Lua text if there is no room
 */
export function addToTail(
  { text, from }: Tail,
  rules: readonly RuleText[],
  { ttlMs, whenFull }: { ttlMs: number; whenFull: string },
): string {
  const isSmall = rules.map(({ of }) => `${of('cost')} < ${FOUR_BYTES}`)
  const values = rules.flatMap(({ of, family }, i) => {
    const tag =
      i === 0 ? [SECOND_BYTE, 'number', 'high - rest'] : [THIRD + (i % (CLOSED - THIRD)), 'number', 'high']
    return [...tag, literal(family), of('cost')]
  })
  return `
local is_open = true
if #${text} >= ${from} and byte(${text}, #${text} - ${RECORD_BYTES - 1}) == ${CLOSED} then
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
if is_open and #reservation == ${ID_LETTERS} and ${isSmall.join(' and ')} then${declareId('reservation, 6, 12')}${declareEnd(ttlMs)}local early = now % ${THREE_BYTES}
added = pack_integers('>I1I2I4I3I4${'I1I2I4c3I4'.repeat(rules.length)}', ${FIRST_BYTE}, number, high, early, (now - early) / ${THREE_BYTES}, ${values.join(', ')})
else
${whenFull}end
`.trimStart()
}

/** What to look for. */
interface Search {
  /** Lua arguments of `byte` for the last seven letters of the id. */
  letters: string
  /** Lua condition under which a reservation with this id is the one, from `spent`, its lower bits `early`, and the `units` of each rule. */
  isSame: string
  /** The Lua table of reservations that this script has removed. Absent: it has removed no reservation. */
  removed?: string
  /** Lua expression of when it was made, and condition under which that is known. It is found faster with it, if there are many. Absent: it is unknown. */
  spentAt?: { text: string; isKnown: string }
}

/**
 * Finds a reservation.
 * @returns text that sets `found`, the index of its first record, or nil if it is not there or has ended; `last`, the index after its records;
 * `spent`, when it was made; and the local `units` of each rule
 */
export function findInTail(
  { text, from }: Tail,
  rules: readonly RuleText[],
  { letters, isSame, removed, spentAt }: Search,
): string {
  const none = rules.map(({ of }) => `${of('units')} = 0\n`).join('')
  const branches = rules.map(
    ({ of, family }) => `if family == '${nameInLiteral(family)}' then\n${of('units')} = units\nelse`,
  )
  const byId = "needle, before = pack_integers('>I2', number), 1\n"
  const byTime =
    spentAt &&
    `
if ${spentAt.isKnown} then
spent = ${spentAt.text}
local early = spent % ${THREE_BYTES}
needle, before = pack_integers('>I3I4', early, (spent - early) / ${THREE_BYTES}), 7
else
${byId}end
`.trimStart()
  const isThere = removed ? ` and not ${removed}[found]` : ''
  return `${declareId(letters)}local needle, before, has_others
${byTime ?? byId}local place = find(${text}, needle, ${from}, true)
while place do
found = place - before
if (found - ${from}) % ${RECORD_BYTES} == 0 and #${text} >= found + ${2 * RECORD_BYTES - 1}${isThere} then
local first, own, high, early, late, second, _, other, family, units = unpack_integers('>I1I2I4I3I4I1I2I4c3I4', ${text}, found)
if ${isBetween('first', FIRST, SECOND)} and ${isBetween('second', SECOND, THIRD)} and own == number and high - other == rest then
spent, last = late * ${THREE_BYTES} + early, found + ${2 * RECORD_BYTES}
${none}while units do
${branches.join('')}
has_others = true
end
local third = byte(${text}, last) or 0
units = ${isBetween('third', THIRD, CLOSED)}
if units then
family, units = unpack_integers('>c3I4', ${text}, last + 7)
last = last + ${RECORD_BYTES}
end
end
local ends = ${END}
if ends > now / 1000 and ${isSame} then
break
end
end
end
found = nil
place = find(${text}, needle, place + 1, true)
end
`.trimStart()
}

/** Moves the end of the reservation at `found` to one ttl from now. */
export const renewInTail = ({ text }: Tail, ttlMs: number) =>
  `
do${declareEnd(ttlMs)}local before, other = unpack_integers('>I4', ${text}, found + 3), unpack_integers('>I4', ${text}, found + 17)
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
