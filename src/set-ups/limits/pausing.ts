/** Pauses of limits by name: a third party has said when to come back, so all processes stop until then. */
import { show } from '../../config/check/mistake.ts'
import type { LimitRule } from '../../config/compile.ts'
import { withoutSecrets } from '../../credentials/find-secret.ts'
import type { Degraded } from '../../limiter/evaluate.ts'
import type { PreparedCall } from '../../limiter/prepared-call.ts'
import { decodePause, listStream, type Pause, type PauseEntry, type PauseResult } from '../../script/pause.ts'
import { limitRuleKey } from '../../store/keys.ts'
import { milliseconds } from '../rule-result.ts'
import { checkIdentity, checkOptions, type LimitIdentity } from './arguments.ts'
import type { KnownPause, KnownPauses } from './known-pauses.ts'
import type { Limiter, LimitPause, PauseLength } from './limiter-shape.ts'
import { parseRetryAfter } from './retry-after.ts'

/** What an entry of the audit trail says about a pause. */
export interface PauseFacts {
  action: 'limits.pause' | 'limits.resume'
  target: string
  after?: { forMs: number }
}

/** Writes entries for the author of a call. @param key of the state that is paused */
export type PauseAuthor = (key: string, facts: PauseFacts) => Promise<PauseEntry>

export interface PausingOptions {
  rulesOf(name: string): readonly LimitRule[]
  known: KnownPauses
  preparePause(pause: Pause): PreparedCall<PauseResult>
  change(call: PreparedCall<PauseResult>): Promise<PauseResult | Degraded>
  author: PauseAuthor
  /** ms since the epoch */
  nowMs(): number
  decideAt?: (() => number) | undefined
  /** Default: 24 hours. */
  longestMs: number | undefined
}

export function createPausing(options: PausingOptions): Pick<Limiter, 'pause' | 'resume'> {
  const { rulesOf, known, preparePause, change, author, nowMs, decideAt, longestMs } = options

  async function set(key: string, length: number, facts: PauseFacts): Promise<PauseResult | Degraded> {
    return await change(preparePause({ key, length, now: decideAt?.(), entry: await author(key, facts) }))
  }

  return {
    async pause(name, identity = {}, pause) {
      const key = pausedKey(name, identity, rulesOf(name))
      const forMs = lengthOf(pause, nowMs(), longestMs)
      if (forMs === 0) return { limit: name, identity, retryAfterMs: 0 }
      const noted = known.begin(key, forMs, nowMs())
      const facts = { target: pauseTarget(name, identity), after: { forMs } }
      const result = await set(key, forMs * 1e3, { action: 'limits.pause', ...facts })
      if ('cause' in result) return { ...pauseOf(name, identity, noted, nowMs()), degraded: result.cause }
      const { at, pausedUntil = at } = result
      known.confirm([key], { at, pausedUntil }, noted)
      return pauseOf(name, identity, { pausedUntil }, at / 1e3)
    },

    async resume(name, identity = {}) {
      const key = pausedKey(name, identity, rulesOf(name))
      const result = await set(key, 0, { action: 'limits.resume', target: pauseTarget(name, identity) })
      known.end(key, !('cause' in result))
      return { limit: name, identity, retryAfterMs: 0, ...('cause' in result && { degraded: result.cause }) }
    },
  }
}

/**
 * The values of an entry of a process.
 * @param name of the machine or the environment
 * @param nowMs ms since the epoch. Absent: the clock of the store
 */
export const processEntry = (
  { action, target, after }: PauseFacts,
  name: string,
  keepMs: number,
  nowMs: number | undefined,
): string[] => [
  ...['process', name, action, withoutSecrets(target).slice(0, 400)],
  ...[JSON.stringify({ before: {}, after: after ?? {} }), '', '', keepMs.toFixed(), nowMs?.toFixed() ?? ''],
]

/** The call that lists a stream. */
export const prepareListing = (
  stream: string,
  environment: string | undefined,
  nowMs: number,
): PreparedCall<PauseResult> => ({
  call: listStream(stream, environment, nowMs),
  decode: reply => (reply === null || reply === undefined ? { at: 0 } : decodePause(reply)),
})

/** Of an entry of the audit trail: `zendesk/account=42`. */
export const pauseTarget = (name: string, identity: LimitIdentity): string =>
  [name, Object.entries(identity).map(([part, value]) => `${part}=${value}`)]
    .filter(text => text.length > 0)
    .join('/')

/**
 * The state that has the pause: that of the rule with the most parts that the identity names; of several, the first.
 * Every call that counts under that state reads it.
 *
 * @throws TypeError unless the identity has all parts of at least one rule, and no other
 */
export function pausedKey(name: string, identity: LimitIdentity, rules: readonly LimitRule[]): string {
  const named = rules.filter(({ by }) => by.every(part => Object.hasOwn(Object(identity), part)))
  const known = new Set(rules.flatMap(({ by }) => by))
  const areKnown = Object.keys(Object(identity)).every(part => known.has(part))
  checkIdentity(name, identity, named.length > 0 && areKnown ? named : rules)
  // The state of a rule that is off is not read.
  const counting = named.filter(({ mode }) => mode !== 'off')
  const [narrowest] = (counting.length > 0 ? counting : named).toSorted((a, b) => b.by.length - a.by.length)
  return limitRuleKey(name, narrowest!, identity)
}

/** @returns whole ms; 0: nothing to pause, because a stranger has not said for how long @throws TypeError */
function lengthOf(pause: PauseLength, nowMs: number, longestMs = 86400e3): number {
  checkOptions('pause', pause, ['forMs', 'retryAfter'])
  const { forMs, retryAfter } = pause as { forMs?: unknown; retryAfter?: unknown }
  if ((forMs === undefined) === (retryAfter === undefined))
    throw new TypeError('pause needs one of these: { forMs: 30_000 }, or { retryAfter: response }.')
  if (forMs !== undefined && !(typeof forMs === 'number' && forMs > 0))
    throw new TypeError(`forMs is ${show(forMs)}. Use a number of milliseconds above 0.`)
  if (retryAfter !== undefined && !isRetryAfter(retryAfter))
    throw new TypeError(
      `retryAfter is ${show(retryAfter)}. Use a response, its headers, or the text of the header.`,
    )
  const ms = typeof forMs === 'number' ? forMs : (parseRetryAfter(retryAfter as never, nowMs) ?? 0)
  return Math.ceil(Math.min(ms, longestMs))
}

function isRetryAfter(value: unknown): boolean {
  const { headers = value } = Object(value) as { headers?: unknown }
  return typeof value === 'string' || typeof (headers as { get?: unknown } | null)?.get === 'function'
}

function pauseOf(
  limit: string,
  identity: LimitIdentity,
  { pausedUntil }: Pick<KnownPause, 'pausedUntil'>,
  nowMs: number,
): LimitPause {
  const retryAfterMs = Math.max(0, milliseconds(pausedUntil - nowMs * 1e3))
  return { limit, identity, retryAfterMs, pausedUntil: milliseconds(pausedUntil) }
}
