/**
 * Shows a caller what it has left, for its own credential: GET /_sluice/v1/usage. One trip decides a request that costs nothing: the
 * rules report their states, and a bad credential counts as a guess, as with every other request.
 *
 * The reply has enforced rules that count by consumer or credential alone. Other identities are not the caller's own (neighbours share an
 * address), or depend on the request.
 */
import { formatAllowance } from '../../config/allowance.ts'
import type { Config, GatewayRule } from '../../config/compile.ts'
import { ANONYMOUS } from '../../config/compile-route.ts'
import type { Allowed } from '../../limiter/decision.ts'
import { Lru } from '../../lru.ts'
import type { Verdict } from '../../script/evaluation.ts'
import { modeOf, verifiedConsumer } from '../http/caller.ts'
import { createDecideRequest } from '../http/decide-request.ts'
import { describeRefusal } from '../http/deny.ts'
import type { DecisionSource } from '../http/handle.ts'
import type { Ruling } from '../http/ruling.ts'
import { runOrLog } from '../http/unexpected.ts'
import { milliseconds } from '../rule-result.ts'
import { ApiError, asApiError, type ProblemName } from './problems.ts'
import type { RouteRequest } from './route.ts'
import { storeError } from './store-error.ts'

/** What a caller has left. */
export interface OwnUsage {
  /** As in `X-Consumer-Id`. Absent while the kill switch is on, for an opaque key that is new to the isolate. */
  consumer?: string
  mode: 'live' | 'test'
  /** Absent: the config has no plans for this caller. */
  plan?: string
  rules: RuleUsage[]
}

/** What one rule has left for a caller. */
export interface RuleUsage {
  name: string
  /** What the rule counts: `requests`, or a unit of the config. */
  unit: string
  /** Units in each period. */
  limit: number
  /** The limit in words: `120 per minute`. */
  allowance: string
  /** Units that can be spent at once. */
  remaining: number
  /** Until the whole budget is back, if nothing else is spent (whole ms, rounded up). */
  resetAfterMs: number
  /** Units spent above the limit: nothing is admitted until they are worked off. Only of rules that reserve. */
  debt?: number
  /** Whether the rule counts every request of the caller. If not, it counts those of some routes, methods or paths. */
  countsAll: boolean
}

/** @throws ApiError for a request that is refused */
export type ShowOwnUsage = (
  incoming: Pick<RouteRequest, 'request' | 'peer' | 'background' | 'id'>,
) => Promise<OwnUsage>

/** How many requests of one credential an isolate answers at once, and after which time it answers one more (ms). */
const BURST = 20
const INTERVAL_MS = 1000

const MAX_CREDENTIALS = 1000

/** Creates the handler of an isolate. It remembers only when each credential last asked. */
export function createOwnUsage(
  config: Config,
  { identifier, report, ...source }: DecisionSource,
  now: () => number,
): ShowOwnUsage {
  const routes = [config.routeDefaults, ...config.routes]
  const accept = [...new Set(routes.flatMap(route => route.accept))].filter(method => method !== ANONYMOUS)
  const matched = {
    settings: { ...config.routeDefaults, accept, isLimited: true, cost: 0 },
    // Nothing is spent, whatever a hook says about the cost.
    rules: config.rules.flatMap(rule =>
      rule.on === 'auth-failure' ? rule : isOwn(rule) ? { ...rule, cost: 0 } : [],
    ),
    classes: [],
  }
  const pace = createPace(now)

  return async ({ request, peer, background, id: requestId }) => {
    /** How long the caller has to wait, because it has asked too often (ms). */
    let waitMs = 0
    const decideRequest = createDecideRequest(config, {
      ...source,
      match: () => matched,
      identifier: {
        ...identifier,
        async identify(...args) {
          const caller = await identifier.identify(...args)
          if (caller.credential) waitMs = pace(caller.credential.digest)
          return waitMs > 0 ? { ...caller, refusal: NOT_NOW } : caller
        },
      },
    })
    const { ruling, caller, storeMs, finish } = await decideRequest(request, peer, background)
    finish('complete')
    if (waitMs > 0) throw tooOften(waitMs)
    if (ruling.kind !== 'allowed') {
      runOrLog(source.log, () => report(ruling, { requestId, route: undefined, caller, storeMs }, background))
      throw refusedBy(ruling)
    }
    const { degraded, plan, verdicts } = ruling
    // The store has not answered, so what is left is not known. Under the kill switch, nothing is limited.
    if (degraded && degraded.cause !== 'kill-switch')
      throw storeError('none', `The store did not answer (${degraded.cause}).`)
    const consumer = verifiedConsumer(caller, ruling)
    return {
      ...(consumer !== undefined && { consumer }),
      mode: modeOf(caller!.credential),
      ...(plan && { plan }),
      rules: verdicts.filter(({ rule, mode }) => rule.on === 'request' && mode === 'enforce').map(usageOf),
    }
  }
}

/** Replaced by `tooOften`. */
const NOT_NOW = { kind: 'unauthenticated', reason: 'missing', accepted: [] } as const

/** Whether the rule counts by consumer or credential alone, and is a budget of the caller. */
const isOwn = ({ by, isSystemLimit, candidateFor }: GatewayRule) =>
  !isSystemLimit &&
  candidateFor === undefined &&
  by.some(part => part !== 'mode') &&
  by.every(part => part === 'consumer' || part === 'credential' || part === 'mode')

function usageOf({ rule, remaining, resetAfter, debt }: Verdict): RuleUsage {
  const { methods, host, path, routes } = rule.match
  return {
    ...{ name: rule.name, unit: rule.unit, limit: rule.limit, allowance: formatAllowance(rule), remaining },
    resetAfterMs: milliseconds(resetAfter),
    ...(debt !== undefined && { debt }),
    countsAll: (methods ?? host ?? path ?? routes) === undefined,
  }
}

/** @returns a function that returns how long a credential has to wait until it may ask (ms); 0: it may ask now */
function createPace(now: () => number): (digest: string) => number {
  /** When each credential has its whole burst again (ms). */
  const readyAt = new Lru<number>({ size: MAX_CREDENTIALS })
  return digest => {
    const at = now()
    // If the clock was set back, the caller waits as after a full burst, and no longer.
    const ready = Math.min(Math.max(readyAt.get(digest) ?? 0, at), at + BURST * INTERVAL_MS)
    const waitMs = Math.max(0, ready + INTERVAL_MS - at - BURST * INTERVAL_MS)
    readyAt.set(digest, waitMs > 0 ? ready : ready + INTERVAL_MS)
    return waitMs
  }
}

function tooOften(waitMs: number): ApiError {
  const seconds = Math.ceil(waitMs / 1e3)
  return new ApiError(
    'too-often',
    `This credential asks for its usage too often. Nothing was charged. Try again in ${seconds} s.`,
    { headers: { 'retry-after': String(seconds) } },
  )
}

/** By the status of the refusal. */
const PROBLEMS: Readonly<Record<number, ProblemName>> = {
  401: 'unauthenticated',
  403: 'blocked',
  429: 'too-many-guesses',
  503: 'store-unavailable',
}

function refusedBy(ruling: Exclude<Ruling, Allowed>): ApiError {
  const isUnverifiable = ruling.kind === 'unauthenticated' && ruling.reason === 'unverifiable'
  const refusal = describeRefusal(ruling)
  return asApiError(isUnverifiable ? 'issuer-unavailable' : PROBLEMS[refusal.status]!, refusal)
}
