/**
 * The records of credentials and consumers in the store: one line of text each, read by src/script/subject.lua in the
 * trip that counts the request. Every value is escaped, so that none can look like another.
 *
 *     credential   plan=<plan or nothing> created=<time> [expires=<time>] [label=<text>] [hint=<last letters>] [replaced=<id>]
 *     consumer     plan=<plan> [blocked=<time>] [until=<µs>] [by=<operator>] [reason=<text>]
 *                  [override=<family>,<numbers>] …
 */

/** The record of an API key or an opaque key. It lives as long as the key is valid. */
export interface CredentialRecord {
  /** Absent: that of the consumer. */
  plan?: string
  createdAt: Date
  /** When the key expires, and its record with it. */
  expiresAt?: Date
  label?: string
  /** The last letters of the key, by which people recognize it. */
  hint?: string
  /** Id of the key that replaces this one, which stays valid for the overlap only. */
  replacedBy?: string
}

/** The record of a consumer. Without one it is on the default plan, not blocked, and has the numbers of its plan. */
export interface ConsumerRecord {
  /** For credentials that name no plan. */
  plan?: string
  blockedAt?: Date
  /** µs since the epoch, when the block ends. Absent: until an operator removes it. */
  blockedUntil?: number
  /** The operator that has blocked it. Callers do not see it. */
  blockedBy?: string
  /** Why it is blocked. Callers do not see it. */
  reason?: string
  overrides: readonly Override[]
}

/**
 * Other numbers for one rule and one consumer, in the units of the algorithm, so that the script need not convert them. They
 * belong to a family: when the rule gets another algorithm or period, they no longer apply.
 */
export interface Override {
  /** `Rule.family` */
  family: string
  /** Name of the rule, for operators: `family` decides what it applies to. */
  rule: string
  /** µs since the epoch, when it expires. */
  until?: number
  mode?: 'enforce' | 'shadow' | 'off'
  numbers?: OverrideNumbers
  /** When it was set, and by which operator. */
  at?: Date
  by?: string
}

export interface OverrideNumbers {
  tag: string
  /** The three numbers that the algorithm's Lua file names; `own` absent: as in the config. */
  rate: number
  period: number
  own?: number
  /** As written, for headers and messages. */
  limit: number
  burst: number
}

export function formatCredential(record: CredentialRecord): string {
  const { plan, createdAt, expiresAt, label, hint, replacedBy } = record
  return fields([
    ['plan', plan ?? ''],
    ['created', createdAt.toISOString()],
    ['expires', expiresAt?.toISOString()],
    ['label', label],
    ['hint', hint],
    ['replaced', replacedBy],
  ])
}

/** @returns undefined for text that is not a record of Sluice */
export function parseCredential(text: string): CredentialRecord | undefined {
  const { plan, created, expires, label, hint, replaced } = Object.fromEntries(entries(text))
  if (plan === undefined || created === undefined) return undefined
  return {
    createdAt: new Date(created),
    ...(plan && { plan }),
    ...(expires && { expiresAt: new Date(expires) }),
    ...(label && { label }),
    ...(hint && { hint }),
    ...(replaced && { replacedBy: replaced }),
  }
}

export function formatConsumer({
  plan,
  blockedAt,
  blockedUntil,
  blockedBy,
  reason,
  overrides,
}: ConsumerRecord): string {
  return fields([
    ['plan', plan ?? ''],
    ['blocked', blockedAt?.toISOString()],
    ['until', blockedUntil?.toFixed()],
    ['by', blockedBy],
    ['reason', reason],
    ...overrides.map(override => ['override', formatOverride(override)] as const),
  ])
}

export function parseConsumer(text: string): ConsumerRecord {
  const all = entries(text)
  const { plan, blocked, until, by, reason } = Object.fromEntries(all)
  const endsAt = /^\d+/.exec(until ?? '')?.[0]
  return {
    ...(plan && { plan }),
    ...(blocked && { blockedAt: new Date(blocked) }),
    ...(endsAt && { blockedUntil: Number(endsAt) }),
    ...(by && { blockedBy: by }),
    ...(reason && { reason }),
    overrides: all.flatMap(([key, value]) => (key === 'override' ? (parseOverride(value) ?? []) : [])),
  }
}

/** @param now µs since the epoch */
export function isBlocked(
  { blockedAt, blockedUntil }: Pick<ConsumerRecord, 'blockedAt' | 'blockedUntil'>,
  now: number,
): boolean {
  return blockedAt !== undefined && (blockedUntil === undefined || blockedUntil > now)
}

const MODES = { enforce: '1', shadow: '0', off: '-1' } as const

/**
 * `<family>,<until>,<mode>,<tag>,<rate>,<period>,<own>,<limit as written>,<burst as written>,<rule>`, and where it is known
 * `,<set at, ms>,<by>`. The fields that the script reads come first, and text from outside is escaped.
 */
function formatOverride({ family, rule, until, mode, numbers, at, by }: Override): string {
  const { tag, rate, period, own, limit, burst } = numbers ?? {}
  const parts = [until, mode ? MODES[mode] : '', tag, rate, period, own, limit, burst]
  const signature = at && by !== undefined ? [at.getTime(), encodeURIComponent(by)] : []
  return [family, ...parts.map(part => part ?? ''), rule, ...signature].join(',')
}

function parseOverride(text: string): Override | undefined {
  const [family, until, code, tag, rate, period, own, limit, burst, rule, at, by] = text.split(',')
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
        ...(own && { own: Number(own) }),
        limit: Number(limit),
        burst: Number(burst),
      },
    }),
    ...(at && by !== undefined && { at: new Date(Number(at)), by: decoded(by) }),
  }
}

/** Commas stay: an override has escaped text from outside already. */
function fields(pairs: readonly (readonly [key: string, value: string | undefined])[]): string {
  return pairs
    .flatMap(([key, value]) =>
      value === undefined
        ? []
        : `${key}=${encodeURIComponent(value).replaceAll('%2C', ',').replaceAll('%3A', ':')}`,
    )
    .join(' ')
}

function entries(text: string): [key: string, value: string][] {
  return text.split(' ').flatMap((field): [string, string][] => {
    const [, key, value] = /^([a-z]+)=(.*)$/.exec(field) ?? []
    return key === undefined || value === undefined ? [] : [[key, decoded(value)]]
  })
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    return value
  }
}
