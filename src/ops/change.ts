/** Changes of administrators, as the audit trail records them. */

/** The author of a change. */
export type Actor =
  | { kind: 'token'; id: string; name: string }
  /** Anyone who has the token of the store. The name is claimed: nothing verifies it. */
  | { kind: 'operator'; name: string }
  /** A process with `createLimiter`, or a Worker. The name is that of the machine, if that is known. Nothing verifies it. */
  | { kind: 'process'; name: string }

export interface Change {
  actor: Actor
  reason?: string
  /** Of the HTTP API. */
  requestId?: string
  /** Of the service token: the change is made only while the store has the token. On a cluster, its record is in another slot, and not read. */
  tokenDigest?: string
}

/** Each is the kind of the target, and what was done to it. */
export const AUDIT_ACTIONS = [
  ...(['keys.create', 'keys.import', 'keys.update', 'keys.rotate', 'keys.revoke'] as const),
  ...(['consumers.plan', 'consumers.block', 'consumers.unblock', 'consumers.remove'] as const),
  ...(['overrides.set', 'overrides.remove', 'switches.set', 'switches.remove'] as const),
  ...(['limits.reset', 'limits.correct', 'limits.pause', 'limits.resume'] as const),
  ...(['tokens.create', 'tokens.rotate', 'tokens.revoke'] as const),
] as const

export type AuditAction = (typeof AUDIT_ACTIONS)[number]

/** Plain values by name. Never a secret. */
export type Facts = Readonly<Record<string, unknown>>

/** What a change does, for the audit trail. */
export interface Entry {
  action: AuditAction
  /** A consumer; `<consumer>/<digits>` of a key; a rule, or `<limit>/<rule>`; the id of a token; `kill`; `<limit>/<identity>`; an address. */
  target: string
  before?: Facts | undefined
  after?: Facts | undefined
}

/** The most characters of `before` and `after` together. Of longer ones, only the names of the values are kept. */
const MAX_FACTS = 4000

/** What differs, as JSON: `{"before":{…},"after":{…}}`. Values that are the same in both are left out. */
export function differenceOf({ before = {}, after = {} }: Pick<Entry, 'before' | 'after'>): string {
  const [was, is] = [written(before), written(after)]
  const pick = (facts: Facts, others: Facts) =>
    Object.fromEntries(
      Object.entries(facts).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(others[name])),
    )
  const difference = { before: pick(was, is), after: pick(is, was) }
  const text = JSON.stringify(difference)
  if (text.length <= MAX_FACTS) return text
  const names = (facts: Facts) => Object.fromEntries(Object.keys(facts).map(name => [name, '…']))
  const short = JSON.stringify({ before: names(difference.before), after: names(difference.after) })
  return short.length <= MAX_FACTS ? short : JSON.stringify({ before: {}, after: { changed: '…' } })
}

const written = (facts: Facts) => JSON.parse(JSON.stringify(facts)) as Facts
