/**
 * Limits by name as a service binding: other Workers call them without HTTP, without a store of their own, and with types. The only
 * module that imports `cloudflare:workers`.
 */
import { RpcTarget, WorkerEntrypoint, waitUntil } from 'cloudflare:workers'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Environment } from '../../config/environment.ts'
import type { LimitIdentity, LimitOptions } from '../limits/arguments.ts'
import { createLimiter } from '../limits/create-limiter.ts'
import type { AcquireOptions, LimitDecision, Limiter, LimiterSettings } from '../limits/limiter.ts'

/** Set by the caller's wrangler.toml, beside `service` and `entrypoint`; no request can change it. */
export interface LimitsProps {
  /** The limit that `limit({ key })` means. Needed only where the config has several. */
  limit?: string
}

/** A decision, as it travels: plain data. */
export interface RpcDecision {
  /** As in Cloudflare's rate limiting binding. */
  success: boolean
  limit: string
  allowed: boolean
  /** Whole ms to wait before the work begins (`leaky-bucket`; else 0). */
  delayMs: number
  /** Whole ms after which this cost would be allowed; 0 when it is, -1 for never. */
  retryAfterMs: number
  /** One for each rule that took part. */
  rules: readonly RpcVerdict[]
  /** Set when the store has not decided. */
  degraded?: string
  /** For `refund`. */
  receipt: string
}

export interface RpcVerdict {
  name: string
  mode: 'enforce' | 'shadow'
  allowed: boolean
  remaining: number
  resetAfterMs: number
  retryAfterMs: number
}

/** What a binding to the entrypoint can do. */
export interface LimitsService {
  /** As Cloudflare's rate limiting binding: any period, exact, and one count for the world. */
  limit(options: { key: string }): Promise<RpcDecision>
  /** @throws TypeError for a limit, a part of an identity or a cost that does not exist */
  limit(name: string, identity?: LimitIdentity, options?: LimitOptions): Promise<RpcDecision>
  /** How things stand. Spends nothing. */
  peek(name: string, identity?: LimitIdentity): Promise<RpcDecision>
  /**
   * Gives back what a decision has spent, or `cost` units of it.
   * @param receipt of that decision. An isolate remembers the last 10,000 for a minute
   * @throws TypeError for a receipt that is older, or of another isolate
   */
  refund(receipt: string, options?: LimitOptions): Promise<RpcDecision>
  /**
   * Waits until it may be done. What it holds is free again when the returned object is disposed of, at the latest when the context
   * of the caller ends:
   *
   *     using slot = await env.LIMITS.acquire('exports', { account: '42' })
   */
  acquire(name: string, identity?: LimitIdentity, options?: AcquireOptions): Promise<AcquiredSlot>
}

/** A release is reported to the store within 250 ms. */
const REPORTED_MS = 500

/** What is held until it is released: by `release`, by `using`, or when the context of the caller ends. */
export class AcquiredSlot extends RpcTarget {
  readonly #decision: LimitDecision
  readonly #plain: RpcDecision
  #released!: () => void

  constructor(decision: LimitDecision, plain: RpcDecision, ctx: ExecutionContext) {
    super()
    this.#decision = decision
    this.#plain = plain
    // As long as this context lives, it is disposed of when the caller's ends; and the timer that reports the release can go off.
    const released = new Promise<void>(resolve => {
      this.#released = resolve
    })
    ctx.waitUntil(released.then(() => new Promise(resolve => setTimeout(resolve, REPORTED_MS))))
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

/**
 * The class that a Worker exports as an entrypoint:
 *
 *     export class Limits extends limitsEntrypoint(config) {}
 *
 * and in the caller's wrangler.toml: `services = [{ binding = "LIMITS", service = "…", entrypoint = "Limits" }]`.
 */
export function limitsEntrypoint(
  config: ConfigInput,
  settings: LimiterSettings = {},
): new (
  ctx: ExecutionContext<LimitsProps>,
  env: Environment,
) => WorkerEntrypoint<Environment, LimitsProps> & LimitsService {
  const names = Object.keys(config.limits ?? {})
  /** One for the isolate: plain data that learns from all requests. */
  let limiter: Limiter | undefined
  const receipts = new Receipts()

  return class Limits extends WorkerEntrypoint<Environment, LimitsProps> implements LimitsService {
    get #limiter(): Limiter {
      limiter ??= createLimiter(config, { env: this.env, waitUntil, ...settings })
      return limiter
    }

    async limit(
      first: string | { key: string },
      identity: LimitIdentity = {},
      options: LimitOptions = {},
    ): Promise<RpcDecision> {
      const decision =
        typeof first === 'string'
          ? await this.#limiter.limit(first, identity, options)
          : await this.#limiter.limit(...this.#ofKey(first))
      // A call has no end that could be seen: what stays held is for `acquire`.
      decision.release()
      return plainOf(decision, receipts.issue(decision))
    }

    async peek(name: string, identity: LimitIdentity = {}): Promise<RpcDecision> {
      return plainOf(await this.#limiter.peek(name, identity), '')
    }

    async refund(receipt: string, options: LimitOptions = {}): Promise<RpcDecision> {
      const decision = receipts.decisionOf(receipt)
      if (!decision)
        throw new TypeError(
          'This receipt is unknown: it is older than a minute, or comes from another isolate.',
        )
      return plainOf(await this.#limiter.refund(decision, options), receipt)
    }

    async acquire(
      name: string,
      identity: LimitIdentity = {},
      options: AcquireOptions = {},
    ): Promise<AcquiredSlot> {
      const decision = await this.#limiter.acquire(name, identity, options)
      return new AcquiredSlot(decision, plainOf(decision, receipts.issue(decision)), this.ctx)
    }

    #ofKey({ key }: { key: string }): [name: string, identity: LimitIdentity] {
      const name = this.ctx.props?.limit ?? (names.length === 1 ? names[0] : undefined)
      if (name === undefined)
        throw new TypeError(
          `limit({ key }) could mean ${names.join(', ') || 'no limit: the config has none'}. Name one in the props of the binding: { "limit": "${names[0] ?? 'name'}" }.`,
        )
      const rules = (config.limits as Record<string, readonly { by?: readonly string[] }[]> | undefined)?.[
        name
      ]
      const parts = [...new Set((rules ?? []).flatMap(({ by = [] }) => by))]
      if (parts.length === 0)
        throw new TypeError(
          `The limit '${name}' counts all calls together, so a key has no effect. Add by: ['key'] to a rule, or call limit('${name}').`,
        )
      if (parts.length > 1)
        throw new TypeError(
          `The limit '${name}' counts by ${parts.join(' and ')}, which one key cannot name. Call limit('${name}', { … }).`,
        )
      return [name, { [parts[0]!]: key }]
    }
  }
}

/** Decisions that may be refunded: plain data of this isolate. */
class Receipts {
  readonly #decisions = new Map<string, { decision: LimitDecision; until: number }>()

  issue(decision: LimitDecision): string {
    const now = Date.now()
    for (const [receipt, { until }] of this.#decisions) {
      if (until > now && this.#decisions.size < MOST_RECEIPTS) break
      this.#decisions.delete(receipt)
    }
    const receipt = crypto.randomUUID()
    this.#decisions.set(receipt, { decision, until: now + RECEIPT_MS })
    return receipt
  }

  decisionOf(receipt: string): LimitDecision | undefined {
    const found = this.#decisions.get(receipt)
    return found && found.until > Date.now() ? found.decision : undefined
  }
}

const MOST_RECEIPTS = 10_000
const RECEIPT_MS = 60_000

function plainOf(
  { limit, allowed, delayMs, retryAfterMs, verdicts, degraded }: LimitDecision,
  receipt: string,
): RpcDecision {
  const ms = (microseconds: number) => (microseconds < 0 ? -1 : Math.ceil(microseconds / 1e3))
  return {
    ...{ success: allowed, limit, allowed, delayMs, retryAfterMs, receipt },
    rules: verdicts.map(({ rule, mode, allowed, remaining, resetAfter, retryAfter }) => ({
      ...{
        name: rule.name,
        mode: mode === 'shadow' ? ('shadow' as const) : ('enforce' as const),
        allowed,
        remaining,
      },
      ...{ resetAfterMs: ms(resetAfter), retryAfterMs: ms(retryAfter) },
    })),
    ...(degraded && { degraded }),
  }
}
