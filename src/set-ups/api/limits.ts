/** What the routes of limits by name need. A Worker without limits by name does not carry it. */
import type { Clock } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { anyCountsInFlight } from '../../limiter/needs.ts'
import { preparePauseBy, prepareResetBy } from '../../limiter/prepared-call.ts'
import { scopesForLimit } from '../../scopes.ts'
import type { ScriptsOf } from '../../script/rule-set-shape.ts'
import type { Script, Store } from '../../store/store.ts'
import { createSwitchBoard, type SwitchBoard } from '../../switches/live.ts'
import type { DecisionSource } from '../http/handle.ts'
import type { createHolder } from '../limits/held.ts'
import { createGuardableLimiter, giveNumbersOf, type LimiterSettings } from '../limits/limiter.ts'
import type { LimiterParts } from '../limits/parts.ts'
import { bearerOf } from './authenticate.ts'
import { createGuardedCalls } from './guarded-calls.ts'
import { readInput } from './read-input.ts'
import { createSignedReceipts } from './receipts.ts'
import type { ApiLimits } from './route.ts'
import type { TokenMemory } from './token-check.ts'

/** The parts that it needs beside those of limits by name. */
export interface ApiLimitParts extends Pick<LimiterParts, 'createReserving' | 'createGiveNumbers'> {
  /** With rules that count units in flight. */
  createHolder: typeof createHolder
  /** Of the limits by name. */
  scriptsOfLimits: ScriptsOf
  /** Of resets. */
  resetScript: () => Script
  /** Of pauses. */
  pauseScript: () => Script
}

/** What a platform passes to the API, as far as limits by name need it. */
export interface ApiLimitOptions {
  /** Of the environment: the address of the store, and secrets. */
  variables: Readonly<Record<string, unknown>> | undefined
  clock: Clock
  decisions: Pick<DecisionSource, 'log'>
  /** Tests pass their own. */
  board?: SwitchBoard | undefined
  /** From which receipts get their key: all isolates have the same. Default: the token of the store. */
  secret?: string | undefined
  /** Of limits by name. Default: that of Workers. */
  limiter?: Pick<LimiterSettings, 'waitUntil' | 'clock'> | undefined
}

export function createApiLimits(
  config: Config,
  store: Store,
  parts: ApiLimitParts & Omit<LimiterParts, 'prepareReset' | 'preparePause'>,
  { variables = {}, clock, decisions, tokens, ...options }: ApiLimitOptions & { tokens: TokenMemory },
): ApiLimits {
  const { secret = String(variables.UPSTASH_REDIS_REST_TOKEN ?? '') } = options
  const { board = createSwitchBoard(clock) } = options
  const isHolding = [...config.limits.values()].some(anyCountsInFlight)
  const own = {
    scriptsOf: parts.scriptsOfLimits,
    prepareReset: (reset: Parameters<LimiterParts['prepareReset']>[0]) =>
      prepareResetBy(parts.resetScript(), reset),
    preparePause: (pause: Parameters<LimiterParts['preparePause']>[0]) =>
      preparePauseBy(parts.pauseScript(), pause),
  }
  // A built Worker finds its missing parts in the prototype.
  const limiterFor = createGuardableLimiter(
    config,
    store,
    Object.assign(Object.create(parts), own),
    { ...platformSettings(), board, variables, log: decisions.log, ...options.limiter },
    isHolding ? parts.createHolder(parts.syncScript) : undefined,
  )
  const guarded = createGuardedCalls(store, tokens)
  return {
    limiterFor,
    receipts: createSignedReceipts(config, secret),
    giveNumbers: giveNumbersOf([...config.limits.values()].flat(), parts),

    serve: async (route, { request, url, address, params }, services) =>
      // Also if the input is wrong, which only callers with a token may learn.
      await guarded(
        bearerOf(request),
        scopesForLimit(params.name!),
        address,
        limiterFor,
        async (limiter, mustHave) => {
          const input = await readInput(route, request, url)
          if (input.body && 'numbers' in (input.body as object)) await mustHave(['limits:numbers'])
          return await route.run({ ...input, params, limiter, gone: () => request.signal }, services)
        },
      ),
  }
}

/** A name that bundlers do not resolve: outside of Workers, the module is missing. */
const WORKERS_MODULE: string = 'cloudflare:workers'

/** On Workers, work after the reply belongs to the request that began it, which the platform knows. */
function platformSettings(): Pick<LimiterSettings, 'waitUntil'> {
  let waitUntil: ((task: Promise<unknown>) => void) | undefined
  void import(/* @vite-ignore */ WORKERS_MODULE).then(
    module => {
      waitUntil = module.waitUntil
    },
    () => {},
  )
  return { waitUntil: task => waitUntil?.(task) }
}
