/**
 * Calls the hooks of the config (src/config/hooks.ts) for a request: `identify`, `skip`, `plan`, `cost` and `amounts`
 * before the decision, in this order, and `refusal` for the reply to a refused request. A Worker whose config has no hooks does
 * not carry this file.
 *
 * A hook that throws, takes too long or returns an invalid result is a failure of limiting code, never a 500. The
 * request is decided as if the store had failed, by the `onStoreFailure` of each rule; with `failOpen`, as if the config
 * did not have the hook. If `identify` fails and anonymous callers are not accepted, the caller is unknown and gets a
 * 503. The first failure of each hook is logged.
 */

import type { Config } from '../../config/compile.ts'
import { ANONYMOUS, IDENTIFY } from '../../config/compile-route.ts'
import { appliesToPlan, withoutPlans } from '../../config/compile-rule.ts'
import { milliseconds } from '../../config/duration.ts'
import type { Amounts, Body, HookContext, HookName, RefusalInfo } from '../../config/hooks.ts'
import type { Credential } from '../../credentials/credential.ts'
import { GatewayError, traceOf } from '../../errors.ts'
import type { Log } from '../../log.ts'
import { refusingRuleNames } from '../../metrics/observation.ts'
import { sha256 } from '../../sha256.ts'
import { escaped } from '../../store/escape.ts'
import { consumerKey, UNKNOWN_CONSUMER } from '../../store/keys.ts'
import { type Caller, modeOf } from './caller.ts'
import { withDeadline } from './deadline.ts'
import type { Matched } from './match.ts'
import { observe } from './observe.ts'
import type { EarlyRefusal, Ruling } from './ruling.ts'

/** A request after the hooks were applied. */
export interface AppliedHooks {
  caller: Caller
  matched: Matched
  /** What the request will cost, by unit, if a hook says it. */
  amounts?: Amounts
  /** The error of the first hook that failed. If set, the store is not asked. */
  failure?: unknown
}

/**
 * Identifies the caller of a request.
 *
 * @param callIdentifyHook the hook `identify`, if the config has one
 */
export type Identify = (callIdentifyHook?: () => Promise<Credential | undefined>) => Promise<Caller>

/** Runs the hooks of a config. */
export interface HookRunner {
  /**
   * Identifies the caller, with the hook `identify` if it is accepted, and applies the other hooks.
   *
   * @throws as the given function, or if `identify` fails and anonymous callers are not accepted
   */
  apply(identifyWith: Identify, request: HookRequest): Promise<AppliedHooks>
  /** Returns the reply to a refused request: the hook's, or the given one. Never throws. */
  refuse(
    incoming: Pick<HookRequest, 'request' | 'host'>,
    refused: RefusedRequest,
    reply: Response,
  ): Promise<Response>
}

export interface HookRequest {
  request: Request
  matched: Matched
  /** The request object of the framework around Sluice. */
  host?: unknown
}

export interface RefusedRequest {
  ruling: Ruling
  caller?: Caller
  matched?: Matched
}

/** The most units that a request can cost. */
const MAX_COST = 1e9

/**
 * Creates the runner of the hooks of a config.
 *
 * @param env variables and bindings of the platform
 */
export function createHookRunner(
  { deadline, ...hooks }: NonNullable<Config['hooks']>,
  { plans, units, failOpen }: Pick<Config, 'plans' | 'units' | 'failOpen'>,
  log: Log,
  env: Readonly<Record<string, unknown>> = {},
): HookRunner {
  const deadlineMs = milliseconds(deadline)
  const hasNoEstimate = new Set(
    [...(units ?? [])].flatMap(([name, unit]) => (unit.estimate === undefined ? name : [])),
  )
  const logged = new Set<HookName>()

  /** @throws GatewayError if the hook throws, is too slow, or returns an invalid result */
  async function run<T>(
    name: HookName,
    call: () => unknown,
    isValid: (result: unknown) => result is T,
  ): Promise<T> {
    try {
      const result = await withDeadline(deadlineMs, call())
      if (isValid(result)) return result
      // Not the value: it may be the name of a person.
      throw new GatewayError(
        'ERR_HOOK_FAILED',
        `It returned ${describeKind(result)}, which is not a valid result.`,
      )
    } catch (error) {
      if (!logged.has(name) && log('error', 'hook', { hook: name, error: traceOf(error) })) logged.add(name)
      const why = error instanceof GatewayError ? error.message : `It threw ${errorName(error)}.`
      throw new GatewayError('ERR_HOOK_FAILED', `The hook '${name}' failed. ${why}`)
    }
  }

  async function apply(
    identifyWith: Identify,
    { request, matched, host }: HookRequest,
  ): Promise<AppliedHooks> {
    let failure: unknown
    let copy: Request | undefined
    const bodiless = () => (copy ??= withoutBody(request))

    /** The result of a hook, or the default if the config does not have the hook or it fails. */
    async function resultOf<T>(
      name: HookName,
      defaultResult: T,
      call: () => unknown,
      isValid: (result: unknown) => result is T,
    ): Promise<T> {
      if (!hooks[name]) return defaultResult
      try {
        return await run(name, call, isValid)
      } catch (error) {
        if (!failOpen) failure ??= error
        return defaultResult
      }
    }

    async function identify(): Promise<Credential | undefined> {
      const context = contextOf(env, host, matched)
      const call = () => hooks.identify!(bodiless(), context)
      // If anonymous callers are accepted, this caller is anonymous.
      const name = await (matched.settings.accept.includes(ANONYMOUS)
        ? resultOf('identify', undefined, call, isName)
        : hooks.identify && run('identify', call, isName))
      return name === null || name === undefined ? undefined : credentialOf(name)
    }

    const caller = await identifyWith(identify)
    if (caller.refusal) return { matched, caller: nameHookCredential(caller, caller.refusal, matched) }
    const context = contextOf(env, host, matched, caller)
    const { settings, rules } = matched
    const isSkipped = await resultOf('skip', false, () => hooks.skip!(bodiless(), context), isBoolean)
    const plan = canNamePlan(caller)
      ? await resultOf('plan', undefined, () => hooks.plan!(bodiless(), context), isPlan)
      : undefined
    if (isSkipped || !settings.isLimited) {
      const guesses = rules.filter(({ on }) => on === 'auth-failure')
      const unlimited = { ...matched, settings: { ...settings, isLimited: false }, rules: guesses }
      return { ...withPlan(caller, unlimited, plan), failure }
    }
    const costContext = { ...context, cost: settings.cost }
    const cost = await resultOf('cost', settings.cost, () => hooks.cost!(bodiless(), costContext), isCost)
    const withoutEstimate = rules.map(({ unit }) => unit).filter(unit => hasNoEstimate.has(unit))
    const isComplete = (result: unknown): result is Amounts =>
      isAmounts(result) && withoutEstimate.every(unit => Object.hasOwn(result, unit))
    const amounts = await resultOf('amounts', {}, () => hooks.amounts!(bodiless(), context), isComplete)
    const costed = withPlan(caller, { ...matched, settings: { ...settings, cost } }, plan)
    return { ...costed, amounts, failure }
  }

  const isPlan = (result: unknown): result is string | null | undefined =>
    result === null || result === undefined || plans.includes(result as string)

  return {
    apply,

    async refuse({ request, host }, { ruling, caller, matched }, reply) {
      if (!hooks.refusal) return reply
      const call = async () => {
        const context = contextOf(env, host, matched, caller)
        const requestId = reply.headers.get('x-request-id') ?? ''
        const { outcome, verdicts, retryAfter } = observe(ruling, {
          ...{ requestId, storeMs: 0, route: context.route },
        })
        const info: RefusalInfo = {
          ...{ ...context, request: withoutBody(request), requestId },
          outcome: outcome as RefusalInfo['outcome'],
          policies: refusingRuleNames(verdicts, 'enforce'),
          ...(retryAfter !== undefined && { retryAfterSeconds: retryAfter }),
        }
        // A copy, because the hook may read its body.
        return mergeReply(await hooks.refusal!(info, reply.clone()), reply)
      }
      try {
        return await run('refusal', call, result => result instanceof Response)
      } catch {
        return reply
      }
    },
  }
}

/** Collects what is known about a request, for a hook. */
function contextOf(
  env: HookContext['env'],
  host: unknown,
  matched: Matched | undefined,
  { address, credential }: Partial<Caller> = {},
): HookContext {
  const route = matched?.route?.name
  const consumer = credential?.consumer
  return {
    ...{ env, host },
    ...(route !== undefined && { route }),
    ...(address !== undefined && { address }),
    ...(consumer !== undefined && consumer !== UNKNOWN_CONSUMER && { consumer, mode: modeOf(credential) }),
  }
}

/**
 * A copy of the request without its body: a hook that read the body would take it away from the origin or the user's
 * code.
 */
function withoutBody(request: Request): Request {
  const { url, method, headers, signal } = request
  const init = { method, headers, signal, cf: (request as { cf?: unknown }).cf }
  return new Request(url, init as RequestInit)
}

/**
 * Creates the credential of the consumer `identify~<name>`. No consumer of an API key contains a `~`, and no issuer
 * is called `identify`. The name is escaped, so it cannot forge a part of a key.
 */
function credentialOf(name: string): Credential {
  const consumer = `${IDENTIFY}~${escaped(name)}`
  return {
    ...{ method: IDENTIFY, consumer, digest: sha256(consumer), isVerified: true },
    subject: { kind: 'token', consumerKey: consumerKey(consumer) },
  }
}

/** A hook cannot name the plan of a key, which the store knows, or of a token, which contains it. */
const canNamePlan = ({ credential }: Caller) => !credential || credential.method === IDENTIFY

/** Names the hook's credential in the reply to a caller without one. */
function nameHookCredential(
  caller: Caller,
  refusal: EarlyRefusal,
  { settings: { accept } }: Matched,
): Caller {
  if (refusal.kind !== 'unauthenticated' || !accept.includes(IDENTIFY)) return caller
  return {
    ...caller,
    refusal: {
      ...refusal,
      accepted: ['what identifies you to this service (such as a session cookie)', ...refusal.accepted],
    },
  }
}

function withPlan(caller: Caller, matched: Matched, plan: string | null | undefined): AppliedHooks {
  if (plan === null || plan === undefined) return { caller, matched }
  const { credential } = caller
  if (credential?.subject.kind === 'token') {
    return {
      caller: { ...caller, credential: { ...credential, subject: { ...credential.subject, plan } } },
      matched,
    }
  }
  // Other callers without a credential have no plan, so rules of plans do not apply to them. These rules do apply to
  // this caller.
  const rules = matched.rules.filter(rule => appliesToPlan(rule, plan)).map(withoutPlans)
  return { caller: { ...caller, plan }, matched: { ...matched, rules } }
}

/** Not the empty text: all callers without a name would be one consumer. */
const isName = (result: unknown): result is string | null | undefined =>
  result === null || result === undefined || (typeof result === 'string' && result !== '')

const isBoolean = (result: unknown): result is boolean => typeof result === 'boolean'

const isAmounts = (result: unknown): result is Amounts =>
  typeof result === 'object' && result !== null && Object.values(result).every(isCost)

const isCost = (result: unknown): result is number =>
  Number.isInteger(result) && (result as number) >= 0 && (result as number) <= MAX_COST

/** Adds our headers to the hook's reply unless it has them: when to try again, and the state of the limits. */
function mergeReply(result: unknown, ours: Response): Response | undefined {
  if (result === null || result === undefined) return ours
  const isResponse = result instanceof Response
  if (!isResponse && !isBody(result)) return undefined
  const theirs = isResponse ? result : new Response(result, { status: ours.status })
  const reply = new Response(theirs.body, theirs)
  ours.headers.forEach((value, name) => {
    if (name !== 'content-type' && !reply.headers.has(name)) reply.headers.set(name, value)
  })
  return reply
}

function isBody(result: unknown): result is Body {
  const kinds = [ArrayBuffer, Blob, FormData, URLSearchParams, ReadableStream]
  return (
    typeof result === 'string' || ArrayBuffer.isView(result) || kinds.some(kind => result instanceof kind)
  )
}

const describeKind = (result: unknown) =>
  result === null ? 'null' : Array.isArray(result) ? 'a list' : typeof result

const errorName = (error: unknown) => (error instanceof Error ? error.name : typeof error)
