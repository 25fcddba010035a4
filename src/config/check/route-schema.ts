/**
 * The shape of a route: what a user writes, and the schema that checks it. A request has one route, the most specific
 * that matches, and any number of rules.
 */
import * as v from 'valibot'
import { place } from './rule-schema.ts'
import { flag, name, settings, text, units } from './values.ts'

export interface RouteInput {
  /** For rules `by: 'route'` and `match.routes`. Unique. */
  name: string
  /** Which requests it is for. Everything that is given must hold. */
  match: RouteMatchInput
  /**
   * Credentials that are taken here, in this order: `'api-key'`, `'opaque-key'`, names of `credentials.jwt`, and
   * `'anonymous'` for callers without any. Default: `credentials.accept`.
   */
  accept?: string[] | undefined
  /** What a request costs here, as a multiple of the cost of each rule (default `1`). */
  cost?: number | undefined
  /**
   * `false`: no request is counted here (default `true`). Callers are still asked for a credential, unless `accept` has `'anonymous'`, and
   * those that guess are counted (`on: 'auth-failure'`).
   */
  limits?: boolean | undefined
}

export interface RouteMatchInput {
  /** As in `['POST', 'PUT']`; `'GET'` is for HEAD too. Default: all. */
  methods?: string[] | undefined
  /** A URLPattern for the host name: `'api.example.com'`, `'*.example.com'`. Default: all. */
  host?: string | undefined
  /** A URLPattern for the path: `'/reports/*'`, `'/users/:id'`. Case does not matter. Default: all. */
  path?: string | undefined
}

export const acceptList = v.pipe(
  v.array(text('is no credential.'), "is no list of credentials. Write it as in ['api-key', 'anonymous']."),
  v.minLength(1, "is empty: nobody could come. Name a credential, or 'anonymous'."),
)

export const route = settings(
  {
    name: name('route name'),
    match: settings(place, "is no object. Write it as in { path: '/reports/*' }."),
    accept: v.optional(acceptList),
    cost: v.optional(units(1, 1e6)),
    limits: v.optional(flag),
  },
  "is no route. Write { name: 'reports', match: { path: '/reports/*' } }.",
) satisfies v.GenericSchema<RouteInput>
