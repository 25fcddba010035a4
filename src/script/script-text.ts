/** The parts of a script's text that both forms of a rule set have: straight-line code (rule-set-text.ts), and loops (loop-text.ts). */
import type { AlgorithmLua } from '../algorithms/lua.ts'
import { ABSENT, CONSTANTS } from './constants.ts'
import { POINTER, PRELUDE } from './lua.generated.ts'
import { literal, replaceWords } from './lua-text.ts'
import type { RuleSetShape } from './rule-set-shape.ts'

/** Library functions of the script. Each is a local, because a local is faster than a field. */
const LIBRARY = {
  ...{ byte: 'string.byte', find: 'string.find', format: 'string.format', match: 'string.match' },
  ...{ sub: 'string.sub', rep: 'string.rep', concat: 'table.concat', sort: 'table.sort' },
}

export interface ScriptParts {
  /** The code of the algorithms, whose functions are declared. */
  algorithms: readonly AlgorithmLua[]
  /** Lua that declares `now`. */
  now: string
  /** Names of locals of the whole script. */
  names: readonly string[]
  /** More declarations. They can depend on the text that follows. */
  declaration: () => string
  body: readonly string[]
}

/** Assembles a script. */
export function assembleScript({ algorithms, now, names, declaration, body }: ScriptParts): string {
  const text = replaceWords(body.join(''), word => CONSTANTS.get(word))
  const functions = new Set(algorithms.map(({ declare }) => declare))
  const declared = replaceWords([...functions].join(''), word => CONSTANTS.get(word))
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
    declaration(),
    text,
  ].join('')
}

/** The Lua expression of how many records of the caller come first in KEYS, or the records of a refund. */
export const RECORDS_OF_SUBJECT =
  "subject == 'key' and 2 or subject == 'pointer' and 3 or subject == 'token' and 1 or 0"
export const RECORDS_OF_REFUND = "ARGV[3] == 'consumer' and 1 or 0"

/** The same of a limit by name whose identities can have overrides. */
export const RECORDS_OF_LIMIT = 'records'

/** Counts these records. @param present Lua expressions of the marks of those identities */
export const countRecords = (present: readonly string[]) =>
  present.length > 0
    ? `records = ${present.map(mark => `(${mark} ~= ${ABSENT} and 1 or 0)`).join(' + ')}\n`
    : ''

/** Replaces the consumer in the keys, if only the store knows it. */
export const RESOLVE_POINTER = `if subject == 'pointer' then\n${POINTER}end\n`

/** Reads the overrides of the identities of a limit by name, behind the numbers that the call gives. */
const OVERRIDES_OF_LIMIT = `
for i = 1, ${RECORDS_OF_LIMIT} do
if values[i] then
settings = settings .. ' ' .. values[i]
end
end
`.trimStart()

/** Reads the numbers that a call gives to rules of a limit by name, and overrides. Empty: nothing can change its numbers. */
export const numbersOfLimit = (ruleSet: Parameters<typeof takesNumbers>[0]) =>
  takesNumbers(ruleSet)
    ? `settings = ARGV[3] or ''\n${ruleSet.overridable ? OVERRIDES_OF_LIMIT : ''}overrides_at = settings ~= '' and 1\n`
    : ''

/** Reads the record of the consumer, whose overrides apply to a refund, or the numbers of the call, and the plan. @param ofLimit of `numbersOfLimit` */
export const settingsOfRefund = (ofLimit: string) =>
  "if ARGV[3] == 'consumer' and values[1] then\nsettings = values[1]\n" +
  "overrides_at = find(settings, 'override=', 1, true)\n" +
  (ofLimit && `elseif ARGV[3] ~= 'consumer' then\n${ofLimit}`) +
  'end\nplan = ARGV[4]\n'

/** Whether calls or overrides can change numbers of a limit by name. */
const takesNumbers = ({
  hasSubject,
  entries,
}: Pick<RuleSetShape, 'hasSubject' | 'overridable'> & {
  entries: readonly { takesOverrides: boolean }[]
}) => !hasSubject && entries.some(entry => entry.takesOverrides)

/**
 * Replaces the totals of a refund with an id (refund.ts) by what they grow by: ` abc=5 xyz=2`, by the families of rules. Those of rules that
 * another deployment has are kept. `storeRefundOnce` stores them after the states. Here they are stored as they are, so that a Redis that refuses
 * this has given nothing back. The expiry never becomes shorter, because another deployment may need it longer.
 * @param first index in ARGV of the units of the first rule
 */
export function countRefundOnce(first: number, rules: readonly { family: string }[]): string {
  const id = first + 2 * rules.length
  return `
if ARGV[${id}] then
(function()
local key = KEYS[#KEYS]
local kept = redis.call('HMGET', key, ARGV[${id}], '${KEEP_FIELD}')
local keep = format('%.0f', math.max(kept[2] or 0, ARGV[${id + 1}]))
totals = kept[1] or ''
redis.call('HSET', key, ARGV[${id}], totals, '${KEEP_FIELD}', keep)
redis.call('EXPIRE', key, keep)
local families = {${rules.map(({ family }) => literal(family)).join(', ')}}
for i = 1, #families do
local at, name = ${first - 2} + 2 * i, ' ' .. families[i] .. '='
local before = (match(totals, name .. '(%d+)') or 0) + 0
local total = math.max(before, ARGV[at] + 0)
totals = string.gsub(totals, name .. '%d+', '') .. name .. format('%.0f', total)
ARGV[at], ARGV[at + 1] = total - before, ARGV[at + 1] - before
end
end)()
end
`.trimStart()
}

/** In the hash of totals: how long it is kept (s). No id has this name. */
const KEEP_FIELD = 'keep'

/** Stores the totals. @param first as for `countRefundOnce` */
export const storeRefundOnce = (first: number, rules: readonly unknown[]) =>
  `if totals then\nredis.call('HSET', KEYS[#KEYS], ARGV[${first + 2 * rules.length}], totals)\nend\n`

/**
 * Replaces a plan that the config does not have by the default plan.
 * @param mayBeUnknown Lua condition under which the config may not know the plan
 */
export function replaceUnknownPlan(plans: readonly string[], mayBeUnknown: string): string {
  const known = plans.map(plan => `plan ~= ${literal(plan)}`).join(' and ')
  return `if ${mayBeUnknown} and ${known} then\nplan = ${literal(plans[0]!)}\nend\n`
}

/** The Lua text that runs `textOf(plan)` for the plan of the caller. Plans without a text are left out. */
export function forPlan(plans: readonly string[], textOf: (plan: string) => string): string {
  const branches = plans.flatMap(plan => {
    const name = literal(plan)
    const text = textOf(plan)
    return text ? [`if plan == ${name} then\n${text}`] : []
  })
  return splitIntoChains(branches)
    .map(chain => `${chain.join('else')}end\n`)
    .join('')
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
