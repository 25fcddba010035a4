/**
 * The types of hooks: functions of a config that decide about a request if settings do not suffice (docs/hooks.md).
 * src/set-ups/http/hooks.ts calls them.
 */
import type { ActualHook, Amounts } from '../usage/usage.ts'

export type { ActualHook, Amounts }

import type { CallerMode } from './caller-mode.ts'

/**
 * What a hook gets in addition to the request.
 *
 * @typeParam Route the names of the config's routes, if the compiler knows them
 */
export interface HookContext<Route extends string = string> {
  /** Variables and bindings of the platform: the `env` of a Worker, or the environment of the process on Node. */
  env: Readonly<Record<string, unknown>>
  /** The request object of the framework around Sluice, such as Hono's `c`. Undefined at the gateway. */
  host: unknown
  /** Name of the matching route. Absent: no route matches. */
  route?: Route
  /** Address of the client. Absent: unknown. */
  address?: string
  /**
   * The consumer, as in keys of the store. Absent: the caller is anonymous, or only the store knows the consumer. The consumer of an
   * API key is a claim: the store verifies the key later.
   */
  consumer?: string
  /** `live` or `test`, the mode of the credential. Absent, as `consumer`. */
  mode?: CallerMode
}

/** What the hook `cost` gets in addition to the request. */
export interface CostContext<Route extends string = string> extends HookContext<Route> {
  /** The cost of the route, `1` without a route. */
  cost: number
}

/** What the hook `refusal` gets: the refused request and the reason. */
export interface RefusalInfo<Route extends string = string> extends HookContext<Route> {
  request: Request
  requestId: string
  /**
   * - `limited`: a limit of the caller is reached.
   * - `shed`: the system is too busy, regardless of the caller.
   * - `unauthenticated`: the credential is missing or invalid.
   * - `forbidden`: the caller is blocked, or its body cannot be read for an estimate (400, 408, 415).
   * - `failed_closed`: the store does not answer.
   * - `unverifiable`: the issuer of the token does not answer.
   */
  outcome: 'limited' | 'shed' | 'unauthenticated' | 'forbidden' | 'failed_closed' | 'unverifiable'
  /** Names of the rules that refuse. */
  policies: readonly string[]
  /** For `limited` and `shed`: the `Retry-After` of the reply. Absent if the request can never be admitted. */
  retryAfterSeconds?: number
}

/**
 * The result of a hook, which may be asynchronous. A hook gets the request without its body, which is left to the code that answers the
 * request. If a hook throws or returns a value of another type, that counts as a failure of Sluice itself.
 */
type Async<T> = T | Promise<T>

/**
 * Names the consumer of a request.
 *
 * @returns the name, which must not be empty; `null` or `undefined` if the caller is unknown
 */
export type IdentifyHook<Route extends string = string> = (
  request: Request,
  context: Omit<HookContext<Route>, 'consumer' | 'mode' | 'address'>,
) => Async<string | null | undefined>

/** @returns `true` if the request is not limited, as on a route with `limits: false`; `false` to limit it as usual */
export type SkipHook<Route extends string = string> = (
  request: Request,
  context: HookContext<Route>,
) => Async<boolean>

/**
 * @returns the factor for the cost of each rule, in place of the route's `cost`: a whole number from 0 (spends nothing) to
 * 1,000,000,000
 */
export type CostHook<Route extends string = string> = (
  request: Request,
  context: CostContext<Route>,
) => Async<number>

/**
 * Says what a request will cost, by the name of the unit.
 *
 * @returns whole numbers from 0 to 1,000,000,000. A unit that is left out costs its `estimate`
 */
export type AmountsHook<Route extends string = string, Unit extends string = string> = (
  request: Request,
  context: HookContext<Route>,
) => Async<{ readonly [Name in Unit]?: number }>

/**
 * Names the plan of an anonymous caller, or of one that `identify` has named.
 *
 * @typeParam Plan the names of the config's plans, if the compiler knows them
 * @returns one of the config's `plans`, which overrides the plan in the store; `null` or `undefined` to name none
 */
export type PlanHook<Plan extends string = string, Route extends string = string> = (
  request: Request,
  context: HookContext<Route>,
) => Async<Plan | null | undefined>

/** The types of a response body, on any platform. */
export type Body = NonNullable<ConstructorParameters<typeof Response>[0]>

/**
 * Changes the reply to a refused request.
 *
 * @returns a `Response`; or a body, which gets the status of the given reply; or `null` or `undefined` for the given reply. Headers of the
 * given reply that the result does not set are added, except its content type
 */
export type RefusalHook<Route extends string = string> = (
  info: RefusalInfo<Route>,
  response: Response,
) => Async<Response | Body | null | undefined>

/** The hooks of a config. All are optional. */
export interface Hooks<
  Plan extends string = string,
  Route extends string = string,
  Unit extends string = string,
> {
  identify?: IdentifyHook<Route> | undefined
  skip?: SkipHook<Route> | undefined
  cost?: CostHook<Route> | undefined
  amounts?: AmountsHook<Route, Unit> | undefined
  plan?: PlanHook<Plan, Route> | undefined
  refusal?: RefusalHook<Route> | undefined
  actual?: ActualHook | undefined
}

export type HookName = keyof Hooks

/** All hooks, in the order in which they are called for a request. */
export const HOOK_NAMES = [
  'identify',
  'skip',
  'plan',
  'cost',
  'amounts',
  'refusal',
  'actual',
] as const satisfies HookName[]

/** The names of the hooks that a config has. */
export const hooksOf = (hooks: Hooks | undefined): HookName[] => HOOK_NAMES.filter(name => hooks?.[name])
