/**
 * From a policy to Lua: one straight line of code for all its rules, with their numbers as constants. `decideText` is the script
 * that decides and peeks, `refundText` the one that gives back. docs/script.md shows one.
 *
 * Each rule has its own copy of the sections of its algorithm, whose locals end in the number of the rule: `backlog_2`. In the
 * text are three ends: how things stand (refused, or only asked), all is spent and the state lies as expected (the usual one), and
 * all else. The usual one reads each state by one call and writes it by one.
 */
import { ABSENT, CONSTANTS, ENFORCE } from './constants.ts'
import { LEASE_DIVISOR } from './lease.ts'
import { OVERRIDES, POINTER, PRELUDE, SUBJECT } from './lua.generated.ts'
import { Locals, literal, name, withWords } from './lua-text.ts'
import type { PolicyShape, Variant } from './policy-shape.ts'
import {
  assigned,
  chunked,
  createRuleText,
  isNumber,
  isVariable,
  numberOf,
  type RuleText,
} from './rule-text.ts'
import { commitAny, commitUsual, type Identity, readState, standingOf } from './state-text.ts'

/** What of the string library the text names; each is a local, which is faster than a field. */
const LIBRARY = {
  ...{ byte: 'string.byte', find: 'string.find', format: 'string.format', match: 'string.match' },
  ...{ sub: 'string.sub', rep: 'string.rep', concat: 'table.concat', sort: 'table.sort' },
}

/** Decides, and peeks. src/script/decide.ts is the other end of its wire. */
export function decideText(policy: PolicyShape): string {
  return new PolicyText(policy).decide()
}

/** Gives back. src/script/refund.ts is the other end of its wire. */
export function refundText(policy: PolicyShape): string {
  return new PolicyText(policy).refund()
}

class PolicyText {
  readonly #policy: PolicyShape
  readonly #locals = new Locals()
  readonly #places: readonly RuleText[]
  readonly #identities: readonly (Identity & { asked: string })[]

  constructor(policy: PolicyShape) {
    this.#policy = policy
    const sizes = Map.groupBy(policy.slots, ({ identity }) => identity)
    this.#places = policy.slots.map((slot, i) =>
      createRuleText(slot, i + 1, sizes.get(slot.identity)!.length, this.#locals),
    )
    this.#identities = Array.from({ length: policy.identities }, (_, i) => ({
      places: this.#places.filter(({ identity }) => identity === i),
      asked: this.#locals.of(`asked_${i + 1}`),
      key: this.#locals.of(`key_${i + 1}`),
      state: this.#locals.of(`state_${i + 1}`),
      fits: this.#locals.of(`fits_${i + 1}`),
    }))
  }

  decide(): string {
    const { hasSubject, leases } = this.#policy
    const body = [
      'verb = ARGV[1]\n',
      hasSubject ? "subject = ARGV[3] or ''\n" : '',
      this.#marks(5 + this.#withArgument().length),
      this.#keys(
        hasSubject && "subject == 'key' and 2 or subject == 'pointer' and 3 or subject == 'token' and 1 or 0",
      ),
      this.#mget(hasSubject && `if subject == 'pointer' then\n${POINTER}end\n`),
      hasSubject ? `plan = ''\n${SUBJECT}` : "plan = ARGV[4] or ''\n",
      this.#plans(hasSubject ? "subject ~= '' and not is_bad" : undefined),
      hasSubject ? this.#unknownAndBlocked() : '',
      this.#overrides(hasSubject ? 'settings and not is_bad' : 'settings', true),
      'admitted = true\n',
      ...this.#identities.map(identity => readState(identity, checkOf)),
      this.#decideEnd(),
    ]
    const names = ['verb', 'plan', 'values', 'admitted', 'place', 'reply', 'changes', 'settings']
    const ofSubject = hasSubject ? ['subject', 'is_bad', 'is_blocked', 'consumer'] : []
    const ofLease = leases ? ['grant'] : []
    return this.#script([...names, ...ofSubject, ...ofLease], "local now = ARGV[5] or ''\n", body)
  }

  refund(): string {
    const first = 5 + this.#withArgument().length
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
      ...this.#identities.map(identity => readState(identity, () => '')),
      ...this.#identities.map(identity =>
        commitAny(identity, {
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

  /** Rules of which something travels with each request. */
  #withArgument(): readonly RuleText[] {
    return this.#places.filter(({ argument }) => argument)
  }

  /** @param lastBefore place in ARGV after which the costs follow, if any */
  #marks(lastBefore: number | undefined): string {
    const names = this.#identities.flatMap(({ asked, places }) => [
      asked,
      ...places.map(({ of }) => of('mark')),
    ])
    const read = chunked(names, 50).map(
      (part, i) => `${part.join(', ')} = byte(ARGV[2], ${i * 50 + 1}, ${i * 50 + part.length})\n`,
    )
    const given = this.#withArgument().map(
      ({ of, argument }, i) => `${of(argument!)} = ARGV[${6 + i}]${argument === 'holding' ? " or ''" : ''}\n`,
    )
    if (lastBefore === undefined || this.#places.length === 0) return [...read, ...given].join('')
    const costs = this.#places.map(({ of }) => of('cost'))
    const amounts = costs.map((_, i) => `ARGV[${lastBefore + 1 + i}] + 0`)
    return [
      ...read,
      ...given,
      `if ARGV[${lastBefore + 1}] then\n`,
      ...chunked(costs, 50).map((part, i) => assigned(part, amounts.slice(i * 50, i * 50 + part.length))),
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

  /** The places of states and of keys of single rules among the keys: behind the records, and the long logs last. */
  #keys(records: string | false): string {
    const next = (name: string) => `place = place + 1\n${this.#locals.of(name)} = place\n`
    const where = (mark: string, text: string) => `if ${mark} ~= ${ABSENT} then\n${text}end\n`
    const long = this.#places.filter(({ own }) => own === 'parts')
    return [
      `place = ${records || 0}\n`,
      ...this.#identities.map(({ places, asked }, i) =>
        where(
          asked,
          next(`key_${i + 1}`) +
            places
              .filter(({ own }) => own === 'whole')
              .map(({ of, n }) => where(of('mark'), next(`own_key_${n}`)))
              .join(''),
        ),
      ),
      long.length > 0 ? `${this.#locals.of('whole')} = place\n` : '',
      ...long.map(({ of, n }) => where(of('mark'), next(`own_key_${n}`))),
    ].join('')
  }

  #mget(before: string | false): string {
    const hasLong = this.#places.some(({ own }) => own === 'parts')
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
    const chosen = inChains(branches).map(chain => `${chain.join('else')}end\n`)
    return [defaults, unknown, ...chosen].join('')
  }

  #numbers({ of, lua }: RuleText, variant: Variant): string {
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

  #override({ of, n, family, lua: { numbers } }: RuleText, isDecision: boolean): string {
    // What travels with the request is not overridden.
    const own = numbers.map(number => (isNumber(number) ? of(number) : undefined))
    const values = [of('tag'), ...own.filter(value => value !== undefined)].join(', ')
    const mark = of('mark')
    const given = `'${n}', 'override=${name(family)},', ${mark}, ${values}`
    return `${isDecision ? mark : '_'}, ${values} = overridden(${given})\n`
  }

  #decideEnd(): string {
    const { hasSubject, leases } = this.#policy
    const isUsual = this.#identities.map(({ places, key, fits }) => {
      const spent = places
        .filter(({ isGuess }) => !isGuess)
        .map(({ of }) => `${of('retry_after')} == 0 and ${of('cost')} > 0`)
      // A guess is not spent; one that is refused has a retry time to say.
      const guesses = places
        .filter(({ isGuess }) => isGuess)
        .map(({ of }) => `(${of('retry_after')} or 0) == 0`)
      return `(not ${key} or ${[fits, ...spent, ...guesses].join(' and ')})`
    })
    const isKnown = hasSubject ? ['not is_bad'] : []
    const standing = this.#places.map(standingOf).join('')
    const anySpent = (place: RuleText) =>
      `${place.of('retry_after')} == 0 and ${place.of('cost')} > 0${place.isGuess ? ' and is_bad' : ''}`
    const any = { isSpent: anySpent, spend: (place: RuleText) => place.section('spend') }
    // Each end returns: with `elseif`, a jump from the first would go past all the others, and Lua has a bound for that.
    return [
      `if not admitted or verb == 'peek'${hasSubject ? ' and not is_blocked' : ''} then\n`,
      standing,
      this.#reply(1),
      'end\n',
      hasSubject ? "if is_blocked then\nreturn { -2, '', now }\nend\n" : '',
      leases ? this.#grant() : '',
      `if ${[...isKnown, ...isUsual].join(' and ') || 'true'} then\n`,
      ...this.#identities.map(commitUsual),
      this.#reply(2, leases),
      'end\n',
      ...this.#identities.map(identity => commitAny(identity, any)),
      this.#reply(1, leases),
    ].join('')
  }

  /**
   * For how many requests to spend (lease.ts), where the verb is a number: from here on a rule costs what all of them do. Of a queue
   * the delay is that of the first; the others depart evenly behind it.
   */
  #grant(): string {
    // A guess is spent when it was wrong, and then nothing else is.
    const places = this.#places.filter(({ isGuess }) => !isGuess)
    const bounds = places.map(place => {
      const { of } = place
      return [
        `if ${of('retry_after')} == 0 and ${of('cost')} > 0 then\n${place.section('standing')}`,
        `local most = ${of('remaining')} / (${literal(LEASE_DIVISOR)} * ${of('cost')})\n`,
        'if most < grant then\ngrant = most\nend\nend\n',
      ].join('')
    })
    const costs = places.map(({ of }) => of('cost'))
    const raised = chunked(costs, 50).map(part =>
      assigned(
        part,
        part.map(cost => `${cost} * grant`),
      ),
    )
    return [
      `if verb ~= 'decide'${this.#policy.hasSubject ? ' and not is_bad' : ''} then\n`,
      'grant = verb + 0\n',
      ...bounds,
      'grant = grant < 1 and 1 or grant - grant % 1\n',
      ...raised,
      'end\n',
    ].join('')
  }

  /**
   * @param admitted 2: every rule has spent, and `retry_after` is left out
   * @param hasGrant it ends with `grant`, if that is set
   */
  #reply(admitted: 1 | 2, hasGrant = false): string {
    const { hasSubject } = this.#policy
    const rows = this.#places.map(({ of, isQueue }) => {
      const retryAfter = admitted === 2 ? [] : [`${of('retry_after')} or -2`]
      const standing = [`${of('remaining')} or 0`, `${of('reset_after')} or 0`]
      return [...retryAfter, ...standing, ...(isQueue ? [`${of('delay')} or 0`] : [])].join(', ')
    })
    const known = hasSubject ? 'not admitted and 0 or is_bad and -1 or 1' : 'admitted and 1 or 0'
    const status = admitted === 2 ? '2' : known
    const plan = hasSubject ? "consumer and plan .. ' ' .. consumer or plan" : 'plan'
    const values = [status, plan, 'now', ...rows]
    if (!this.#places.some(({ takesOverrides }) => takesOverrides)) {
      // Where it is nil, the list is one shorter.
      return `do return { ${[...values, ...(hasGrant ? ['grant'] : [])].join(', ')} } end\n`
    }
    return `
reply = { ${values.join(', ')} }
if changes then
reply[#reply + 1] = changes
end
${hasGrant ? 'reply[#reply + 1] = grant\n' : ''}do return reply end
`.trimStart()
  }
}

/** Bytes of an if with all its elseif, which jump to its end: over some 35,000 instructions, where Lua can jump over 131,071. */
const LONGEST_CHAIN = 200_000

/** Branches of which at most one is taken, in as few chains of elseif as Lua can jump over. */
function inChains(branches: readonly string[]): string[][] {
  const chains: string[][] = []
  let length = Number.POSITIVE_INFINITY
  for (const branch of branches) {
    if (length + branch.length > LONGEST_CHAIN) {
      chains.push([])
      length = 0
    }
    chains.at(-1)!.push(branch)
    length += branch.length
  }
  return chains
}

/** May the cost of a rule pass? */
function checkOf(place: RuleText): string {
  const { of } = place
  return [
    `${of('retry_after')} = 0\n`,
    `if ${of('cost')} > 0 then\n${place.section('check')}`,
    `if ${of('retry_after')} ~= 0 and ${of('mark')} == ${ENFORCE} then\nadmitted = false\nend\nend\n`,
  ].join('')
}
