/** What the routes of limits by name need. A Worker without limits by name does not carry it. */
import type { Config } from '../../config/compile.ts'
import { preparePauseBy, prepareResetBy } from '../../limiter/prepared-call.ts'
import type { ScriptsOf } from '../../script/rule-set-shape.ts'
import type { Script, Store } from '../../store/store.ts'
import { createHolder, type Holder } from '../limits/held.ts'
import {
  createGuardableLimiter,
  type GuardableLimiter,
  type Limiter,
  type LimiterSettings,
} from '../limits/limiter.ts'
import type { LimiterParts } from '../limits/parts.ts'
import { createGuardedCalls, type GuardedCalls } from './guarded-calls.ts'
import { createSignedReceipts, type SignedReceipts } from './receipts.ts'
import type { TokenMemory } from './token-check.ts'

/** The parts that it needs beside those of limits by name. */
export interface ApiLimitParts extends Pick<LimiterParts, 'createReserving'> {
  /** Of the limits by name. */
  scriptsOfLimits: ScriptsOf
  /** Of resets. */
  resetScript: () => Script
  /** Of pauses. */
  pauseScript: () => Script
}

/** A limiter whose units in flight a receipt can hold. */
export type HoldingLimiter = Limiter & Holder

export interface ApiLimits {
  limiterFor: GuardableLimiter<HoldingLimiter>
  guarded: GuardedCalls
  receipts: SignedReceipts
}

/** @param secret the token of the store */
export function createApiLimits(
  config: Config,
  store: Store,
  parts: ApiLimitParts & Omit<LimiterParts, 'prepareReset' | 'preparePause'>,
  settings: LimiterSettings,
  { secret, tokens }: { secret: string; tokens: TokenMemory },
): ApiLimits {
  const own = {
    scriptsOf: parts.scriptsOfLimits,
    prepareReset: (reset: Parameters<LimiterParts['prepareReset']>[0]) =>
      prepareResetBy(parts.resetScript(), reset),
    preparePause: (pause: Parameters<LimiterParts['preparePause']>[0]) =>
      preparePauseBy(parts.pauseScript(), pause),
  }
  return {
    // A built Worker finds its missing parts in the prototype.
    limiterFor: createGuardableLimiter(
      config,
      store,
      Object.assign(Object.create(parts), own),
      { ...platformSettings(), ...settings },
      createHolder(() => parts.syncScript()),
    ),
    guarded: createGuardedCalls(store, tokens),
    receipts: createSignedReceipts(config, secret),
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
