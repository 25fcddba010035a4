/** The schema of `hooks`: functions of the config that decide about a request. Messages: see rule-schema.ts. */
import * as v from 'valibot'
import { IDENTIFY } from '../compile-route.ts'
import type { Mistake } from '../config-error.ts'
import type {
  ActualHook,
  AmountsHook,
  CostHook,
  IdentifyHook,
  PlanHook,
  RefusalHook,
  SkipHook,
} from '../hooks.ts'
import { duration, settings } from './values.ts'

export interface HooksInput extends v.InferInput<typeof hooks> {}

/** @param example a hook, for the message */
const hook = <T>(example: string) =>
  v.custom<T>(input => typeof input === 'function', `is not a function. Write it like ${example}.`)

export const hooks = settings(
  {
    /**
     * Returns the name of the consumer, for a request without another credential; `undefined` if the caller is unknown.
     * `accept` lists it as the credential `'identify'`. The consumer is `identify~<name>`. Default: none.
     */
    identify: v.optional(hook<IdentifyHook>("request => request.headers.get('x-user') ?? undefined")),
    /** Returns `true` for requests that are not limited, as on a route with `limits: false`. Default: none. */
    skip: v.optional(hook<SkipHook>("request => request.url.endsWith('/ping')")),
    /** Returns the plan of an anonymous caller or of one that `identify` has named: one of `plans`, or `undefined`. Default: none. */
    plan: v.optional(hook<PlanHook>("(request, { consumer }) => (consumer ? 'pro' : undefined)")),
    /**
     * Returns the factor for the cost of each rule of requests, and replaces the route's `cost`. A whole number from 0 (not
     * counted) to 1,000,000,000. Default: none.
     */
    cost: v.optional(hook<CostHook>("request => (request.method === 'POST' ? 5 : 1)")),
    /**
     * Returns what a request will cost of each of `units`, as in `{ tokens: 1200 }`: whole numbers from 0 to 1,000,000,000. A unit that
     * it leaves out costs its `estimate`. One with 0 is not counted, whatever the response costs. Default: none.
     */
    amounts: v.optional(hook<AmountsHook>('request => ({ tokens: 1200 })')),
    /** Returns the reply to a refused request: a body, a `Response`, or `undefined` for the default reply. Default: none. */
    refusal: v.optional(
      hook<RefusalHook>("({ outcome }) => (outcome === 'limited' ? 'Slow down.' : undefined)"),
    ),
    /**
     * Returns what a request has cost, as in `{ tokens: 731 }`, for units with `actual: 'hook'`; for other units, it replaces what their
     * source found. It gets `{ amounts, tokens, ending, isPartial }`, and the status and headers of the response. Default: none.
     */
    actual: v.optional(hook<ActualHook>('(usage, { status }) => ({ calls: status < 400 ? 1 : 0 })')),
    /** How long each hook may take (default `'1s'`). */
    deadline: v.optional(duration(1e3, 30e6, "from '1ms' to '30s'")),
  },
  'is not an object. Write it like { cost: request => 1 }.',
)

/** Finds hooks that would never be called. */
export function mistakesOfHooks({
  hooks = {},
  credentials = {},
  routes = [],
}: {
  hooks?: HooksInput | undefined
  credentials?: { accept?: readonly string[] | undefined } | undefined
  routes?: readonly { accept?: readonly string[] | undefined }[] | undefined
}): Mistake[] {
  const lists = [credentials.accept, ...routes.map(({ accept }) => accept)]
  // Without a list, the config accepts all credentials that it has.
  const isCalled = credentials.accept === undefined || lists.some(accept => accept?.includes(IDENTIFY))
  if (!hooks.identify || isCalled) return []
  const message = `is never called: no accept list has '${IDENTIFY}'. Add it to credentials.accept, or to accept of a route.`
  return [{ path: 'hooks.identify', message }]
}
