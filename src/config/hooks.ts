/**
 * Hooks: functions of a config that decide about a request where settings do not suffice (docs/hooks.md). What they get and what
 * they return; src/edges/http/hooks.ts calls them.
 */

/** What is known of a request, beside the request itself. */
export interface HookContext {
  /** Variables and bindings of the platform: the `env` of a Worker, on Node those of the process. */
  env: Readonly<Record<string, unknown>>
  /** The request as the framework around Sluice has it (in Hono `c`); undefined at the gateway. */
  host: unknown
  /** Name of the route; absent where none matches. */
  route?: string
  /** Of the client; absent where it is not known. */
  address?: string
  /**
   * The consumer, as it stands in keys of the store. Absent: an anonymous caller, or one that only the store knows. Of an API key it
   * is claimed: whether the key is valid is found out later.
   */
  consumer?: string
}

export interface CostContext extends HookContext {
  /** What the route says; `1` without a route. */
  cost: number
}

export interface RefusalInfo extends HookContext {
  request: Request
  requestId: string
  /**
   * - `limited`: a limit of the caller is reached.
   * - `shed`: the system is too busy, whoever calls.
   * - `unauthenticated`, `forbidden`: the credential is missing or bad; the caller is blocked.
   * - `failed_closed`, `unverifiable`: the store does not answer, or the issuer of a token.
   */
  outcome: 'limited' | 'shed' | 'unauthenticated' | 'forbidden' | 'failed_closed' | 'unverifiable'
  /** Names of the rules that refuse. */
  policies: readonly string[]
  retryAfterSeconds?: number
}

/**
 * A hook may be asynchronous. It gets a request without its body, which belongs to whatever answers the request. Whatever it
 * throws, and what it returns against its type, counts as a failure of Sluice itself.
 */
type Async<T> = T | Promise<T>

export type IdentifyHook = (
  request: Request,
  context: Omit<HookContext, 'consumer' | 'address'>,
) => Async<string | null | undefined>

export type SkipHook = (request: Request, context: HookContext) => Async<boolean>

export type CostHook = (request: Request, context: CostContext) => Async<number>

export type PlanHook = (request: Request, context: HookContext) => Async<string | null | undefined>

/** What a body can be, on any platform. */
export type Body = NonNullable<ConstructorParameters<typeof Response>[0]>

export type RefusalHook = (info: RefusalInfo, response: Response) => Async<Response | Body | null | undefined>

export interface Hooks {
  identify?: IdentifyHook | undefined
  skip?: SkipHook | undefined
  cost?: CostHook | undefined
  plan?: PlanHook | undefined
  refusal?: RefusalHook | undefined
}

export type HookName = keyof Hooks

/** The hooks there can be, in the order in which a request meets them. */
export const HOOK_NAMES = ['identify', 'skip', 'plan', 'cost', 'refusal'] as const satisfies HookName[]

/** Those that a config has. */
export const hooksOf = (hooks: Hooks | undefined): HookName[] => HOOK_NAMES.filter(name => hooks?.[name])
