/** The schema of `match`: which requests a rule or a route is for. rule-schema.ts describes the form of the messages. */
import * as v from 'valibot'
import { CALLER_MODES } from '../caller-mode.ts'
import { flag, hostPattern, name, oneOf, pathPattern, settings } from './values.ts'

/** The settings that rules and routes share: method, host and path. */
export const requestEntries = {
  /** As in `['POST', 'PUT']`. `'GET'` includes HEAD. Default: all. */
  methods: v.optional(
    v.pipe(
      v.array(
        v.pipe(
          v.string("is not a method. Write it in capitals, as in 'GET'."),
          v.regex(/^[A-Z]+$/, "is not a method. Write it in capitals, as in 'GET'."),
        ),
        "is not a list. Write it like ['GET', 'POST'].",
      ),
      v.minLength(1, 'is empty: it would match nothing. Name a method, or leave it out.'),
    ),
  ),
  /** A URLPattern for the hostname: `'api.example.com'`, `'*.example.com'`. Default: all. */
  host: v.optional(hostPattern),
  /** A URLPattern for the path: `'/reports/*'`, `'/users/:id'`. Case does not matter. Default: all. */
  path: v.optional(pathPattern),
}

export interface MatchInput extends v.InferInput<typeof match> {}

export const match = settings(
  {
    ...requestEntries,
    /** Callers with one of these plans, as listed in `plans`. Default: all, and callers without a credential. */
    plans: v.optional(names('plan', 'pro')),
    /** Requests with one of these routes, by name. Default: all, and requests without a route. */
    routes: v.optional(names('route', 'reports')),
    /** `true`: only callers with a credential; `false`: only those without. Default: both. */
    authenticated: v.optional(flag),
    /** `'test'`: only callers with a test key or a test token; `'live'`: all others. Default: both. */
    mode: v.optional(oneOf(CALLER_MODES, 'is not a mode')),
  },
  "is not an object. Write it like { path: '/reports/*' }.",
)

function names(what: string, example: string) {
  return v.pipe(
    v.array(name(`${what} name`), `is not a list. Write it like ['${example}'].`),
    v.minLength(1, `is empty: the rule would match nothing. Name a ${what}, or leave it out.`),
  )
}
