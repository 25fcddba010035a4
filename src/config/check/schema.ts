/**
 * The schema of sluice.config.ts, and its types. Editors and docs/config.md show the doc comments (`npm run reference`). Each
 * message is the second half of a sentence that mistake.ts begins with the path and the value.
 */
import * as v from 'valibot'
import type { Duration } from '../duration.ts'
import { ENVIRONMENT, isConsumerName, isOriginUrl } from '../forms.ts'
import { type AddressInput, address } from './address-schema.ts'
import { type ApiInput, type ApiRoutes, api } from './api-schema.ts'
import { type CorsInput, cors } from './cors-schema.ts'
import { type CredentialsInput, credentials } from './credentials-schema.ts'
import { type HooksInput, hooks } from './hooks-schema.ts'
import { lease } from './lease-schema.ts'
import { type MetricsInput, metrics } from './metrics-schema.ts'
import { addressRanges } from './range-schema.ts'
import { type RouteInput, route } from './route-schema.ts'
import {
  type CallLimitRuleInput,
  type LimitRuleInput,
  limitRule,
  type OnStoreFailure,
  onStoreFailure,
  type RuleInput,
  rule,
} from './rule-schema.ts'
import { type SheddingInput, shedding } from './shedding-schema.ts'
import { type BreakerInput, store } from './store-schema.ts'
import { type UnitInput, unitsOfConfig } from './units-schema.ts'
import { duration, flag, name, oneOf, record, settings, text, units } from './values.ts'

export type {
  AddressInput,
  ApiInput,
  ApiRoutes,
  BreakerInput,
  CallLimitRuleInput,
  CorsInput,
  CredentialsInput,
  Duration,
  HooksInput,
  LimitRuleInput,
  MetricsInput,
  OnStoreFailure,
  RouteInput,
  RuleInput,
  SheddingInput,
  UnitInput,
}

/** A config as it is written in sluice.config.ts, not checked yet: the argument of `defineConfig` and of every set-up. */
export interface ConfigInput extends v.InferInput<typeof configSchema> {}

export interface HeadersInput extends v.InferInput<typeof headers> {}

/** All rules are one script, and Redis does nothing else while it runs: about a microsecond for each rule that applies. */
const MAX_RULES = 200
const TOO_MANY_RULES = `has more than ${MAX_RULES} rules, which one script cannot hold. Use fewer: the numbers of a plan need no extra rule.`

const COUNTRY = "is not a country. Write its two capital letters (ISO 3166-1), as in 'AQ'."

const origin = v.pipe(
  v.string("is not an origin. Write a URL such as 'https://api.example.com', or 'route'."),
  v.check(
    input => input === 'route' || isOriginUrl(input),
    "is not an origin. Write an http or https URL without query or credentials, such as 'https://api.example.com', or 'route'.",
  ),
)

/** API keys contain this name between underscores. */
const environmentName = v.pipe(
  text("is not an environment name. Write it like 'live' or 'test'."),
  v.regex(
    ENVIRONMENT,
    "is not an environment name. Use 1 to 16 lowercase letters and digits, as in 'live' or 'test'.",
  ),
)

const CONSUMER =
  "is not a consumer. Write its name, as in 'acme', or if tokens identify it, the issuer and the percent-encoded claim, as in 'auth0~alice%40example.com'."

const consumer = v.pipe(
  v.string(CONSUMER),
  v.check(
    input => isConsumerName(input) || /^[a-z0-9][a-z0-9_-]{0,62}~(#[0-9a-f]{64}|[\w.!'()%-]+)$/.test(input),
    CONSUMER,
  ),
)

const headers = settings(
  {
    /**
     * Also send `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, for clients that support no other headers. They
     * describe one limit of the reply: the limit that refuses for the longest time, or, if none refuses, the one with the least left.
     * `X-RateLimit-Limit` is the value that `X-RateLimit-Remaining` starts from: the burst of the rule if it differs from its
     * limit, else the limit. The unit of `X-RateLimit-Reset` differs between APIs:
     * - `'delta-seconds'`: seconds to wait from now, as in `Retry-After`.
     * - `'unix-seconds'`: a time, in seconds since 1970, as at GitHub.
     *
     * Default: not sent.
     */
    xRateLimit: v.optional(
      oneOf(
        ['delta-seconds', 'unix-seconds'],
        'is not a unit of X-RateLimit-Reset',
        "Use 'delta-seconds' (from now) or 'unix-seconds' (a time).",
      ),
    ),
  },
  "is not an object. Write it like { xRateLimit: 'delta-seconds' }.",
)

const refusals = settings(
  {
    /**
     * How long an isolate repeats a refusal of the store without asking it again (default `'1s'`; `0`: it asks each time). It does so
     * until the retry time of the refusal, but no longer than this. A caller that continues after a refusal costs the store at most one
     * trip in this time. Raising or resetting a limit, or unblocking a consumer, takes effect with the first request after this time, at the
     * latest.
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
     * Where admitted requests go: a URL (its path precedes the request's own), or `'route'` if the Worker runs on a route
     * of a Cloudflare zone: then requests go to the origin in the zone's DNS. The variable ORIGIN_URL overrides it. Only the
     * gateway needs it: a guard, a middleware and limits by name forward nothing. Default: none.
     */
    origin: v.optional(origin),
    /** How long the origin may take to send its response headers (default `'30s'`). Then the caller gets a 504. */
    originDeadline: v.optional(duration(1e3, 600e6, "from '1ms' to '10m'")),
    /**
     * How long the body of a response that holds `concurrency` units may be silent (default `'5m'`). Then its
     * connections are closed, and its units are free. A body with `Content-Length` gets this time and a second for each
     * kB.
     */
    idleDeadline: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
    /**
     * How `sluicegate serve` uses its connections to the origin (default `'kept'`). In a Worker, the platform decides.
     * - `'kept'`: for one request after the other.
     * - `'fresh'`: for one request each. Only for an origin that may go on sending after the end of a response: its bytes
     *   would be taken for the response to the next request.
     */
    originConnections: v.optional(oneOf(['kept', 'fresh'], 'is not a way to use connections')),
    /**
     * What the gateway does if the client leaves (default `'wait'`; if a unit is read from replies, `'read-on'`):
     * - `'wait'`: waits for the response headers of the origin, which continues to work. The request holds its `concurrency`
     *   units until then. If no rule counts requests in flight, the platform may close the connection to the origin.
     * - `'abort'`: closes the connection to the origin, and frees the units at once. Only for an origin that stops its
     *   work when the connection closes. With any other, a client that cancels and repeats its request can make the
     *   origin work on more requests than `limit`. Needs the compatibility flag `enable_request_signal` in
     *   wrangler.toml, which projects made by `init` have.
     * - `'read-on'`: as `'wait'`. In addition, a reply from which a unit is read (`actual`) is read on for up to 25 s, so that it costs
     *   what the origin reports at its end. An isolate reads on 100 replies at once. Of others, what was counted costs, and
     *   at least the estimate, as with `'wait'` and `'abort'`.
     */
    onClientGone: v.optional(
      oneOf(['wait', 'abort', 'read-on'], 'is not a way to treat a request whose client has left'),
    ),
    /**
     * The name of this deployment, if there are several, as in `'live'` and `'test'`. API keys (`slk_test_…`) and all
     * keys of the store contain it, so that deployments do not share API keys or counters. The variable SLUICE_ENVIRONMENT
     * overrides it. Default: none.
     */
    environment: v.optional(environmentName),
    /** The plans that consumers and keys can have. Consumers without a plan have the first one (default `['free']`). */
    plans: v.optional(
      v.pipe(
        v.array(name('plan name'), "is not a list. Write it like ['free', 'pro']."),
        v.minLength(1, 'is empty. Name at least one plan, or leave it out.'),
        v.checkItems((plan, i, all) => all.indexOf(plan) === i, 'is listed twice. Leave one out.'),
      ),
    ),
    /** Parts of the API with other credentials or costs. A request has the most specific route that matches. Default: none. */
    routes: v.optional(
      v.array(route, "is not a list of routes. Write [{ name: 'reports', match: { path: '/reports/*' } }]."),
    ),
    /**
     * All rules that match a request are decided in one trip, all or nothing. Without rules, callers still need a credential, but their
     * requests are not limited. Default: none.
     */
    rules: v.optional(
      v.pipe(
        v.array(rule, 'is not a list of rules. Write [{ … }, { … }].'),
        v.maxLength(MAX_RULES, TOO_MANY_RULES),
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
          v.maxLength(MAX_RULES, TOO_MANY_RULES),
        ),
        "is not an object. Write it like { zendesk: [{ name: 'second', … }] }.",
      ),
    ),
    /** What rules count besides requests, by name: tokens, money, bytes (docs/units.md). Default: none. */
    units: v.optional(unitsOfConfig),
    /** Refuses less important traffic with a 503 while the system is full (docs/load-shedding.md). Default: none. */
    shedding: v.optional(shedding),
    /** How callers authenticate, and which credentials are accepted. Default: API keys. */
    credentials: v.optional(credentials),
    /** Functions that decide about a request if settings do not suffice (docs/hooks.md). Default: none. */
    hooks: v.optional(hooks),
    /**
     * Where the client's address is read, and which addresses are one caller. Default: the address that Cloudflare reports, IPv6 by
     * /64.
     */
    address: v.optional(address),
    /** Callers that no rule limits, except `auth-failure` rules for listed consumers. They still need a credential. Default: none. */
    allow: v.optional(
      settings(
        {
          /**
           * As in `['192.0.2.7', '10.0.0.0/8', '2001:db8::/32']` (default `[]`). Unknown keys from these addresses are not
           * counted either.
           */
          addresses: v.optional(addressRanges),
          /** By name, as in `['acme']` (default `[]`). Consumers of tokens are `'auth0~<name>'`, percent-encoded. */
          consumers: v.optional(v.array(consumer, "is not a list. Write it like ['acme'].")),
        },
        "is not an object. Write it like { addresses: ['10.0.0.0/8'] }.",
      ),
    ),
    /**
     * Callers that get a 403 before anything else is checked. Consumers are blocked live: `npx sluicegate consumers block`.
     * Default: none.
     */
    block: v.optional(
      settings(
        {
          /** As in `['192.0.2.7', '10.0.0.0/8', '2001:db8::/32']` (default `[]`). */
          addresses: v.optional(addressRanges),
          /** ISO 3166-1 codes as Cloudflare reports them, as in `['AQ']` (default `[]`). `'T1'` is Tor, `'XX'` an unknown country. */
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
     * What happens to a request while the store does not answer, for rules without their own setting (default `'local'`: each
     * isolate counts in its own memory). With `'open'` there is no limit during an outage.
     */
    onStoreFailure: v.optional(onStoreFailure()),
    /**
     * A failure of the limiter lets requests pass: `onStoreFailure` is `'open'`, except of rules with their own, and a hook that throws has
     * no opinion. Authentication does not open (docs/failure.md has the table). Default: none.
     * - `true`: but requests get a 503 while a variable is missing.
     * - `'unconfigured'`: missing variables of the store count as a store that does not answer.
     */
    failOpen: v.optional(
      v.union(
        [v.literal(true), v.literal('unconfigured')],
        "is not a way to fail open. Write true or 'unconfigured', or leave it out.",
      ),
    ),
    /**
     * An isolate takes units for several requests in one decision, and serves those requests without a trip to the store. Applies to all
     * rules without their own setting, except those that cannot have a lease: `sliding-log`, `concurrency`, `on: 'auth-failure'`, `countIf` and `unit`.
     * Default: none.
     */
    lease: v.optional(lease),
    /** Refusals that an isolate remembers, so that it does not ask the store again. */
    refusals: v.optional(refusals),
    /**
     * The longest pause of a limit by name (default `'24h'`). How long to pause can come from a stranger, in `Retry-After`: a longer pause is
     * shortened.
     */
    longestPause: v.optional(duration(1e6, 7 * 86400e6, "from '1s' to '7d'")),
    /** How the store is called. Its address is a variable of the environment. */
    store: v.optional(store),
    /** Log lines (JSON) about requests that are refused, that a shadow rule would refuse, or that pass because the store fails, and about what else fails. */
    log: v.optional(
      settings(
        {
          /**
           * How many lines of each event an isolate writes per second (default `5`). With 0, it writes only errors, one of each event per
           * second. Each line has the number of omitted lines.
           */
          perSecond: v.optional(units(0, 1000)),
        },
        'is not an object. Write it like { perSecond: 5 }.',
      ),
    ),
    /** Counters of decisions, for `npx sluicegate stats`. */
    stats: v.optional(
      settings(
        {
          /** Keep the counters in the store (default `true`). */
          keep: v.optional(flag),
          /**
           * How often an isolate that has requests sends its counters to the store (default `'10s'`): one HTTP request,
           * billed as three commands, and two more after refusals.
           */
          every: v.optional(duration(1e6, 20e6, "from '1s' to '20s'")),
          /**
           * Whose refusals are counted, for `npx sluicegate top`, `why` and `stats --top` (default `'consumers'`). Kept for 8 days:
           * - `'consumers'`: of consumers, and of identities of limits by name, without addresses.
           * - `'networks'`: also of callers without a consumer, by the network of their address: IPv4 /24, IPv6 /48.
           * - `'off'`: of no caller.
           */
          topCallers: v.optional(
            oneOf(
              ['consumers', 'networks', 'off'],
              'does not say whose refusals are counted',
              "Use 'consumers', 'networks' or 'off'.",
            ),
          ),
        },
        "is not an object. Write it like { every: '10s' }.",
      ),
    ),
    /** The trail of administrative changes, for `npx sluicegate audit`. */
    audit: v.optional(
      settings(
        {
          /** How long entries are kept (default `'90d'`). */
          keep: v.optional(duration(86400e6, 3650 * 86400e6, "from '1d' to '3650d'")),
        },
        "is not an object. Write it like { keep: '90d' }.",
      ),
    ),
    /**
     * With `{}`, the gateway serves metrics for Prometheus at `/_sluice/metrics` to anyone who sends the secret `SLUICE_METRICS_TOKEN`
     * (docs/operations.md). Its statistics are then billed as two commands more. Default: none.
     */
    metrics: v.optional(metrics),
    /**
     * With `{}`, the gateway serves an HTTP API under `/_sluice/v1/` to anyone with a service token: limits by name, and administration
     * (docs/api.md). Default: none.
     */
    api: v.optional(api),
    /** Headers of replies in addition to `RateLimit` and `RateLimit-Policy`. */
    headers: v.optional(headers),
    /**
     * Answer the preflights of browsers in the gateway. Without this setting, they go to the origin, whose CORS headers are passed on. In
     * both cases, they are neither authenticated nor counted. Default: preflights go to the origin.
     */
    cors: v.optional(cors),
  },
  'is not a config. Write export default defineConfig({ … }).',
)
