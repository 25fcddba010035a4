/**
 * The class behind a service binding: its methods, and the plain data that they return. Only this folder needs
 * `cloudflare:workers`.
 */
import { env, RpcTarget, WorkerEntrypoint } from 'cloudflare:workers'
import { show } from '../../config/check/mistake.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'
import { applyVariables, type Environment } from '../../config/environment.ts'
import type {
  Amounts,
  CostOptions,
  LimitIdentity,
  LimitOptions,
  NumbersOptions,
} from '../limits/arguments.ts'
import type {
  LimitDecision,
  Limiter,
  LimitPause,
  PauseLength,
  ReserveOptions,
} from '../limits/limiter-shape.ts'
import { reportAtStart } from '../report-at-start.ts'
import type { RuleResult } from '../rule-result.ts'
import { checkKeyOptions, type KeyOptions } from './key-options.ts'
import { type RpcAcquireOptions, withinLongestWait } from './longest-wait.ts'
import { createReceipts, type Receipt, type Receipts } from './receipt.ts'

export type { Receipt, RpcAcquireOptions }

/** Props of a binding. Only the caller's wrangler.toml can set them, beside `service` and `entrypoint`. */
export interface LimitsProps {
  /** The limit for `limit({ key })`. Needed only if the config has several. */
  limit?: string
}

/** A decision as plain data, which can be sent between Workers. */
export interface RpcDecision {
  /** The same as `allowed`, for compatibility with Cloudflare's rate limiting binding. */
  success: boolean
  /** Name of the limit in the config. */
  limit: string
  /** If false, nothing was spent. */
  allowed: boolean
  /** How long to wait before the work starts (`leaky-bucket`; else 0). In whole ms. */
  delayMs: number
  /** After this time the same cost would be allowed; 0 if it is allowed now, -1 if never. In whole ms. */
  retryAfterMs: number
  /** One for each rule that took part. */
  rules: readonly RuleResult[]
  /** Set if the limit is paused: when the pause ends, by the store's clock (ms since the epoch). */
  pausedUntil?: number
  /** Of `refund` and `settle`: the rules that a deployment has changed or removed since the decision, and that give nothing back. */
  changedRules?: readonly string[]
  /** Why the store has not decided; absent if it has. */
  degraded?: string
  /** For `refund` and `settle`. Plain data, which can be stored and sent as JSON. */
  receipt: Receipt
}

/** The state after a settlement. */
export interface RpcSettlement extends RpcDecision {
  /** Whether this call has replaced the reserved units. Otherwise, another one has, or the reservation has ended. */
  applied: boolean
}

/** The arguments of `limit`: those of Cloudflare's rate limiting binding, or a limit by name. */
export type LimitArguments =
  | [options: KeyOptions]
  | [name: string, identity?: LimitIdentity, options?: CostOptions]

/** The methods of a binding to the entrypoint. */
export interface LimitsService {
  /**
   * Decides, and spends if all rules of the limit admit. `limit({ key })` has the signature of Cloudflare's rate
   * limiting binding; the props of the binding name the limit. One signature for both forms: the type of a binding
   * (`Service<typeof Limits>`) has only the last of several overloads.
   *
   * @throws TypeError for an unknown limit, option or part of an identity, and for an invalid cost
   */
  limit(...args: LimitArguments): Promise<RpcDecision>
  /** Returns what `limit` would return now, and spends nothing. */
  peek(name: string, identity?: LimitIdentity, options?: NumbersOptions): Promise<RpcDecision>
  /**
   * Gives back what a decision has spent, or `cost` units of it, and no more than is certainly missing. Works in every
   * isolate, and the store gives no unit back twice. Partial refunds add up within an isolate.
   *
   * @param receipt of the decision, unchanged
   * @throws TypeError for a receipt that `limit` or `acquire` cannot have returned, and for an invalid cost
   */
  refund(receipt: Receipt, options?: LimitOptions): Promise<RpcDecision>
  /**
   * Decides as `limit`, and reserves units whose amount is known only afterwards, until `settle(receipt, amounts)` or
   * for the `ttl` of their unit. The reservation is not renewed.
   */
  reserve(name: string, identity?: LimitIdentity, options?: ReserveOptions): Promise<RpcDecision>
  /**
   * Replaces the units that a decision has reserved by what the call has cost. Works in every isolate, and the store
   * does it at most once.
   *
   * @param receipt of the decision, unchanged
   * @throws TypeError for a receipt that `reserve` cannot have returned, an unknown unit and an invalid amount
   */
  settle(receipt: Receipt, amounts: Amounts): Promise<RpcSettlement>
  /**
   * Waits until the limit admits. Units in flight are released when the returned object is disposed of, at the latest
   * when the context of the caller ends:
   *
   *     using units = await env.LIMITS.acquire('exports', { account: '42' })
   *
   * Waits for 30 s at most, whatever `timeoutMs` says: a call cannot pass a signal, so the wait goes on when its caller has given up.
   */
  acquire(name: string, identity?: LimitIdentity, options?: RpcAcquireOptions): Promise<AcquiredUnits>
  /**
   * Refuses all calls for an identity until a time, as `pause` of the limiter. Pass the headers of a response, not the response itself: its
   * body would be sent too.
   */
  pause(name: string, identity: LimitIdentity | undefined, pause: PauseLength): Promise<LimitPause>
  /** Ends the pause of an identity. */
  resume(name: string, identity?: LimitIdentity): Promise<LimitPause>
}

/** How long the context stays alive after a release (ms). The release is reported to the store within 250 ms. */
const KEEP_ALIVE_AFTER_RELEASE_MS = 500

/**
 * An acquired decision. Its units in flight are held until `release`, the end of a `using` block, or the end of the
 * caller's context.
 */
export class AcquiredUnits extends RpcTarget {
  readonly #decision: LimitDecision
  readonly #plain: RpcDecision
  #released!: () => void

  constructor(decision: LimitDecision, plain: RpcDecision, ctx: ExecutionContext) {
    super()
    this.#decision = decision
    this.#plain = plain
    // Keeps this context alive until the release is reported. Otherwise the units would not be released when the
    // context of the caller ends, and the timer that reports the release would not run.
    const released = new Promise<void>(resolve => {
      this.#released = resolve
    })
    ctx.waitUntil(
      released.then(() => new Promise(resolve => setTimeout(resolve, KEEP_ALIVE_AFTER_RELEASE_MS))),
    )
  }

  get decision(): RpcDecision {
    return this.#plain
  }

  get allowed(): boolean {
    return this.#decision.allowed
  }

  release(): void {
    this.#decision.release()
    this.#released()
  }

  [Symbol.dispose](): void {
    this.release()
  }
}

/** A class that a Worker exports as an entrypoint. */
export type EntrypointClass = new (
  ctx: ExecutionContext<LimitsProps>,
  env: Environment,
) => WorkerEntrypoint<Environment, LimitsProps> & LimitsService

/** The limits of a config on their store. */
export interface ConnectedLimits {
  /** Compiled. */
  limits: Config['limits']
  limiter: Pick<Limiter, 'limit' | 'peek' | 'refund' | 'reserve' | 'settle' | 'acquire' | 'pause' | 'resume'>
}

/**
 * Creates the class of an entrypoint.
 *
 * @param connect called at the first call in an isolate. If it throws, so does the call, and the next call tries again
 */
export function createEntrypoint(
  config: ConfigInput,
  connect: (env: Environment) => ConnectedLimits,
): EntrypointClass {
  // Nothing is proxied, so an origin is not needed.
  reportAtStart(() => applyVariables({ origin: 'route' }, env))
  const names = Object.keys(config.limits ?? {})
  /** One for the isolate: plain data, shared by all requests. */
  let shared: (Pick<ConnectedLimits, 'limiter'> & { receipts: Receipts }) | undefined

  return class Limits extends WorkerEntrypoint<Environment, LimitsProps> implements LimitsService {
    get #shared(): NonNullable<typeof shared> {
      if (shared) return shared
      const { limiter, limits } = connect(this.env)
      shared = { limiter, receipts: createReceipts(limits) }
      return shared
    }

    get #limiter(): ConnectedLimits['limiter'] {
      return this.#shared.limiter
    }

    async limit(...[first, identity, options]: LimitArguments): Promise<RpcDecision> {
      const decision =
        typeof first === 'string'
          ? await this.#limiter.limit(first, identity, options)
          : await this.#limiter.limit(...this.#argumentsForKey(checkKeyOptions(first, identity)))
      // The end of the caller's work is unknown, so nothing stays held: only `acquire` holds units.
      decision.release()
      return this.#plain(decision)
    }

    async peek(
      name: string,
      identity: LimitIdentity = {},
      options: NumbersOptions = {},
    ): Promise<RpcDecision> {
      return this.#plain(await this.#limiter.peek(name, identity, options))
    }

    async refund(receipt: Receipt, options: LimitOptions = {}): Promise<RpcDecision> {
      const { limiter, receipts } = this.#shared
      const decision = receipts.decisionOf(receipt)
      return toPlainDecision(await limiter.refund(decision, options), receipt)
    }

    async reserve(
      name: string,
      identity: LimitIdentity = {},
      options: ReserveOptions = {},
    ): Promise<RpcDecision> {
      const decision = await this.#limiter.reserve(name, identity, options)
      // As in `limit`. The reservation stays.
      decision.release()
      return this.#plain(decision)
    }

    async settle(receipt: Receipt, amounts: Amounts): Promise<RpcSettlement> {
      const { limiter, receipts } = this.#shared
      const settled = await limiter.settle(receipts.decisionOf(receipt), amounts)
      return { ...toPlainDecision(settled, receipt), applied: settled.applied }
    }

    async acquire(
      name: string,
      identity: LimitIdentity = {},
      options: RpcAcquireOptions = {},
    ): Promise<AcquiredUnits> {
      const decision = await this.#limiter.acquire(name, identity, withinLongestWait(options))
      return new AcquiredUnits(decision, this.#plain(decision), this.ctx)
    }

    async pause(name: string, identity: LimitIdentity = {}, pause: PauseLength): Promise<LimitPause> {
      return await this.#limiter.pause(name, identity, pause)
    }

    async resume(name: string, identity: LimitIdentity = {}): Promise<LimitPause> {
      return await this.#limiter.resume(name, identity)
    }

    #plain(decision: LimitDecision): RpcDecision {
      return toPlainDecision(decision, this.#shared.receipts.receiptOf(decision))
    }

    #argumentsForKey({
      key,
      delta = 1,
    }: KeyOptions): [name: string, identity: LimitIdentity, options: LimitOptions] {
      const name = this.ctx.props?.limit ?? (names.length === 1 ? names[0] : undefined)
      if (name === undefined)
        throw new TypeError(
          `limit({ key }) does not say which limit. Name one (${names.join(', ') || 'the config has none'}) in the props of the binding: { "limit": "${names[0] ?? 'name'}" }.`,
        )
      const limits = (config.limits ?? {}) as Record<string, readonly { by?: readonly string[] }[]>
      if (!Object.hasOwn(limits, name))
        throw new TypeError(
          `The props of the binding name the limit ${show(name)}, which the config does not have. Limits: ${names.join(', ') || 'none'}.`,
        )
      const rules = limits[name]
      const parts = [...new Set((rules ?? []).flatMap(({ by = [] }) => by))]
      if (parts.length === 0)
        throw new TypeError(
          `The limit '${name}' counts all calls together, so a key has no effect. Add by: ['key'] to a rule, or call limit('${name}').`,
        )
      if (parts.length > 1)
        throw new TypeError(
          `The limit '${name}' counts by ${parts.join(' and ')}, but limit({ key }) gives only one value. Call limit('${name}', { … }).`,
        )
      return [name, { [parts[0]!]: key }, { cost: delta }]
    }
  }
}

function toPlainDecision(decision: LimitDecision, receipt: Receipt): RpcDecision {
  const { limit, allowed, delayMs, retryAfterMs, pausedUntil, rules, changedRules, degraded } = decision
  return {
    ...{ success: allowed, limit, allowed, delayMs, retryAfterMs, rules, receipt },
    ...(pausedUntil !== undefined && { pausedUntil }),
    ...(changedRules && { changedRules }),
    ...(degraded && { degraded }),
  }
}
