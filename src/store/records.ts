/**
 * The records of credentials, consumers and service tokens in the store. Each is one line of text, which src/script/subject.lua (for
 * tokens src/script/guard.ts) reads in the trip of the decision. Every value is escaped, so that no value can look like another field.
 *
 *     credential   plan=<plan or nothing> created=<time> [expires=<time>] [label=<text>] [hint=<last letters>] [replaced=<id>]
 *                  [signed=<id of the secret>] [mode=test]
 *     token        name=<name> scopes=<scope>,<scope> created=<time> [expires=<time>] [by=<who made it>] [replaced=<id>]
 *     consumer     plan=<plan> [blocked=<time>] [until=<µs>] [by=<operator>] [reason=<text>] [removed=<time>]
 *                  [override=<family>,<numbers>] …
 *
 * The overrides come last: the script looks for the other fields before the first override.
 */

/** The record of an API key or an opaque key. It lives as long as the key is valid. */
export interface CredentialRecord {
  /** Absent: the plan of the consumer. */
  plan?: string
  createdAt: Date
  /** When the key and its record expire. */
  expiresAt?: Date
  label?: string
  /** The last letters of the key, by which people recognize it. */
  hint?: string
  /** Id of the key that replaces this one. This key stays valid for the time of the overlap only. */
  replacedBy?: string
  /** Id of the secret that has signed the key. Absent: the key is not signed. */
  signedBy?: string
  /** Absent: live. */
  mode?: 'test'
}

/** The record of a service token. It lives as long as the token is valid. */
export interface TokenRecord {
  /** Of its owner or its purpose, for people. */
  name: string
  /** src/scopes.ts */
  scopes: readonly string[]
  createdAt: Date
  /** When the token and its record expire. */
  expiresAt?: Date
  /** The operator or the token that has created it. */
  by?: string
  /** Id of the token that replaces this one. This token stays valid for the time of the overlap only. */
  replacedBy?: string
}

/** The record of a consumer. A consumer without a record has the default plan, no block, and no overrides. */
export interface ConsumerRecord {
  /** The plan for credentials that name none. */
  plan?: string
  blockedAt?: Date
  /** When the block ends (µs since the epoch). Absent: when an operator removes it. */
  blockedUntil?: number
  /** The operator that has set the block. Callers do not see it. */
  blockedBy?: string
  /** The reason of the block. Callers do not see it. */
  reason?: string
  /** When its removal began, which is not finished yet. The consumer is blocked. */
  removedAt?: Date
  overrides: readonly Override[]
}

/**
 * The most bytes of a consumer's record that a new override may lead to: about 100 overrides. Each decision of the consumer reads the
 * whole record, which takes Redis about 2 µs for each 1,000 bytes, most of it to hash the text for Lua.
 */
export const MAX_CONSUMER_LENGTH = 12_000

/**
 * Other numbers for one rule and one consumer. They are in the units of the algorithm, so that the script need not convert them. An
 * override belongs to a family of rules: if the rule gets another algorithm or period, the override no longer applies.
 */
export interface Override {
  /** `Rule.family` */
  family: string
  /** Name of the rule, for operators only. `family` determines the rules that it applies to. */
  rule: string
  /** When it expires (µs since the epoch). Absent: never. */
  until?: number
  mode?: 'enforce' | 'shadow' | 'off'
  numbers?: OverrideNumbers
  /** When it was set. */
  at?: Date
  /** The operator that has set it. */
  by?: string
}

export interface OverrideNumbers {
  /** Tag of the rule with these numbers. */
  tag: string
  /** The numbers that the Lua file of the algorithm reads (`--@ numbers`). Without `burstOrStep`, the value of the config applies. */
  rate: number
  period: number
  burstOrStep?: number
  /** As the operator wrote them, for headers and messages. */
  limit: number
  burst: number
}

/** The text of a credential's record. */
export const formatCredential = (record: CredentialRecord): string =>
  formatFields({
    plan: record.plan ?? '',
    created: record.createdAt.toISOString(),
    expires: record.expiresAt?.toISOString(),
    label: record.label,
    hint: record.hint,
    replaced: record.replacedBy,
    signed: record.signedBy,
    mode: record.mode,
  })

/** Parses a credential's record. @returns undefined if the text is not such a record */
export function parseCredential(text: string): CredentialRecord | undefined {
  const { plan, created, expires, label, hint, replaced, signed, mode } = Object.fromEntries(
    parseFields(text),
  )
  if (plan === undefined || created === undefined) return undefined
  return {
    createdAt: new Date(created),
    ...(plan && { plan }),
    ...(expires && { expiresAt: new Date(expires) }),
    ...(label && { label }),
    ...(hint && { hint }),
    ...(replaced && { replacedBy: replaced }),
    ...(signed && { signedBy: signed }),
    ...(mode === 'test' && { mode }),
  }
}

/** The text of a service token's record. */
export const formatToken = (record: TokenRecord): string =>
  formatFields({
    name: record.name,
    scopes: record.scopes.join(','),
    created: record.createdAt.toISOString(),
    expires: record.expiresAt?.toISOString(),
    by: record.by,
    replaced: record.replacedBy,
  })

/** Parses a service token's record. @returns undefined if the text is not such a record */
export function parseToken(text: string): TokenRecord | undefined {
  const { name, scopes, created, expires, by, replaced } = Object.fromEntries(parseFields(text))
  if (name === undefined || !scopes || created === undefined) return undefined
  return {
    name,
    scopes: scopes.split(','),
    createdAt: new Date(created),
    ...(expires && { expiresAt: new Date(expires) }),
    ...(by && { by }),
    ...(replaced && { replacedBy: replaced }),
  }
}

/** The text of a consumer's record: ASCII, so its length is in bytes. */
export const formatConsumer = (record: ConsumerRecord): string =>
  formatFields({
    plan: record.plan ?? '',
    blocked: record.blockedAt?.toISOString(),
    until: record.blockedUntil?.toFixed(),
    by: record.blockedBy,
    reason: record.reason,
    removed: record.removedAt?.toISOString(),
    override: record.overrides.map(formatOverride),
  })

/** Parses a consumer's record. Fields and overrides that cannot be read are left out. */
export function parseConsumer(text: string): ConsumerRecord {
  const all = parseFields(text)
  const { plan, blocked, until, by, reason, removed } = Object.fromEntries(all)
  const endsAt = /^\d+/.exec(until ?? '')?.[0]
  return {
    ...(plan && { plan }),
    ...(blocked && { blockedAt: new Date(blocked) }),
    ...(endsAt && { blockedUntil: Number(endsAt) }),
    ...(by && { blockedBy: by }),
    ...(reason && { reason }),
    ...(removed && { removedAt: new Date(removed) }),
    overrides: all.flatMap(([key, value]) => (key === 'override' ? (parseOverride(value) ?? []) : [])),
  }
}

/** Whether the consumer is blocked. @param now µs since the epoch */
export function isBlocked(
  { blockedAt, blockedUntil }: Pick<ConsumerRecord, 'blockedAt' | 'blockedUntil'>,
  now: number,
): boolean {
  return blockedAt !== undefined && (blockedUntil === undefined || blockedUntil > now)
}

const MODES = { enforce: '1', shadow: '0', off: '-1' } as const

/**
 * `<family>,<until>,<mode>,<tag>,<rate>,<period>,<burst or step>,<limit as written>,<burst as written>,<rule>`, and if both are known,
 * `,<set at, ms>,<by>`. The fields that the script reads come first. Text from users is escaped.
 */
function formatOverride({ family, rule, until, mode, numbers, at, by }: Override): string {
  const { tag, rate, period, burstOrStep, limit, burst } = numbers ?? {}
  const signature = at && by !== undefined ? [at.getTime(), encodeURIComponent(by)] : []
  // `join` writes an empty text for a value that is undefined.
  const code = mode && MODES[mode]
  return [family, until, code, tag, rate, period, burstOrStep, limit, burst, rule, ...signature].join(',')
}

function parseOverride(text: string): Override | undefined {
  const [family, until, code, tag, rate, period, burstOrStep, limit, burst, rule, at, by] = text.split(',')
  if (!family || rule === undefined) return undefined
  const mode = (['enforce', 'shadow', 'off'] as const).find(name => MODES[name] === code)
  return {
    family,
    rule,
    ...(until && { until: Number(until) }),
    ...(mode && { mode }),
    ...(tag && {
      numbers: {
        tag,
        rate: Number(rate),
        period: Number(period),
        ...(burstOrStep && { burstOrStep: Number(burstOrStep) }),
        limit: Number(limit),
        burst: Number(burst),
      },
    }),
    ...(at && by !== undefined && { at: new Date(Number(at)), by: decodeOrKeep(by) }),
  }
}

/**
 * Joins fields to a record; a field with several values is repeated. Commas and colons are not escaped; an override has already escaped
 * the text from users.
 */
function formatFields(fields: Record<string, string | readonly string[] | undefined>): string {
  const escapedValue = (value: string) =>
    encodeURIComponent(value).replaceAll('%2C', ',').replaceAll('%3A', ':')
  return Object.entries(fields)
    .flatMap(([key, values = []]) => [values].flat().map(value => `${key}=${escapedValue(value)}`))
    .join(' ')
}

function parseFields(text: string): [key: string, value: string][] {
  return text.split(' ').flatMap((field): [string, string][] => {
    const [, key, value] = /^([a-z]+)=(.*)$/.exec(field) ?? []
    return key === undefined || value === undefined ? [] : [[key, decodeOrKeep(value)]]
  })
}

function decodeOrKeep(value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    return value
  }
}
