/**
 * The shape of sluice.config.ts: the schema that checks what a user wrote, and the types that follow from it. The doc
 * comments are what an editor shows, and what docs/config.md says. Messages are the second half of a sentence that
 * mistake.ts begins with the path and the value.
 */
import * as v from 'valibot'
import type { Duration } from '../duration.ts'
import { ENVIRONMENT, isConsumerName, isOriginUrl } from '../forms.ts'
import { type AddressInput, address } from './address-schema.ts'
import { type CredentialsInput, credentials } from './credentials-schema.ts'
import { type HooksInput, hooks } from './hooks-schema.ts'
import { lease } from './lease-schema.ts'
import { addressRanges } from './range-schema.ts'
import { type RouteInput, route } from './route-schema.ts'
import {
  type LimitRuleInput,
  limitRule,
  type OnStoreFailure,
  onStoreFailure,
  type RuleInput,
  rule,
} from './rule-schema.ts'
import { type SheddingInput, shedding } from './shedding-schema.ts'
import { type BreakerInput, store } from './store-schema.ts'
import { duration, flag, headerName, name, record, settings, text, units } from './values.ts'

export type {
  AddressInput,
  BreakerInput,
  CredentialsInput,
  Duration,
  HooksInput,
  LimitRuleInput,
  OnStoreFailure,
  RouteInput,
  RuleInput,
  SheddingInput,
}

export interface ConfigInput extends v.InferInput<typeof configSchema> {}

export interface HeadersInput extends v.InferInput<typeof headers> {}

export interface CorsInput extends v.InferInput<typeof cors> {}

/**
 * All rules are one script, and Lua bounds how far a script can jump: 131,071 instructions. With 200 sliding logs the longest jump
 * is over 78,220 of them.
 */
const MOST_RULES = 200
const TOO_MANY_RULES = `has more than ${MOST_RULES} rules, which one script cannot hold. Use fewer: plans with other numbers need no rules of their own.`

const COUNTRY = "is not a country. Write its two capital letters (ISO 3166-1), as in 'AQ'."

const WEB_ORIGIN = "is not an origin of a web page. Write it like 'https://app.example.com', without a path."

/** As browsers send it: scheme, host and port, nothing behind. */
const webOrigin = v.pipe(
  v.string(WEB_ORIGIN),
  v.check(input => URL.canParse(input) && new URL(input).origin === input, WEB_ORIGIN),
)

const origin = v.pipe(
  v.string("is not an origin. Write a URL such as 'https://api.example.com', or 'route'."),
  v.check(
    input => input === 'route' || isOriginUrl(input),
    "is not an origin. Write an http or https URL without query or credentials, such as 'https://api.example.com', or 'route'.",
  ),
)

/** It stands in API keys between underscores. */
const environmentName = v.pipe(
  text("is not an environment name. Write it like 'live' or 'test'."),
  v.regex(
    ENVIRONMENT,
    "is not an environment name. Use 1 to 16 lowercase letters and digits, as in 'live' or 'test'.",
  ),
)

const CONSUMER =
  "is not a consumer. Write its name, as in 'acme', or for a consumer of tokens the issuer and the percent-encoded claim, as in 'auth0~alice%40example.com'."

const consumer = v.pipe(
  v.string(CONSUMER),
  v.check(
    input => isConsumerName(input) || /^[a-z0-9][a-z0-9_-]{0,62}~(#[0-9a-f]{64}|[\w.!'()%-]+)$/.test(input),
    CONSUMER,
  ),
)

const cors = settings(
  {
    /** Origins that may read replies: `'*'` or `['https://app.example.com']` */
    origins: v.union(
      [
        v.literal('*'),
        v.pipe(
          v.array(webOrigin),
          v.minLength(1, 'is empty: no web page could read the replies. Name an origin.'),
        ),
      ],
      "is not a list of origins. Write '*' or ['https://app.example.com'].",
    ),
    /** Request headers that scripts may send (default: what it asks for). */
    headers: v.optional(
      v.array(headerName, "is not a list of header names. Write it like ['content-type']."),
    ),
    /** How long a browser may remember the answer (default `'10m'`). */
    maxAge: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
  },
  "is not an object. Write it like { origins: '*' }.",
)

const headers = settings(
  {
    /**
     * Send `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` as well, for clients that know no other headers. They
     * describe one limit of the reply: of those that refuse the one that refuses for longest, else the one with the least left. Limit is
     * what Remaining counts down from: the burst, where that is not the limit. The unit of Reset differs between APIs:
     * - `'delta-seconds'`: seconds to wait from now, as `Retry-After` has it.
     * - `'unix-seconds'`: a time, in seconds since 1970, as GitHub has it.
     *
     * Default: not sent.
     */
    xRateLimit: v.optional(
      v.picklist(
        ['delta-seconds', 'unix-seconds'],
        "is not a unit of X-RateLimit-Reset. Use 'delta-seconds' (from now) or 'unix-seconds' (a time).",
      ),
    ),
  },
  "is not an object. Write it like { xRateLimit: 'delta-seconds' }.",
)

const refusals = settings(
  {
    /**
     * How long an isolate refuses by itself what the store has just refused (default `'1s'`; `0`: it asks each time): until the retry
     * time that the store has named, and no longer than this. A caller that goes on after a refusal costs the store one
     * trip in this time. A limit that is raised or reset, and a consumer that is unblocked, count after this time at the latest.
     */
    rememberFor: v.optional(
      v.lazy(input => (input === 0 ? v.literal(0) : duration(10e3, 60e6, "from '10ms' to '60s', or 0"))),
    ),
  },
  "is not an object. Write it like { rememberFor: '1s' }.",
)

export const configSchema = settings(
  {
    /**
     * Where admitted requests go: a URL (a path in it is put before the request's own), or `'route'` on a Workers
     * route, where the origin is what the zone's DNS says. The variable ORIGIN_URL overrides it. Only the gateway needs
     * it: a guard, a middleware and limits by name forward nothing. Default: none.
     */
    origin: v.optional(origin),
    /** How long the origin may take until its response headers (default `'30s'`); then the caller gets a 504. */
    originDeadline: v.optional(duration(1e3, 600e6, "from '1ms' to '10m'")),
    /**
     * Which of several deployments this is, as in `'live'` and `'test'`: it stands in API keys (`slk_test_…`) and in every
     * key of the store, so that none takes the keys of another or counts in its place. The variable SLUICE_ENVIRONMENT
     * overrides it. Default: none.
     */
    environment: v.optional(environmentName),
    /** Names that API keys may carry as their plan; callers without one count as of the first (default `['free']`). */
    plans: v.optional(
      v.pipe(
        v.array(name('plan name'), "is not a list. Write it like ['free', 'pro']."),
        v.minLength(1, 'is empty. Name at least one plan, or leave it out.'),
      ),
    ),
    /** Parts of the API that ask for other credentials or cost more. The most specific that matches is the request's. Default: none. */
    routes: v.optional(
      v.array(route, "is not a list of routes. Write [{ name: 'reports', match: { path: '/reports/*' } }]."),
    ),
    /**
     * Every rule that matches a request is evaluated, all in one trip, all or nothing. A config of limits by name alone needs none.
     * Default: none.
     */
    rules: v.optional(
      v.pipe(
        v.array(rule, 'is not a list of rules. Write [{ … }, { … }].'),
        v.minLength(1, 'is empty. Write at least one rule: a gateway without a limit is a proxy.'),
        v.maxLength(MOST_RULES, TOO_MANY_RULES),
      ),
    ),
    /**
     * Limits for work that does not pass through the gateway, by name: calls to third parties, background tasks.
     * Each is a set of rules that is decided all or nothing. Default: none.
     */
    limits: v.optional(
      record(
        name('name of a limit'),
        v.pipe(
          v.array(limitRule, 'is not a list of rules. Write [{ … }, { … }].'),
          v.minLength(1, 'is empty. Write at least one rule.'),
          v.maxLength(MOST_RULES, TOO_MANY_RULES),
        ),
        "is not an object. Write it like { zendesk: [{ name: 'second', … }] }.",
      ),
    ),
    /** Refuses the least important traffic with a 503 while the system is full (docs/load-shedding.md). Default: none. */
    shedding: v.optional(shedding),
    /** How callers identify themselves, and which credentials are taken. Default: API keys. */
    credentials: v.optional(credentials),
    /** Functions that decide about a request, where settings do not suffice (docs/hooks.md). Default: none. */
    hooks: v.optional(hooks),
    /** Where the client's address is read, and which addresses are one caller. Default: as Cloudflare reports it, IPv6 by /64. */
    address: v.optional(address),
    /** Callers that are never limited. They still need a credential. Default: none. */
    allow: v.optional(
      settings(
        {
          /** As in `['192.0.2.7', '10.0.0.0/8', '2001:db8::/32']` (default `[]`). Bad credentials are not counted for these either. */
          addresses: v.optional(addressRanges),
          /** By their names, as in `['acme']` (default `[]`); of tokens `'auth0~<name>'`, escaped. */
          consumers: v.optional(v.array(consumer, "is not a list. Write it like ['acme'].")),
        },
        "is not an object. Write it like { addresses: ['10.0.0.0/8'] }.",
      ),
    ),
    /** Callers that get a 403 before anything else is checked. Consumers are blocked live: `npx sluicegate consumers block`. Default: none. */
    block: v.optional(
      settings(
        {
          /** As in `['192.0.2.7', '10.0.0.0/8', '2001:db8::/32']` (default `[]`). */
          addresses: v.optional(addressRanges),
          /** As Cloudflare reports them, by ISO 3166-1, as in `['AQ']` (default `[]`). `'T1'` is Tor, `'XX'` any caller of unknown country. */
          countries: v.optional(
            v.array(
              v.pipe(text(COUNTRY), v.regex(/^[A-Z][A-Z0-9]$/, COUNTRY)),
              "is not a list. Write it like ['AQ'].",
            ),
          ),
        },
        "is not an object. Write it like { addresses: ['192.0.2.0/24'] }.",
      ),
    ),
    /**
     * What happens to a request while the store does not answer, for rules without a setting of their own (default `'local'`: each
     * isolate counts by itself). With `'open'` there is no limit during an outage.
     */
    onStoreFailure: v.optional(onStoreFailure()),
    /**
     * Rules take units for several requests in one decision, and the isolate serves those without a trip to the store. For all rules
     * without a setting of their own, except those that cannot have one: `sliding-log`, `concurrency` and `on: 'auth-failure'`. Default: none.
     */
    lease: v.optional(lease),
    /** Refusals that an isolate remembers, so that it need not ask the store again. */
    refusals: v.optional(refusals),
    /** How the store is called. Its address is a variable of the environment. */
    store: v.optional(store),
    /** Log lines (JSON) about requests that are refused, that a shadow rule would refuse, or that pass because the store fails. */
    log: v.optional(
      settings(
        {
          /** How many lines of each event an isolate writes per second, 0 for none (default `5`). Each line says how many were left out. */
          perSecond: v.optional(units(0, 1000)),
        },
        'is not an object. Write it like { perSecond: 5 }.',
      ),
    ),
    /** Counters of what was decided, for `npx sluicegate stats`. */
    stats: v.optional(
      settings(
        {
          /** Keep them in the store (default `true`). */
          keep: v.optional(flag),
          /** How often an isolate that has requests sends its counters to the store (default `'10s'`): one HTTP request, a command for each counter. */
          every: v.optional(duration(1e6, 20e6, "from '1s' to '20s'")),
        },
        "is not an object. Write it like { every: '10s' }.",
      ),
    ),
    /** Headers of replies beside `RateLimit` and `RateLimit-Policy`. */
    headers: v.optional(headers),
    /**
     * Answer browsers' preflights here. Without it they go to the origin, and its own CORS headers stand. Either
     * way they are neither authenticated nor counted. Default: they go to the origin.
     */
    cors: v.optional(cors),
  },
  'is not a config. Write export default defineConfig({ … }).',
)
