/** Functions of the config that decide about a request: the shape of `hooks`. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import { IDENTIFY } from '../compile-route.ts'
import type { Mistake } from '../config-error.ts'
import type { CostHook, IdentifyHook, PlanHook, RefusalHook, SkipHook } from '../hooks.ts'
import { duration, settings } from './values.ts'

export interface HooksInput extends v.InferInput<typeof hooks> {}

/** @param example of one */
const hook = <T>(example: string) =>
  v.custom<T>(input => typeof input === 'function', `is not a function. Write it like ${example}.`)

export const hooks = settings(
  {
    /**
     * Names the consumer by code, for a request that shows no other credential: text, or nothing where the caller is not known.
     * It is one of the credentials of `accept`, called `'identify'`. The consumer is `identify~<name>`. Default: none.
     */
    identify: v.optional(hook<IdentifyHook>("request => request.headers.get('x-user') ?? undefined")),
    /** Whether a request is not limited, as on a route with `limits: false`. Default: none. */
    skip: v.optional(hook<SkipHook>("request => request.url.endsWith('/ping')")),
    /** The plan of a caller that `identify` has named, or of an anonymous one: one of `plans`, or nothing. Default: none. */
    plan: v.optional(hook<PlanHook>("(request, { consumer }) => (consumer ? 'pro' : undefined)")),
    /**
     * What the request costs, in the place of the route's `cost`: it multiplies the cost of each rule. A whole number from 0 (not
     * counted) to 1,000,000,000. Default: none.
     */
    cost: v.optional(hook<CostHook>("request => (request.method === 'POST' ? 5 : 1)")),
    /** The reply to a refused request: a body, a `Response`, or nothing to keep ours. Default: none. */
    refusal: v.optional(
      hook<RefusalHook>("({ outcome }) => (outcome === 'limited' ? 'Slow down.' : undefined)"),
    ),
    /** How long each hook may take (default `'1s'`). */
    deadline: v.optional(duration(1e3, 30e6, "from '1ms' to '30s'")),
  },
  'is not an object. Write it like { cost: request => 1 }.',
)

/** What the schema cannot see: whether the hooks are ever called. */
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
  // Without a list of its own, the config takes all credentials that there are.
  const isCalled = credentials.accept === undefined || lists.some(accept => accept?.includes(IDENTIFY))
  if (!hooks.identify || isCalled) return []
  const message = `is never called: no accept list has '${IDENTIFY}'. Add it to credentials.accept, or to accept of a route.`
  return [{ path: 'hooks.identify', message }]
}
