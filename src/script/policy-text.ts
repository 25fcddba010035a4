/**
 * From a policy to Lua: one straight line of code for all its rules, with their numbers as constants. `decideText` is the script
 * that decides and peeks, `refundText` the one that gives back. docs/script.md shows one.
 *
 * Each rule has its own copy of the sections of its algorithm, whose locals end in the number of the rule: `backlog_2`. In the
 * text are three ends: how things stand (refused, or only asked), all is spent and the state lies as expected (the usual one), and
 * all else. The usual one reads each state by one call and writes it by one.
 */

import { LUA } from '../algorithms/lua.generated.ts'
import type { AlgorithmLua, WireNumber } from '../algorithms/lua.ts'
import { OVERRIDES, POINTER, PRELUDE, SUBJECT } from './lua.generated.ts'
import { Locals, literal, name, withMacros, withWords } from './lua-text.ts'
import { MARKS } from './marks.ts'
import type { PolicyShape, Slot, Variant } from './policy-shape.ts'

/** Bytes of a record, and how its three integers lie after the tag (prelude.lua). */
const RECORD = 14
const INTEGERS = 'I4I4I3'
/** Milliseconds at the end of 2109, from which idle_at is counted backwards. */
const LAST_MS = 2 ** 42 - 1

/**
 * No record of Sluice lies further ahead than this (µs). The longest time to refill is two years (algorithms/rate.ts), and twice
 * that after a clock has been set back by as much; one day allows for rounding.
 */
const HORIZON = (4 * 366 + 1) * 86400e6

/**
 * A state stays this much longer than it means anything, so that a failover to a slower clock still finds it. This is garbage
 * collection, never meaning, so whole seconds suffice. Three years of them fit into a C integer of 32 bits, so '%d' can write
 * them, which is faster than '%.0f'.
 */
const KEEP_SECONDS = 10

/** Lua has 200 locals for a function. So many records are read or written by one call, */
const CHUNK = 8
/** and the numbers of an identity with more rules than this are locals of the whole script, which can go into a table. */
const MOST_BLOCK_LOCALS = 10

/** Marks as the script reads them: as bytes. */
const ABSENT = 48
const ENFORCE = MARKS.enforce.charCodeAt(0)
const SHADOW = MARKS.shadow.charCodeAt(0)
const STAYS_SHADOW = MARKS.staysShadow.charCodeAt(0)

/** Constants of the Lua files. */
export const CONSTANTS: ReadonlyMap<string, string> = new Map([
  ['ABSENT', literal(ABSENT)],
  ['ENFORCE', literal(ENFORCE)],
  ['SHADOW', literal(SHADOW)],
  ['STAYS_SHADOW', literal(STAYS_SHADOW)],
  ['HORIZON', literal(HORIZON)],
  ['KEEP_SECONDS', literal(KEEP_SECONDS)],
])

/** What of the string library the text names; each is a local, which is faster than a field. */
const LIBRARY = {
  ...{ byte: 'string.byte', find: 'string.find', format: 'string.format', match: 'string.match' },
  ...{ sub: 'string.sub', rep: 'string.rep', concat: 'table.concat' },
}

/** Decides, and peeks. src/script/decide.ts is the other end of its wire. */
export function decideText(policy: PolicyShape): string {
  return new PolicyText(policy).decide()
}

/** Gives back. src/script/refund.ts is the other end of its wire. */
export function refundText(policy: PolicyShape): string {
  return new PolicyText(policy).refund()
}

/** A rule of the policy as the text refers to it. */
interface Place extends Slot {
  lua: AlgorithmLua
  /** From 1. */
  n: number
  /** The text of a section, with the words of this rule. */
  section(name: 'read' | 'check' | 'spend' | 'refund' | 'standing' | 'write'): string
  /** `cost` → `cost_2` */
  of(name: string): string
  tag: string
  /** The two numbers of its record. */
  idleAt: string
  count: string
  /** They are locals of the block that reads or writes the state. */
  isBlockLocal: boolean
}

class PolicyText {
  readonly #policy: PolicyShape
  readonly #locals = new Locals()
  readonly #places: readonly Place[]
  /** The rules of each identity. */
  readonly #identities: readonly (readonly Place[])[]

  constructor(policy: PolicyShape) {
    this.#policy = policy
    const sizes = Map.groupBy(policy.slots, ({ identity }) => identity)
    this.#places = policy.slots.map((slot, i) => this.#placeOf(slot, i + 1, sizes.get(slot.identity)!.length))
    this.#identities = Array.from({ length: policy.identities }, (_, identity) =>
      this.#places.filter(place => place.identity === identity),
    )
  }

  decide(): string {
    const { hasSubject } = this.#policy
    const body = [
      'verb = ARGV[1]\n',
      hasSubject ? "subject = ARGV[3] or ''\n" : '',
      this.#marks(5 + this.#ends().length),
      this.#keys(
        hasSubject && "subject == 'key' and 2 or subject == 'pointer' and 3 or subject == 'token' and 1 or 0",
      ),
      this.#mget(hasSubject && `if subject == 'pointer' then\n${POINTER}end\n`),
      hasSubject ? `plan = ''\n${SUBJECT}` : "plan = ARGV[4] or ''\n",
      this.#plans(hasSubject ? "subject ~= '' and not is_bad" : undefined),
      hasSubject ? this.#unknownAndBlocked() : '',
      this.#overrides(hasSubject ? 'settings and not is_bad' : 'settings', true),
      'admitted = true\n',
      ...this.#identities.map((places, i) => this.#read(places, i, place => this.#check(place))),
      this.#decideEnd(),
    ]
    const names = [
      'verb',
      'plan',
      'values',
      'admitted',
      'place',
      'reply',
      'changes',
      'override_of',
      'settings',
    ]
    const ofSubject = hasSubject ? ['subject', 'is_bad', 'is_blocked', 'consumer'] : []
    return this.#script([...names, ...ofSubject], "local now = ARGV[5] or ''\n", body)
  }

  refund(): string {
    const first = 5 + this.#ends().length
    const body = [
      'spent_at = ARGV[1] + 0\n',
      this.#marks(undefined),
      ...this.#places.map(
        ({ of, n }) =>
          `${of('units')}, ${of('spent')} = ARGV[${first + 2 * n - 1}] + 0, ARGV[${first + 2 * n}] + 0\n`,
      ),
      this.#keys("ARGV[3] == 'consumer' and 1 or 0"),
      this.#mget(''),
      "if ARGV[3] == 'consumer' then\nsettings = values[1]\nend\n",
      'plan = ARGV[4]\n',
      this.#plans(),
      this.#overrides('settings', false),
      ...this.#identities.map((places, i) => this.#read(places, i, () => '')),
      ...this.#identities.map((places, i) =>
        this.#commitAny(places, i, {
          isSpent: ({ of }) => `${of('mark')} ~= ${ABSENT} and ${of('units')} > 0`,
          spend: place => place.section('refund'),
        }),
      ),
      `return { now${this.#places.map(({ of }) => `, ${of('remaining')} or 0, ${of('reset_after')} or 0`).join('')} }\n`,
    ]
    const names = ['spent_at', 'plan', 'values', 'place', 'settings', 'changes', '_']
    return this.#script(names, 'local now = ARGV[5]\n', body)
  }

  /** The locals come first, and only the text says which there are. */
  #script(names: readonly string[], now: string, body: readonly string[]): string {
    const text = withWords(body.join(''), word => CONSTANTS.get(word))
    const declared = [...new Set(this.#places.map(({ lua }) => lua.declare))].join('')
    const library = Object.entries(LIBRARY).filter(([name]) =>
      new RegExp(`(?<![.\\w])${name}\\(`).test(declared + text),
    )
    return [
      'local redis, KEYS, ARGV, unpack = redis, KEYS, ARGV, unpack\n',
      ...library.map(([name, from]) => `local ${name} = ${from}\n`),
      now,
      PRELUDE,
      declared,
      `local ${names.join(', ')}\n`,
      this.#locals.declaration(),
      text,
    ].join('')
  }

  /** @param rules that its identity has */
  #placeOf(slot: Slot, n: number, rules: number): Place {
    const of = (name: string) => this.#locals.of(`${name}_${n}`)
    const { variants } = slot
    const lua = luaOf(slot)
    const constants = new Map<string, string>()
    for (const name of lua.numbers) {
      if (isNumber(name) && !isVariable(slot)) constants.set(name, literal(numberOf(variants[0]!, name)))
    }
    const isOwn = new Set([...lua.keeps, ...lua.numbers, ...OF_EACH_RULE])
    const isBlockLocal = rules <= MOST_BLOCK_LOCALS
    const idleAt = isBlockLocal ? `idle_at_${n}` : of('idle_at')
    const count = isBlockLocal ? `n_${n}` : of('n')
    const replaced = new Map([...constants, ['idle_at', idleAt], ['n', count]])
    const wordFor = (word: string) => replaced.get(word) ?? (isOwn.has(word) ? of(word) : undefined)
    const { hasEnds } = slot
    return {
      ...slot,
      lua,
      n,
      of,
      idleAt,
      count,
      isBlockLocal,

      get tag() {
        return isVariable(slot) ? of('tag') : literal(variants[0]!.tag)
      },
      section(name) {
        const text = lua[name].replace(/--@ if ends\n([\s\S]*?)--@ end\n/g, hasEnds ? '$1' : '')
        // A section has locals of its own.
        const block = /^local /m.test(text) ? `do\n${text}end\n` : text
        return withMacros(withWords(block, wordFor))
      },
    }
  }

  /** Rules with a calendar: the ends of their windows travel. */
  #ends(): readonly Place[] {
    return this.#places.filter(({ hasEnds }) => hasEnds)
  }

  /** @param lastBefore place in ARGV after which the costs follow, if any */
  #marks(lastBefore: number | undefined): string {
    const names = this.#identities.flatMap((places, i) => [
      this.#locals.of(`asked_${i + 1}`),
      ...places.map(({ of }) => of('mark')),
    ])
    const read = chunked(names, 50).map(
      (part, i) => `${part.join(', ')} = byte(ARGV[2],  ${i * 50 + 1}, ${i * 50 + part.length})\n`,
    )
    const ends = this.#ends().map(({ of }, i) => `${of('ends')} = ARGV[${6 + i}]\n`)
    if (lastBefore === undefined || this.#places.length === 0) return [...read, ...ends].join('')
    const costs = this.#places.map(({ of }) => of('cost'))
    const given = costs.map((_, i) => `ARGV[${lastBefore + 1 + i}] + 0`)
    return [
      ...read,
      ...ends,
      `if ARGV[${lastBefore + 1}] then\n`,
      ...chunked(costs, 50).map((part, i) => assigned(part, given.slice(i * 50, i * 50 + part.length))),
      'else\n',
      ...chunked(costs, 50).map(part =>
        assigned(
          part,
          part.map(() => '1'),
        ),
      ),
      'end\n',
    ].join('')
  }

  /** The places of states and logs among the keys: behind the records, and the long logs last. */
  #keys(records: string | false): string {
    const next = (name: string) => `place = place + 1\n${this.#locals.of(name)} = place\n`
    const where = (mark: string, text: string) => `if ${mark} ~= ${ABSENT} then\n${text}end\n`
    const long = this.#places.filter(({ log }) => log === 'long')
    return [
      `place = ${records || 0}\n`,
      ...this.#identities.map((places, i) =>
        where(
          this.#locals.of(`asked_${i + 1}`),
          next(`key_${i + 1}`) +
            places
              .filter(({ log }) => log === 'short')
              .map(({ of, n }) => where(of('mark'), next(`log_key_${n}`)))
              .join(''),
        ),
      ),
      long.length > 0 ? `${this.#locals.of('whole')} = place\n` : '',
      ...long.map(({ of, n }) => where(of('mark'), next(`log_key_${n}`))),
    ].join('')
  }

  #mget(before: string | false): string {
    const hasLong = this.#places.some(({ log }) => log === 'long')
    const keys = hasLong ? `unpack(KEYS, 1, ${this.#locals.of('whole')})` : 'unpack(KEYS)'
    return `${before || ''}values = redis.call('MGET', ${keys})\n`
  }

  /**
   * The numbers of the caller's plan. A rule that is not for that plan does not apply.
   * @param mayBeUnknown condition under which the plan may be one that the config does not know
   */
  #plans(mayBeUnknown?: string): string {
    const varying = this.#places.filter(isVariable)
    const limited = this.#places.filter(({ variants }) => variants.some(({ plans }) => plans))
    const defaults = varying.map(place => this.#numbers(place, place.variants[0]!)).join('')
    const { plans } = this.#policy
    if (plans.length === 0) return defaults
    const known = plans.map(plan => `plan ~= ${literal(plan)}`).join(' and ')

    const unknown =
      mayBeUnknown === undefined
        ? ''
        : `if ${mayBeUnknown} and ${known} then\nplan = ${literal(plans[0]!)}\nend\n`
    const branches = plans.flatMap(plan => {
      const changes = limited.map(place => {
        const variant = place.variants.find(({ plans }) => !plans || plans.includes(plan))
        if (!variant) return `${place.of('mark')} = ${ABSENT}\n`
        return variant === place.variants[0] ? '' : this.#numbers(place, variant)
      })
      const text = changes.join('')
      return text ? [`if plan == ${literal(plan)} then\n${text}`] : []
    })
    const chosen = branches.length > 0 ? `${branches.join('else')}end\n` : ''
    return defaults + unknown + chosen
  }

  #numbers({ of, lua }: Place, variant: Variant): string {
    const names = lua.numbers.filter(isNumber)
    return assigned(
      [of('tag'), ...names.map(of)],
      [literal(variant.tag), ...names.map(name => literal(numberOf(variant, name)))],
    )
  }

  /** With a bad credential only guesses count, and with a blocked consumer too. */
  #unknownAndBlocked(): string {
    const others = this.#places.filter(({ isGuess }) => !isGuess).map(({ of }) => of('mark'))
    if (others.length === 0) return ''
    const none = chunked(others, 50).map(part =>
      assigned(
        part,
        part.map(() => String(ABSENT)),
      ),
    )
    return `if is_bad or is_blocked then\n${none.join('')}end\n`
  }

  /** @param isDecision what was spent can be given back whatever the mode is by now */
  #overrides(condition: string, isDecision: boolean): string {
    const places = this.#places.filter(({ takesOverrides }) => takesOverrides)
    if (places.length === 0) return ''
    return [
      `if ${condition} and string.find(settings, 'override=', 1, true) then\n`,
      OVERRIDES,
      ...places.map(place => this.#override(place, isDecision)),
      'end\n',
    ].join('')
  }

  #override({ of, n, family, lua: { numbers } }: Place, isDecision: boolean): string {
    // What travels with the request is not overridden.
    const own = numbers.map(number => (isNumber(number) ? of(number) : undefined))
    const values = [of('tag'), ...own.filter(value => value !== undefined)].join(', ')
    const mark = of('mark')
    const given = `'${n}', 'override=${name(family)},', ${mark}, ${values}`
    return `${isDecision ? mark : '_'}, ${values} = overridden(${given})\n`
  }

  /** From the bytes of a state to what each of its rules makes of it. */
  #read(places: readonly Place[], identity: number, then: (place: Place) => string): string {
    const { state, key, fits } = this.#identity(identity)
    const expected = places.filter(isExpected)
    const fast = this.#readExpected(expected, state, fits)
    return [
      `${state} = ${key} and values[${key}]\n`,
      `${fits} = not ${state}\n`,
      'do\n',
      ...chunked(places, CHUNK).map(part => declared(part, '0, 0')),
      `if ${state} then\n`,
      fast,
      `if not ${fits} and #${state} % ${RECORD} == 0 then\n`,
      this.#readAny(places, state),
      'end\nend\n',
      ...places.map(
        place => `if ${place.of('mark')} ~= ${ABSENT} then\n${place.section('read')}${then(place)}end\n`,
      ),
      'end\n',
    ].join('')
  }

  /** All records at once, where they are those of the rules, in their order. */
  #readExpected(expected: readonly Place[], state: string, fits: string): string {
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
  #readAny(places: readonly Place[], state: string): string {
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

  #check(place: Place): string {
    const { of } = place
    return [
      `${of('retry_after')} = 0\n`,
      `if ${of('cost')} > 0 then\n${place.section('check')}`,
      `if ${of('retry_after')} ~= 0 and ${of('mark')} == ${ENFORCE} then\nadmitted = false\nend\nend\n`,
    ].join('')
  }

  #decideEnd(): string {
    const { hasSubject } = this.#policy
    const isUsual = this.#identities.map((places, i) => {
      const { key, fits } = this.#identity(i)
      const spent = places
        .filter(isExpected)
        .map(({ of }) => `${of('retry_after')} == 0 and ${of('cost')} > 0`)
      // A guess is not spent; one that is refused has a retry time to say.
      const guesses = places
        .filter(({ isGuess }) => isGuess)
        .map(({ of }) => `(${of('retry_after')} or 0) == 0`)
      return `(not ${key} or ${[fits, ...spent, ...guesses].join(' and ')})`
    })
    const isKnown = hasSubject ? ['not is_bad'] : []
    const standing = this.#places.map(place => this.#standing(place)).join('')
    const anySpent = (place: Place) =>
      `${place.of('retry_after')} == 0 and ${place.of('cost')} > 0${place.isGuess ? ' and is_bad' : ''}`
    const any = { isSpent: anySpent, spend: (place: Place) => place.section('spend') }
    return [
      `if not admitted or verb == 'peek'${hasSubject ? ' and not is_blocked' : ''} then\n`,
      standing,
      hasSubject ? "elseif is_blocked then\nreturn { -2, '', now }\n" : '',
      `elseif ${[...isKnown, ...isUsual].join(' and ') || 'true'} then\n`,
      ...this.#identities.map((places, i) => this.#commitUsual(places, i)),
      this.#reply(2),
      'else\n',
      ...this.#identities.map((places, i) => this.#commitAny(places, i, any)),
      'end\n',
      this.#reply(1),
    ].join('')
  }

  #standing(place: Place): string {
    return `if ${place.of('mark')} ~= ${ABSENT} then\n${place.section('standing')}end\n`
  }

  /** @param admitted 2: every rule has spent, and `retry_after` is left out */
  #reply(admitted: 1 | 2): string {
    const { hasSubject } = this.#policy
    const rows = this.#places.map(({ of, isQueue }) => {
      const retryAfter = admitted === 2 ? [] : [`${of('retry_after')} or -2`]
      const standing = [`${of('remaining')} or 0`, `${of('reset_after')} or 0`]
      return [...retryAfter, ...standing, ...(isQueue ? [`${of('delay')} or 0`] : [])].join(', ')
    })
    const known = hasSubject ? 'not admitted and 0 or is_bad and -1 or 1' : 'admitted and 1 or 0'
    const status = admitted === 2 ? '2' : known
    const plan = hasSubject ? "consumer and plan .. ' ' .. consumer or plan" : 'plan'
    const reply = `{ ${[status, plan, 'now', ...rows].join(', ')} }`
    if (!this.#places.some(({ takesOverrides }) => takesOverrides)) return `do return ${reply} end\n`
    return `
reply = ${reply}
if changes then
reply[#reply + 1] = changes
end
do return reply end
`.trimStart()
  }

  /** Every rule of the identity has spent, and its state holds nothing else: written by one call. */
  #commitUsual(places: readonly Place[], identity: number): string {
    const { key } = this.#identity(identity)
    const expected = places.filter(isExpected)
    const others = places.filter(place => !isExpected(place)).map(place => this.#standing(place))
    if (expected.length === 0) return others.length > 0 ? `if ${key} then\n${others.join('')}end\n` : ''
    const [first = [], ...rest] = chunked(expected, CHUNK)
    return [
      `if ${key} then\n`,
      'local idle_at, bytes = 0\n',
      this.#packed(first, ''),
      ...rest.map(part => `do\n${this.#packed(part, 'bytes .. ')}end\n`),
      setex(`KEYS[${key}]`, 'bytes'),
      ...others,
      'end\n',
    ].join('')
  }

  /** Spends, and packs the records into `bytes`. */
  #packed(places: readonly Place[], before: string): string {
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
          logWritten(place),
        ].join(''),
      ),
      `bytes = ${before}pack_integers(${layout}, ${values})\n`,
    ].join('')
  }

  /** Some have spent, or the state holds more than is expected: what still means something is kept. */
  #commitAny(
    places: readonly Place[],
    identity: number,
    { isSpent, spend }: { isSpent: (place: Place) => string; spend: (place: Place) => string },
  ): string {
    const { key, state } = this.#identity(identity)
    return [
      `if ${key} then\n`,
      "local bytes, idle_at = '', 0\n",
      ...places.map(place =>
        `
if ${isSpent(place)} then
${spend(place)}${place.section('standing')}${declared([place])}${place.section('write')}${encoded(place)}bytes = bytes .. ${place.tag} .. pack_integers('>${INTEGERS}', ${integers(place)})
if ${place.idleAt} > idle_at then
idle_at = ${place.idleAt}
end
${logWritten(place)}else${this.#standing(place)}`.trimStart(),
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

  #identity(i: number) {
    return {
      key: this.#locals.of(`key_${i + 1}`),
      state: this.#locals.of(`state_${i + 1}`),
      fits: this.#locals.of(`fits_${i + 1}`),
    }
  }
}

/** Words in the sections that each rule has for itself. */
const OF_EACH_RULE = [
  ...['cost', 'retry_after', 'delay', 'remaining', 'reset_after', 'units', 'spent'],
  ...['log_bytes', 'log_offset'],
]

/** Those that do not travel with the request. */
type Constant = Exclude<WireNumber, 'ends' | 'log_key'>

const isNumber = (name: WireNumber): name is Constant => name !== 'ends' && name !== 'log_key'

function numberOf({ quota }: Variant, name: Constant): number {
  return name === 'limit' ? quota.burst : quota[name]!
}

function luaOf({ algorithm }: Slot): AlgorithmLua {
  const lua = LUA[algorithm]
  if (!lua) throw new Error(`The algorithm ${algorithm} has no Lua body.`)
  return lua
}

/** Its numbers depend on the caller. */
const isVariable = ({ variants, takesOverrides }: Slot) => takesOverrides || variants.length > 1

/** A guess is spent when it was wrong, and most states have no record of one. */
const isExpected = ({ isGuess }: Slot) => !isGuess

const assigned = (names: readonly string[], values: readonly string[]) =>
  `${names.join(', ')} = ${values.join(', ')}\n`

/** The two numbers of each record, as locals of a block; nothing where they are locals of the whole script. */
function declared(places: readonly Place[], values?: string): string {
  const { isBlockLocal } = places[0]!
  const names = places.map(({ idleAt, count }) => `${idleAt}, ${count}`).join(', ')
  const start = values ? ` = ${places.map(() => values).join(', ')}` : ''
  return isBlockLocal ? `local ${names}${start}\n` : start && `${names}${start}\n`
}

/** The integers of a record, the locals a, b and c, to `idle_at` and `n`. */
const decoded = ({ idleAt, count }: Pick<Place, 'idleAt' | 'count'>, suffix: string) =>
  `
${count} = b${suffix} % 4194304
${idleAt} = (${LAST_MS} - a${suffix} * 1024 - (b${suffix} - ${count}) / 4194304) * 1000
${count} = ${count} * 16777216 + c${suffix}
`.trimStart()

/** `idle_at`, a multiple of 1000, and `n` to the integers of a record: the locals a, b and c. */
const encoded = ({ n, idleAt, count }: Place) =>
  `
local b_${n}, c_${n} = (${LAST_MS} - ${idleAt} / 1000) % 1024, ${count} % 16777216
local a_${n} = (${LAST_MS} - ${idleAt} / 1000 - b_${n}) / 1024
b_${n} = b_${n} * 4194304 + (${count} - c_${n}) / 16777216
`.trimStart()

const integers = ({ n }: Place) => `a_${n}, b_${n}, c_${n}`

const life = (idleAt: string) =>
  `format('%d', (${idleAt} - now + -(${idleAt} - now) % 1000000) / 1000000 + KEEP_SECONDS)`

const setex = (key: string, bytes: string) => `redis.call('SETEX', ${key}, ${life('idle_at')}, ${bytes})\n`

function logWritten({ log, of, idleAt }: Place): string {
  if (!log) return ''
  const key = `KEYS[${of('log_key')}]`
  return `
if ${of('log_offset')} then
redis.call('SETRANGE', ${key}, ${of('log_offset')}, ${of('log_bytes')})
redis.call('EXPIRE', ${key}, ${life(idleAt)})
elseif ${of('log_bytes')} then
redis.call('SETEX', ${key}, ${life(idleAt)}, ${of('log_bytes')})
end
`.trimStart()
}

function chunked<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, i) => list.slice(i * size, (i + 1) * size))
}
