/**
 * The shape of a route, as rule-schema.ts has that of a rule. A request has one route, the most specific that matches,
 * and any number of rules.
 */
import * as v from 'valibot'
import { place } from './match-schema.ts'
import { flag, name, settings, text, units } from './values.ts'

export interface RouteInput extends v.InferInput<typeof route> {}

export interface RouteMatchInput extends v.InferInput<typeof routeMatch> {}

export const acceptList = v.pipe(
  v.array(
    text("is not a credential. Write its name, as in 'api-key'."),
    "is not a list of credentials. Write it like ['api-key', 'anonymous'].",
  ),
  v.minLength(1, "is empty: every request would be refused. Name a credential, or 'anonymous'."),
)

const routeMatch = settings(place, "is not an object. Write it like { path: '/reports/*' }.")

export const route = settings(
  {
    /** For rules `by: 'route'` and `match.routes`. Unique. */
    name: name('route name'),
    /** Which requests it is for. Everything that is given must hold. */
    match: routeMatch,
    /**
     * Credentials that are taken here, in this order: `'api-key'`, `'opaque-key'`, names of `credentials.jwt`, and
     * `'anonymous'` for callers without any. Default: `credentials.accept`.
     */
    accept: v.optional(acceptList),
    /** What a request costs here, as a multiple of the cost of each rule (default `1`). */
    cost: v.optional(units(1, 1e6)),
    /**
     * `false`: no request is counted here (default `true`). Callers are still asked for a credential, unless `accept` has
     * `'anonymous'`, and failed credentials are counted (`on: 'auth-failure'`).
     */
    limits: v.optional(flag),
  },
  "is not a route. Write { name: 'reports', match: { path: '/reports/*' } }.",
)
