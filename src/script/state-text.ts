/** Lua text that reads the state of an identity and writes it. The format is in prelude.lua. */
import { ABSENT } from './constants.ts'
import { chunked, isExpected, type RuleText } from './rule-text.ts'

/** The rules that share one state, and the locals that the text has for it. */
export interface Identity {
  places: readonly RuleText[]
  /** Its place among the keys; nil where it is not asked about. */
  key: string
  /** Its bytes. */
  state: string
  /** The state is as expected: the records of these rules in their order, or nothing at all. */
  fits: string
}

/** Bytes of a record, and how its three integers lie after the tag (prelude.lua). */
const RECORD = 14
const INTEGERS = 'I4I4I3'
/** Milliseconds at the end of 2109, from which idle_at is counted backwards. */
const LAST_MS = 2 ** 42 - 1

/** Records that are read or written by one call: Lua has 200 locals for a function. */
const CHUNK = 8

/** From the bytes of a state to what each of its rules makes of it. */
export function readState({ places, state, key, fits }: Identity, then: (place: RuleText) => string): string {
  const expected = places.filter(isExpected)
  const recorded = places.filter(({ isApart }) => !isApart)
  return [
    `${state} = ${key} and values[${key}]\n`,
    `${fits} = not ${state}\n`,
    'do\n',
    ...chunked(recorded, CHUNK).map(part => declared(part, '0, 0')),
    ...(recorded.length > 0
      ? [
          `if ${state} then\n`,
          readExpected(expected, state, fits),
          `if not ${fits} and #${state} % ${RECORD} == 0 then\n`,
          readAny(recorded, state),
          'end\nend\n',
        ]
      : []),
    ...places.map(
      place => `if ${place.of('mark')} ~= ${ABSENT} then\n${place.section('read')}${then(place)}end\n`,
    ),
    'end\n',
  ].join('')
}

/** All records at once, where they are those of the rules, in their order. */
function readExpected(expected: readonly RuleText[], state: string, fits: string): string {
  if (expected.length === 0) return ''
  const chunks = chunked(expected, CHUNK).map((part, i) => {
    const names = part.flatMap(({ n }) => [`tag_at_${n}`, `a_${n}`, `b_${n}`, `c_${n}`])
    const at = i === 0 ? '' : `, ${i * CHUNK * RECORD + 1}`
    const layout = `'>${part.map(() => `c3${INTEGERS}`).join('')}'`
    const isOurs = part.map(({ n, tag }) => `tag_at_${n} == ${tag}`).join(' and ')
    const text = [
      `local ${names.join(', ')} = unpack_integers(${layout}, ${state}${at})\n`,
      `if ${isOurs} then\n`,
      ...part.map(place => decoded(place, `_${place.n}`)),
      `${fits} = true\n`,
      'end\n',
    ].join('')
    return i === 0 ? text : `if ${fits} then\n${fits} = false\n${text}end\n`
  })
  const [first = '', ...rest] = chunks
  const all = rest.length === 0 ? first : `do\n${first}end\n${rest.join('')}`
  return `if #${state} == ${expected.length * RECORD} then\n${all}end\n`
}

/** One record after the other, for a state with others than those. Of two with one tag the first counts. */
function readAny(places: readonly RuleText[], state: string): string {
  const again = chunked(places, CHUNK).map(part => declared(part, '0, 0').replace(/^local /, ''))
  const branches = places.map(
    ({ tag, idleAt, count }) => `if tag == ${tag} then\n${idleAt}, ${count} = other_idle_at, other_n\n`,
  )
  return [
    ...(places.length > CHUNK ? again : []),
    `for at = #${state} - ${RECORD - 1}, 1, -${RECORD} do\n`,
    `local tag, a, b, c = unpack_integers('>c3${INTEGERS}', ${state}, at)\n`,
    'local other_idle_at, other_n\n',
    decoded({ idleAt: 'other_idle_at', count: 'other_n' }, ''),
    ...branches.map((branch, i) => (i === 0 ? branch : `else${branch}`)),
    'end\nend\n',
  ].join('')
}

/** How a rule stands, where it applies. */
export function standingOf(place: RuleText): string {
  return `if ${place.of('mark')} ~= ${ABSENT} then\n${place.section('standing')}end\n`
}

/** Every rule of the identity has spent, and its state holds nothing else: written by one call. */
export function commitUsual({ places, key }: Identity): string {
  const expected = places.filter(isExpected)
  const others = places
    .filter(place => !isExpected(place))
    .map(place =>
      place.isApart && !place.isGuess ? spentApart(place, place.section('spend')) : standingOf(place),
    )
  if (expected.length === 0) return others.length > 0 ? `if ${key} then\n${others.join('')}end\n` : ''
  const [first = [], ...rest] = chunked(expected, CHUNK)
  return [
    `if ${key} then\n`,
    'local idle_at, bytes = 0\n',
    packed(first, ''),
    ...rest.map(part => `do\n${packed(part, 'bytes .. ')}end\n`),
    setex(`KEYS[${key}]`, 'bytes'),
    ...others,
    'end\n',
  ].join('')
}

/** A rule without a record spends and writes its own key. */
function spentApart(place: RuleText, spend: string): string {
  return `do\n${declared([place])}${spend}${place.section('standing')}${place.section('write')}${ownWritten(place)}end\n`
}

/** Spends, and packs the records into `bytes`. */
function packed(places: readonly RuleText[], before: string): string {
  const layout = `'>${places.map(() => `c3${INTEGERS}`).join('')}'`
  const values = places.map(place => `${place.tag}, ${integers(place)}`).join(', ')
  return [
    declared(places),
    ...places.map(place =>
      [
        place.section('spend'),
        place.section('standing'),
        place.section('write'),
        encoded(place),
        `if ${place.idleAt} > idle_at then\nidle_at = ${place.idleAt}\nend\n`,
        ownWritten(place),
      ].join(''),
    ),
    `bytes = ${before}pack_integers(${layout}, ${values})\n`,
  ].join('')
}

/** Some have spent, or the state holds more than is expected: what still means something is kept. */
export function commitAny(
  { places, key, state }: Identity,
  { isSpent, spend }: { isSpent: (place: RuleText) => string; spend: (place: RuleText) => string },
): string {
  return [
    `if ${key} then\n`,
    "local bytes, idle_at = '', 0\n",
    ...places.map(place =>
      place.isApart
        ? `if ${isSpent(place)} then\n${spentApart(place, spend(place))}else${standingOf(place)}`
        : `
if ${isSpent(place)} then
${spend(place)}${place.section('standing')}${declared([place])}${place.section('write')}${encoded(place)}bytes = bytes .. ${place.tag} .. pack_integers('>${INTEGERS}', ${integers(place)})
if ${place.idleAt} > idle_at then
idle_at = ${place.idleAt}
end
${ownWritten(place)}else${standingOf(place)}`.trimStart(),
    ),
    "if bytes ~= '' then\n",
    `for at = 1, ${state} and #${state} % ${RECORD} == 0 and #${state} or 0, ${RECORD} do\n`,
    `local a, b = unpack_integers('>I4I4', ${state}, at + 3)\n`,
    `local other = (${LAST_MS} - a * 1024 - (b - b % 4194304) / 4194304) * 1000\n`,
    `if other > now and other - now < HORIZON then\n`,
    `local tag = string.sub(${state}, at, at + 2)\n`,
    'local found = string.find(bytes, tag, 1, true)\n',
    `while found and found % ${RECORD} ~= 1 do\nfound = string.find(bytes, tag, found + 1, true)\nend\n`,
    `if not found then\nbytes = bytes .. string.sub(${state}, at, at + ${RECORD - 1})\n`,
    'if other > idle_at then\nidle_at = other\nend\nend\nend\nend\n',
    setex(`KEYS[${key}]`, 'bytes'),
    'end\nend\n',
  ].join('')
}

/** The two numbers of each record, as locals of a block; nothing where they are locals of the whole script. */
function declared(places: readonly RuleText[], values?: string): string {
  const { isBlockLocal } = places[0]!
  const names = places.map(({ idleAt, count }) => `${idleAt}, ${count}`).join(', ')
  const start = values ? ` = ${places.map(() => values).join(', ')}` : ''
  return isBlockLocal ? `local ${names}${start}\n` : start && `${names}${start}\n`
}

/** The integers of a record, the locals a, b and c, to `idle_at` and `n`. */
const decoded = ({ idleAt, count }: Pick<RuleText, 'idleAt' | 'count'>, suffix: string) =>
  `
${count} = b${suffix} % 4194304
${idleAt} = (${LAST_MS} - a${suffix} * 1024 - (b${suffix} - ${count}) / 4194304) * 1000
${count} = ${count} * 16777216 + c${suffix}
`.trimStart()

/** `idle_at`, a multiple of 1000, and `n` to the integers of a record: the locals a, b and c. */
const encoded = ({ n, idleAt, count }: RuleText) =>
  `
local b_${n}, c_${n} = (${LAST_MS} - ${idleAt} / 1000) % 1024, ${count} % 16777216
local a_${n} = (${LAST_MS} - ${idleAt} / 1000 - b_${n}) / 1024
b_${n} = b_${n} * 4194304 + (${count} - c_${n}) / 16777216
`.trimStart()

const integers = ({ n }: RuleText) => `a_${n}, b_${n}, c_${n}`

const life = (idleAt: string) =>
  `format('%d', (${idleAt} - now + -(${idleAt} - now) % 1000000) / 1000000 + KEEP_SECONDS)`

const setex = (key: string, bytes: string) => `redis.call('SETEX', ${key}, ${life('idle_at')}, ${bytes})\n`

function ownWritten({ own, of, idleAt }: RuleText): string {
  if (!own) return ''
  const key = `KEYS[${of('own_key')}]`
  return `
if ${of('own_offset')} then
redis.call('SETRANGE', ${key}, ${of('own_offset')}, ${of('own_bytes')})
redis.call('EXPIRE', ${key}, ${life(idleAt)})
elseif ${of('own_bytes')} then
redis.call('SETEX', ${key}, ${life(idleAt)}, ${of('own_bytes')})
end
`.trimStart()
}
