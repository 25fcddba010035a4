/** The schema of `api`: the HTTP API of the gateway. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import { cors } from './cors-schema.ts'
import { oneOf, settings } from './values.ts'

export type ApiRoutes = (typeof API_ROUTES)[number]

export interface ApiInput extends v.InferInput<typeof api> {}

/** The parts of the API. */
export const API_ROUTES = [
  'limits',
  'usage',
  'keys',
  'consumers',
  'overrides',
  'switches',
  'stats',
  'why',
  'tokens',
  'audit',
  'openapi',
] as const

export const api = settings(
  {
    /**
     * The parts that are served, to keep a Worker small: `'limits'` (by name), `'usage'` (what callers have left), `'keys'`, `'consumers'`,
     * `'overrides'`, `'tokens'`, `'audit'`, `'switches'`, `'stats'`, `'why'`, `'openapi'` (the document); or `'all'`. Default: all but
     * `'stats'`, `'why'` and `'openapi'`.
     */
    routes: v.optional(
      v.union(
        [
          v.literal('all'),
          v.pipe(
            v.array(oneOf(API_ROUTES, 'is not a part of the API')),
            v.minLength(1, 'is empty: nothing would be served. Leave api out, or name a part.'),
          ),
        ],
        "is not a list. Write it like ['keys', 'consumers'], or 'all'.",
      ),
    ),
    /** Web pages whose scripts may call the API. A token in a page is known to everyone who opens it. Default: none. */
    cors: v.optional(cors),
  },
  "is not an object. Write {}, or { cors: { origins: ['https://admin.example.com'] } }.",
)
