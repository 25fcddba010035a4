/**
 * Calls the hooks of the config (src/config/hooks.ts) for a request: `identify`, `skip`, `plan` and `cost` before it is decided, in
 * this order, and `refusal` for the reply to a refused one. A Worker whose config has no hooks does not carry this.
 *
 * A hook that throws, takes too long, or returns what it may not is a failure of limiting code, never a 500: the request is
 * decided as while the store fails, by the `onStoreFailure` of each rule. Where it is `identify` that fails and anonymous callers are
 * not accepted, the caller is unknown, and the request gets a 503. The log says once for each hook where it has failed.
 */

import type { Config } from '../../config/compile.ts'
import { ANONYMOUS, IDENTIFY } from '../../config/compile-route.ts'
import { withoutPlans } from '../../config/compile-rule.ts'
import { milliseconds } from '../../config/duration.ts'
import type { Body, HookContext, HookName, RefusalInfo } from '../../config/hooks.ts'
import type { Credential } from '../../credentials/credential.ts'
import { GatewayError, traceOf } from '../../errors.ts'
import { refusing } from '../../metrics/observation.ts'
import { sha256 } from '../../sha256.ts'
import { escaped } from '../../store/escape.ts'
import { consumerKey, UNKNOWN_CONSUMER } from '../../store/keys.ts'
import type { Caller } from './caller.ts'
import type { Matched } from './match.ts'
import { observe } from './observe.ts'
import type { Refusal, Ruling } from './ruling.ts'

/** A request as the hooks have changed it. */
export interface AppliedHooks {
  caller: Caller
  matched: Matched
  /** The first hook that failed: the store is not asked. */
  failure?: unknown
}

/** Identifies the caller of the request. @param byHook names the consumer by code of the config */
export type Identify = (byHook?: () => Promise<Credential | undefined>) => Promise<Caller>

export interface Hooks {
  /**
   * Identifies the caller, with the hook `identify` where it is accepted, and applies the other hooks.
   * @throws as the given function, or when `identify` fails and anonymous callers are not accepted
   */
  apply(identifyWith: Identify, asked: Asked): Promise<AppliedHooks>
  /** The reply to a refused request: the hook's, or the given one. Never throws. */
  refuse(incoming: Pick<Asked, 'request' | 'host'>, refused: Refused, reply: Response): Promise<Response>
}

export interface Asked {
  request: Request
  matched: Matched
  /** The request as the framework around Sluice has it. */
  host?: unknown
}

export interface Refused {
  ruling: Ruling
  caller?: Caller
  matched?: Matched
}

/** Units that a request can cost. */
const MOST_COST = 1e9

/** @param env variables and bindings of the platform */
export function createHooks(
  { deadline, ...hooks }: NonNullable<Config['hooks']>,
  plans: readonly string[],
  env: Readonly<Record<string, unknown>> = {},
): Hooks {
  const deadlineMs = milliseconds(deadline)
  const logged = new Set<HookName>()

  /** @throws GatewayError for whatever the hook does wrong */
  async function run<T>(
    name: HookName,
    call: () => unknown,
    isValid: (result: unknown) => result is T,
  ): Promise<T> {
    try {
      const result = await within(deadlineMs, call())
      if (isValid(result)) return result
      // Not the value: it may be the name of a person.
      throw new GatewayError('ERR_HOOK_FAILED', `It returned ${kindOf(result)}, which is not a valid result.`)
    } catch (error) {
      if (!logged.has(name)) {
        console.error(JSON.stringify({ level: 'error', event: 'hook', hook: name, error: traceOf(error) }))
      }
      logged.add(name)
      const why = error instanceof GatewayError ? error.message : nameOf(error)
      throw new GatewayError('ERR_HOOK_FAILED', `The hook ${name} failed: ${why}`)
    }
  }

  async function apply(identifyWith: Identify, { request, matched, host }: Asked): Promise<AppliedHooks> {
    let failure: unknown
    let copy: Request | undefined
    const seen = () => (copy ??= withoutBody(request))

    /** The result of a hook. Without the hook, and after it has failed, the default. */
    async function resultOf<T>(
      name: HookName,
      usual: T,
      call: () => unknown,
      isValid: (result: unknown) => result is T,
    ): Promise<T> {
      if (!hooks[name]) return usual
      try {
        return await run(name, call, isValid)
      } catch (error) {
        failure ??= error
        return usual
      }
    }

    async function identify(): Promise<Credential | undefined> {
      const context = contextOf(env, host, matched)
      const name = await resultOf('identify', undefined, () => hooks.identify!(seen(), context), isName)
      // Where anonymous callers are accepted, this is one of them.
      if (failure && !matched.settings.accept.includes(ANONYMOUS)) throw failure
      return name === null || name === undefined ? undefined : credentialOf(name)
    }

    const caller = await identifyWith(identify)
    if (caller.refusal) return { matched, caller: sayingHow(caller, caller.refusal, matched) }
    const context = contextOf(env, host, matched, caller)
    const { settings, rules } = matched
    const isSkipped = await resultOf('skip', false, () => hooks.skip!(seen(), context), isFlag)
    const plan = canNamePlan(caller)
      ? await resultOf('plan', undefined, () => hooks.plan!(seen(), context), isPlan)
      : undefined
    if (isSkipped || !settings.isLimited) {
      const guesses = rules.filter(({ on }) => on === 'auth-failure')
      const unlimited = { ...matched, settings: { ...settings, isLimited: false }, rules: guesses }
      return { ...withPlan(caller, unlimited, plan), failure }
    }
    const ofCost = { ...context, cost: settings.cost }
    const cost = await resultOf('cost', settings.cost, () => hooks.cost!(seen(), ofCost), isCost)
    return { ...withPlan(caller, { ...matched, settings: { ...settings, cost } }, plan), failure }
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
          policies: refusing(verdicts, 'enforce'),
          ...(retryAfter !== undefined && { retryAfterSeconds: retryAfter }),
        }
        // A copy: what the hook reads of it would be missing in the reply.
        return replyOf(await hooks.refusal!(info, reply.clone()), reply)
      }
      try {
        return await run('refusal', call, result => result instanceof Response)
      } catch {
        return reply
      }
    },
  }
}

/** What is known of a request, for a hook. */
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
    ...(consumer !== undefined && consumer !== UNKNOWN_CONSUMER && { consumer }),
  }
}

/** The body belongs to what answers the request: a hook that read it would take it away. */
function withoutBody(request: Request): Request {
  const { url, method, headers, signal } = request
  const init = { method, headers, signal, cf: (request as { cf?: unknown }).cf }
  return new Request(url, init as RequestInit)
}

/**
 * The consumer `identify~<name>`: no name of a consumer of API keys has a `~`, no issuer of tokens is called `identify`, and of the
 * name nothing is left that keys are put together with.
 */
function credentialOf(name: string): Credential {
  const consumer = `${IDENTIFY}~${escaped(name)}`
  return {
    ...{ method: IDENTIFY, consumer, digest: sha256(consumer), isVouched: true },
    subject: { kind: 'token', consumerKey: consumerKey(consumer) },
  }
}

/** The plan of a key is known to the store, and that of a token stands in it. */
const canNamePlan = ({ credential }: Caller) => !credential || credential.method === IDENTIFY

/** What the reply to a caller without a credential names. */
function sayingHow(caller: Caller, refusal: Refusal, { settings: { accept } }: Matched): Caller {
  if (refusal.kind !== 'unauthenticated' || !accept.includes(IDENTIFY)) return caller
  return {
    ...caller,
    refusal: { ...refusal, accepted: ['what this service knows you by', ...refusal.accepted] },
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
  // No other caller without a credential has a plan, and rules of plans are not for them: these are.
  const rules = matched.rules
    .filter(({ match: { plans } }) => plans === undefined || plans.includes(plan))
    .map(withoutPlans)
  return { caller: { ...caller, plan }, matched: { ...matched, rules } }
}

/** An empty name would be one consumer for all whose name is missing. */
const isName = (result: unknown): result is string | null | undefined =>
  result === null || result === undefined || (typeof result === 'string' && result !== '')

const isFlag = (result: unknown): result is boolean => typeof result === 'boolean'

const isCost = (result: unknown): result is number =>
  Number.isInteger(result) && (result as number) >= 0 && (result as number) <= MOST_COST

/** With the headers of our reply that the hook's does not have: when to try again, and how the limits stand. */
function replyOf(result: unknown, ours: Response): Response | undefined {
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

/** @throws GatewayError when it takes longer */
async function within(deadlineMs: number, result: unknown): Promise<unknown> {
  if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') return result
  let timer: unknown
  const tooLate = new Promise<never>((_, reject) => {
    const error = new GatewayError('ERR_HOOK_FAILED', `It took longer than ${deadlineMs} ms.`)
    timer = setTimeout(() => reject(error), deadlineMs)
  })
  try {
    return await Promise.race([result, tooLate])
  } finally {
    clearTimeout(timer as number)
  }
}

const kindOf = (result: unknown) =>
  result === null ? 'null' : Array.isArray(result) ? 'a list' : typeof result

const nameOf = (error: unknown) => (error instanceof Error ? error.name : typeof error)
