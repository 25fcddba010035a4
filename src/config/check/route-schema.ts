/**
 * The schema of a route. A request has at most one route, the most specific one that matches, and any number of rules. Messages: see
 * rule-schema.ts.
 */
import * as v from 'valibot'
import { requestEntries } from './match-schema.ts'
import { flag, name, settings, text, units } from './values.ts'

/** One of `routes`: a part of the API with credentials, cost and other settings of its own. */
export interface RouteInput extends v.InferInput<typeof route> {}

export interface RouteMatchInput extends v.InferInput<typeof routeMatch> {}

export const acceptList = v.pipe(
  v.array(
    text("is not a credential. Write its name, as in 'api-key'."),
    "is not a list of credentials. Write it like ['api-key', 'anonymous'].",
  ),
  v.minLength(1, "is empty: every request would be refused. Name a credential, or 'anonymous'."),
)

const routeMatch = settings(requestEntries, "is not an object. Write it like { path: '/reports/*' }.")

export const route = settings(
  {
    /** The name for rules with `by: 'route'` and for `match.routes`. Unique. */
    name: name('route name'),
    /** Which requests the route is for. A request must meet all conditions. */
    match: routeMatch,
    /**
     * Accepted credentials, tried in list order: `'api-key'`, `'opaque-key'`, names of `credentials.jwt`, `'identify'` for callers that
     * the hook of this name identifies, and `'anonymous'` for callers without a credential. Default: `credentials.accept`.
     */
    accept: v.optional(acceptList),
    /** The cost of a request on this route, as a multiple of the cost of each rule (default `1`). */
    cost: v.optional(units(1, 1e6)),
    /**
     * `false`: requests on this route are not counted (default `true`). Callers still need a credential, unless `accept` has
     * `'anonymous'`, and keys that the store does not know are counted (`on: 'auth-failure'`).
     */
    limits: v.optional(flag),
  },
  "is not a route. Write { name: 'reports', match: { path: '/reports/*' } }.",
)
