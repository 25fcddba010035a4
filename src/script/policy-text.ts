/**
 * Compiles a policy to Lua: straight-line code for all its rules, with their numbers as constants. `decideText` is the script that
 * decides and peeks, `refundText` the one that gives units back. docs/internals/script.md shows an example.
 *
 * Each rule has its own copy of the sections of its algorithm. Their locals end in the number of the rule: `backlog_2`. A decision
 * has three ends:
 *
 *     nothing is spent    the request is refused, or it is a peek
 *     the usual end       all rules spend, and the states have the expected layout: one call reads each state, one call writes it
 *     any other           some rules do not spend, or a state has other records
 */
import { chunked } from '../chunked.ts'
import { ABSENT, CONSTANTS, ENFORCE } from './constants.ts'
import { LEASE_DIVISOR } from './lease.ts'
import { OVERRIDES, POINTER, PRELUDE, SUBJECT } from './lua.generated.ts'
import { Locals, literal, nameInLiteral, replaceWords } from './lua-text.ts'
import type { PolicyShape, Variant } from './policy-shape.ts'
import {
  assignment,
  createRuleText,
  hasVariableNumbers,
  isNumber,
  numberOf,
  type RuleText,
} from './rule-text.ts'
import { commitAny, commitUsual, type Identity, readStanding, readState } from './state-text.ts'

/** Library functions of the script. Each is a local, because a local is faster than a field. */
const LIBRARY = {
  ...{ byte: 'string.byte', find: 'string.find', format: 'string.format', match: 'string.match' },
  ...{ sub: 'string.sub', rep: 'string.rep', concat: 'table.concat', sort: 'table.sort' },
}

/** The script that decides and peeks. src/script/decide.ts encodes its arguments and decodes its reply. */
export function decideText(policy: PolicyShape): string {
  return new PolicyText(policy).decide()
}

/** The script that gives units back. src/script/refund.ts encodes its arguments and decodes its reply. */
export function refundText(policy: PolicyShape): string {
  return new PolicyText(policy).refund()
}

class PolicyText {
  readonly #policy: PolicyShape
  readonly #locals = new Locals()
  readonly #rules: readonly RuleText[]
  readonly #identities: readonly (Identity & { isPresent: string })[]

  constructor(policy: PolicyShape) {
    this.#policy = policy
    const sizes = Map.groupBy(policy.entries, ({ identity }) => identity)
    this.#rules = policy.entries.map((entry, i) =>
      createRuleText(entry, i + 1, sizes.get(entry.identity)!.length, this.#locals),
    )
    this.#identities = Array.from({ length: policy.identities }, (_, i) => ({
      rules: this.#rules.filter(({ identity }) => identity === i),
      isPresent: this.#locals.of(`present_${i + 1}`),
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
      this.#readArguments(5 + this.#withArgument().length),
      this.#locateKeys(
        hasSubject && "subject == 'key' and 2 or subject == 'pointer' and 3 or subject == 'token' and 1 or 0",
      ),
      this.#fetchValues(hasSubject && `if subject == 'pointer' then\n${POINTER}end\n`),
      hasSubject ? `plan = ''\n${SUBJECT}` : "plan = ARGV[4] or ''\n",
      this.#applyPlan(hasSubject ? "subject ~= '' and not is_unknown" : undefined),
      hasSubject ? this.#skipRulesOnRequests() : '',
      this.#applyOverrides(hasSubject ? 'settings and not is_unknown' : 'settings', true),
      'admitted = true\n',
      ...this.#identities.map(identity => readState(identity, checkRule)),
      this.#endDecision(),
    ]
    const names = ['verb', 'plan', 'values', 'admitted', 'place', 'reply', 'changes', 'settings']
    const ofSubject = hasSubject ? ['subject', 'is_unknown', 'is_blocked', 'consumer'] : []
    const ofLease = leases ? ['grant'] : []
    return this.#assembleScript([...names, ...ofSubject, ...ofLease], "local now = ARGV[5] or ''\n", body)
  }

  refund(): string {
    const first = 5 + this.#withArgument().length
    const body = [
      'spent_at = ARGV[1] + 0\n',
      this.#readArguments(undefined),
      ...this.#rules.map(
        ({ of, ruleNumber }) =>
          `${of('units')}, ${of('spent')} = ARGV[${first + 2 * ruleNumber - 1}] + 0, ARGV[${first + 2 * ruleNumber}] + 0\n`,
      ),
      this.#locateKeys("ARGV[3] == 'consumer' and 1 or 0"),
      this.#fetchValues(''),
      "if ARGV[3] == 'consumer' then\nsettings = values[1]\nend\n",
      'plan = ARGV[4]\n',
      this.#applyPlan(),
      this.#applyOverrides('settings', false),
      ...this.#identities.map(identity => readState(identity, () => '')),
      ...this.#identities.map(identity =>
        commitAny(identity, {
          isSpent: ({ of }) => `${of('mark')} ~= ${ABSENT} and ${of('units')} > 0`,
          spend: rule => rule.section('refund'),
        }),
      ),
      `return { now${this.#rules.map(({ of }) => `, ${of('remaining')} or 0, ${of('reset_after')} or 0`).join('')} }\n`,
    ]
    const names = ['spent_at', 'plan', 'values', 'place', 'settings', 'changes', '_']
    return this.#assembleScript(names, 'local now = ARGV[5]\n', body)
  }

  /** Assembles the script. The declarations of the locals come first, but depend on the text that follows. */
  #assembleScript(names: readonly string[], now: string, body: readonly string[]): string {
    const text = replaceWords(body.join(''), word => CONSTANTS.get(word))
    const declared = [...new Set(this.#rules.map(({ lua }) => lua.declare))].join('')
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
      ({ of, argument }, i) => `${of(argument!)} = ARGV[${6 + i}]${argument === 'holding' ? " or ''" : ''}\n`,
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

  /** Computes the indexes in KEYS: first the records of the caller, then each state with the keys of its rules, then the long logs. */
  #locateKeys(records: string | false): string {
    const next = (name: string) => `place = place + 1\n${this.#locals.of(name)} = place\n`
    const where = (mark: string, text: string) => `if ${mark} ~= ${ABSENT} then\n${text}end\n`
    const long = this.#rules.filter(({ ownKeyRead }) => ownKeyRead === 'parts')
    return [
      `place = ${records || 0}\n`,
      ...this.#identities.map(({ rules, isPresent }, i) =>
        where(
          isPresent,
          next(`key_${i + 1}`) +
            rules
              .filter(({ ownKeyRead }) => ownKeyRead === 'whole')
              .map(({ of, ruleNumber }) => where(of('mark'), next(`own_key_${ruleNumber}`)))
              .join(''),
        ),
      ),
      long.length > 0 ? `${this.#locals.of('whole')} = place\n` : '',
      ...long.map(({ of, ruleNumber }) => where(of('mark'), next(`own_key_${ruleNumber}`))),
    ].join('')
  }

  #fetchValues(before: string | false): string {
    const hasLong = this.#rules.some(({ ownKeyRead }) => ownKeyRead === 'parts')
    const keys = hasLong ? `unpack(KEYS, 1, ${this.#locals.of('whole')})` : 'unpack(KEYS)'
    return `${before || ''}values = redis.call('MGET', ${keys})\n`
  }

  /**
   * Assigns the numbers of the caller's plan, and skips rules that do not apply to that plan.
   * @param mayBeUnknown Lua condition under which the config may not know the plan
   */
  #applyPlan(mayBeUnknown?: string): string {
    const varying = this.#rules.filter(hasVariableNumbers)
    const limited = this.#rules.filter(({ variants }) => variants.some(({ plans }) => plans))
    const defaults = varying.map(rule => this.#assignNumbers(rule, rule.variants[0]!)).join('')
    const { plans } = this.#policy
    if (plans.length === 0) return defaults
    const known = plans.map(plan => `plan ~= ${literal(plan)}`).join(' and ')

    const unknown =
      mayBeUnknown === undefined
        ? ''
        : `if ${mayBeUnknown} and ${known} then\nplan = ${literal(plans[0]!)}\nend\n`
    const branches = plans.flatMap(plan => {
      const changes = limited.map(rule => {
        const variant = rule.variants.find(({ plans }) => !plans || plans.includes(plan))
        if (!variant) return `${rule.of('mark')} = ${ABSENT}\n`
        return variant === rule.variants[0] ? '' : this.#assignNumbers(rule, variant)
      })
      const text = changes.join('')
      return text ? [`if plan == ${literal(plan)} then\n${text}`] : []
    })
    const chosen = splitIntoChains(branches).map(chain => `${chain.join('else')}end\n`)
    return [defaults, unknown, ...chosen].join('')
  }

  #assignNumbers({ of, lua }: RuleText, variant: Variant): string {
    const names = lua.numbers.filter(isNumber)
    return assignment(
      [of('tag'), ...names.map(of)],
      [literal(variant.tag), ...names.map(name => literal(numberOf(variant, name)))],
    )
  }

  /** Skips all rules but those on bad credentials, if the credential is bad or its consumer is blocked. */
  #skipRulesOnRequests(): string {
    const others = this.#rules.filter(({ isGuess }) => !isGuess).map(({ of }) => of('mark'))
    if (others.length === 0) return ''
    const none = chunked(others, 50).map(part =>
      assignment(
        part,
        part.map(() => String(ABSENT)),
      ),
    )
    return `if is_unknown or is_blocked then\n${none.join('')}end\n`
  }

  /** @param isDecision whether overrides also set the mode. A refund gives units back whatever the mode is now */
  #applyOverrides(condition: string, isDecision: boolean): string {
    const rules = this.#rules.filter(({ takesOverrides }) => takesOverrides)
    if (rules.length === 0) return ''
    return [
      `if ${condition} and string.find(settings, 'override=', 1, true) then\n`,
      OVERRIDES,
      ...rules.map(rule => this.#applyOverride(rule, isDecision)),
      'end\n',
    ].join('')
  }

  #applyOverride({ of, ruleNumber, family, lua: { numbers } }: RuleText, isDecision: boolean): string {
    // Arguments of the call cannot be overridden.
    const own = numbers.map(number => (isNumber(number) ? of(number) : undefined))
    const values = [of('tag'), ...own.filter(value => value !== undefined)].join(', ')
    const mark = of('mark')
    const given = `'${ruleNumber}', 'override=${nameInLiteral(family)},', ${mark}, ${values}`
    return `${isDecision ? mark : '_'}, ${values} = overridden(${given})\n`
  }

  #endDecision(): string {
    const { hasSubject, leases } = this.#policy
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
    const any = { isSpent: anySpent, spend: (rule: RuleText) => rule.section('spend') }
    // Each end returns. With `elseif`, the first end would jump over all others, and Lua limits the length of jumps.
    return [
      `if not admitted or verb == 'peek'${hasSubject ? ' and not is_blocked' : ''} then\n`,
      standing,
      this.#returnReply(1),
      'end\n',
      hasSubject ? "if is_blocked then\nreturn { -2, '', now }\nend\n" : '',
      leases ? this.#computeGrant() : '',
      `if ${[...isKnown, ...isUsual].join(' and ') || 'true'} then\n`,
      ...this.#identities.map(commitUsual),
      this.#returnReply(2, leases),
      'end\n',
      ...this.#identities.map(identity => commitAny(identity, any)),
      this.#returnReply(1, leases),
    ].join('')
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
      `if verb ~= 'decide'${this.#policy.hasSubject ? ' and not is_unknown' : ''} then\n`,
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
   * @param hasGrant whether the reply ends with `grant`, if that is set
   */
  #returnReply(admitted: 1 | 2, hasGrant = false): string {
    const { hasSubject } = this.#policy
    const rows = this.#rules.map(({ of, isQueue }) => {
      const retryAfter = admitted === 2 ? [] : [`${of('retry_after')} or -2`]
      const standing = [`${of('remaining')} or 0`, `${of('reset_after')} or 0`]
      return [...retryAfter, ...standing, ...(isQueue ? [`${of('delay')} or 0`] : [])].join(', ')
    })
    const known = hasSubject ? 'not admitted and 0 or is_unknown and -1 or 1' : 'admitted and 1 or 0'
    const status = admitted === 2 ? '2' : known
    const plan = hasSubject ? "consumer and plan .. ' ' .. consumer or plan" : 'plan'
    const values = [status, plan, 'now', ...rows]
    if (!this.#rules.some(({ takesOverrides }) => takesOverrides)) {
      // If `grant` is nil, the list is one shorter.
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

/**
 * The most bytes of an `if` with all its `elseif`. Each branch jumps to the end of the chain: over about 35,000 instructions at this
 * length, and Lua can jump over at most 131,071.
 */
const MAX_CHAIN_LENGTH = 200_000

/** Splits branches that exclude each other into as few `if … elseif` chains as possible. */
function splitIntoChains(branches: readonly string[]): string[][] {
  const chains: string[][] = []
  let length = Number.POSITIVE_INFINITY
  for (const branch of branches) {
    if (length + branch.length > MAX_CHAIN_LENGTH) {
      chains.push([])
      length = 0
    }
    chains.at(-1)!.push(branch)
    length += branch.length
  }
  return chains
}

/** Checks whether the rule admits its cost. */
function checkRule(rule: RuleText): string {
  const { of } = rule
  return [
    `${of('retry_after')} = 0\n`,
    `if ${of('cost')} > 0 then\n${rule.section('check')}`,
    `if ${of('retry_after')} ~= 0 and ${of('mark')} == ${ENFORCE} then\nadmitted = false\nend\nend\n`,
  ].join('')
}
