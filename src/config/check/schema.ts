/**
 * The shape of sluice.config.ts: the types a user sees, and the schema that checks what they wrote.
 * Messages are the second half of a sentence that mistake.ts begins with the path and the value.
 */
import * as v from 'valibot'
import { isConsumerName } from '../../credentials/api-key.ts'
import type { Duration } from '../duration.ts'
import { ENVIRONMENT, isOriginUrl } from '../environment.ts'
import type { JwtMethod } from '../jwt.ts'
import { type AddressInput, address } from './address-schema.ts'
import { addressRanges } from './range-schema.ts'
import { acceptList, type RouteInput, route } from './route-schema.ts'
import {
  type LimitRuleInput,
  limitRule,
  type OnStoreFailure,
  onStoreFailure,
  type RuleInput,
  rule,
} from './rule-schema.ts'
import { duration, flag, name, record, settings, text, units } from './values.ts'

export type { AddressInput, Duration, LimitRuleInput, OnStoreFailure, RouteInput, RuleInput }

export interface CredentialsInput {
  /**
   * Credentials that are taken, in this order, where the route says nothing else: `'api-key'`, `'opaque-key'`,
   * names of `jwt`, and `'anonymous'` for callers without any. Default: all there are, without `'anonymous'`.
   */
  accept?: string[] | undefined
  /** The keys that `npx sluice keys create` makes. */
  apiKeys?:
    | {
        /** What they begin with (default `'slk'`). Keys that begin otherwise are no longer known. */
        prefix?: string | undefined
      }
    | undefined
  /**
   * Keys that were not made here, which tell nothing by themselves: those that `npx sluice keys import` has brought in
   * are taken. `{}` takes them from `X-API-Key` and `Authorization: Bearer`. Default: none are taken.
   */
  opaqueKeys?:
    | {
        /** The one header that carries them. Default: `X-API-Key` and `Authorization: Bearer`. */
        header?: string | undefined
        /** How long an isolate remembers whose key it is (default `'10m'`). Whether it is still good is asked every time. */
        rememberFor?: Duration | undefined
      }
    | undefined
  /**
   * Tokens that others issue, by a name of your choice: `{ auth0: jwt({ jwks, algorithms, issuer, audience }) }`, with `jwt` from
   * `./src/config/jwt.ts`. Default: none.
   */
  jwt?: Record<string, JwtMethod> | undefined
  /** Hand the caller's credential on to the origin (default `false`). */
  forward?: boolean | undefined
  /**
   * Who may come while the store cannot say whether a credential is good: those whom this isolate has let in not long ago
   * (`'recent'`), nobody with a key (`'refuse'`), or whoever shows something that looks like one (`'unchecked'`: only where
   * the origin checks by itself). The others get a 503. Tokens are vouched for by their signature (default `'recent'`).
   */
  onStoreFailure?: 'recent' | 'refuse' | 'unchecked' | undefined
  /** How long ago is not long ago (default `'10m'`): so long a revoked key can pass while the store fails. */
  seenFor?: Duration | undefined
}

export interface BreakerInput {
  /** So many failures in a row open it (default `5`). */
  failures?: number | undefined
  /** So many slow calls in a row open it (default `1`). One that reaches the deadline is slow, and a failure. */
  slowCalls?: number | undefined
  /** What is slow (default: the deadline). */
  slowAfter?: Duration | undefined
  /** While it is open the store is tried so often, and no request waits for it (default `'1s'`). */
  retryAfter?: Duration | undefined
}

export interface CorsInput {
  /** Origins that may read replies: `'*'` or `['https://app.example.com']` */
  origins: '*' | string[]
  /** Request headers that scripts may send (default: what it asks for). */
  headers?: string[] | undefined
  /** How long a browser may remember the answer (default `'10m'`). */
  maxAge?: Duration | undefined
}

export interface ConfigInput {
  /**
   * Where admitted requests go: a URL (a path in it is put before the request's own), or `'route'` on a Workers
   * route, where the origin is what the zone's DNS says. The variable ORIGIN_URL overrides it.
   */
  origin: string
  /** How long the origin may take until its response headers (default `'30s'`); then the caller gets a 504. */
  originDeadline?: Duration | undefined
  /**
   * Which of several deployments this is, as in `'live'` and `'test'`: it stands in API keys (`slk_test_…`) and in every
   * key of the store, so that none takes the keys of another or counts in its place. The variable SLUICE_ENVIRONMENT
   * overrides it. Default: none.
   */
  environment?: string | undefined
  /** Names that API keys may carry as their plan; callers without one count as of the first (default `['free']`). */
  plans?: string[] | undefined
  /** Parts of the API that ask for other credentials or cost more. The most specific that matches is the request's. Default: none. */
  routes?: RouteInput[] | undefined
  /** Every rule that matches a request is evaluated, all in one trip, all or nothing. */
  rules: RuleInput[]
  /**
   * Limits that are asked by name and not by requests that pass through: calls to third parties, background tasks.
   * Each is a set of rules that is decided all or nothing. Default: none.
   */
  limits?: Record<string, LimitRuleInput[]> | undefined
  /** How callers say who they are, and what is taken. Default: API keys. */
  credentials?: CredentialsInput | undefined
  /** Where the client's address is read, and what of it is one caller. Default: as Cloudflare tells it, IPv6 by /64. */
  address?: AddressInput | undefined
  /** Who is never limited. They still show their credential. Default: nobody. */
  allow?:
    | {
        /** As in `['192.0.2.7', '10.0.0.0/8', '2001:db8::/32']` (default `[]`). Bad credentials are not counted for them either. */
        addresses?: string[] | undefined
        /** By their names, as in `['acme']` (default `[]`); of tokens `'auth0~<name>'`, escaped. */
        consumers?: string[] | undefined
      }
    | undefined
  /** Who is refused with a 403, before anything is asked. Consumers are blocked live: `npx sluice consumers block`. Default: nobody. */
  block?:
    | {
        /** As in `['192.0.2.7', '10.0.0.0/8', '2001:db8::/32']` (default `[]`). */
        addresses?: string[] | undefined
        /** As Cloudflare tells them, by ISO 3166-1, as in `['XX']` (default `[]`). `'T1'` is Tor. */
        countries?: string[] | undefined
      }
    | undefined
  /**
   * What happens to a request while the store does not answer, for rules without a setting of their own (default `'local'`: each
   * isolate counts by itself). With `'open'` there is no limit during an outage.
   */
  onStoreFailure?: OnStoreFailure | undefined
  /** How the store is asked. Where it is, is a variable of the environment. */
  store?:
    | {
        /** How long one decision may take (default `'250ms'`); after that it is made without the store. */
        deadline?: Duration | undefined
        /** When an isolate stops waiting for a store that fails. `false`: never. */
        breaker?: BreakerInput | false | undefined
        /**
         * How many decisions of one isolate may wait for the store at once (default `100`). One more is made without the
         * store (`Sluice-Degraded: overload`), and rules with `'open'` are counted in the isolate then.
         */
        maxInFlight?: number | undefined
        /**
         * The share of each limit that one isolate admits by itself while the store fails, for rules with
         * `onStoreFailure: 'local'` (default `1`). There can be many isolates.
         */
        localShare?: number | undefined
        /**
         * Send the script with `flags=allow-key-locking` (default `true`), without which Upstash runs it under a
         * lock on the whole database. The bridge of this project takes either; turn it off for other proxies.
         */
        keyLocking?: boolean | undefined
        /**
         * The store is a Redis Cluster (default `false`): the bridge of this project in front of one. A request that
         * is counted in several slots is decided by each of them; docs/algorithms.md says what that means.
         */
        cluster?: boolean | undefined
      }
    | undefined
  /** Lines of JSON about requests that are refused, would be by a shadow, or pass because the store fails. */
  log?:
    | {
        /** Lines of each event that an isolate writes in a second, 0 for none (default `5`). Each says how many were left out. */
        perSecond?: number | undefined
      }
    | undefined
  /** Counters of what was decided, for `npx sluice stats`. */
  stats?:
    | {
        /** Keep them in the store (default `true`). */
        keep?: boolean | undefined
        /** How often an isolate that has requests hands its counters on (default `'10s'`): one HTTP request, a command for each counter. */
        every?: Duration | undefined
      }
    | undefined
  /**
   * Answer browsers' preflights here. Without it they go to the origin, and its own CORS headers stand. Either
   * way they are neither authenticated nor counted. Default: they go to the origin.
   */
  cors?: CorsInput | undefined
}

const KEY_PREFIX = /^[a-z][a-z0-9]{1,11}$/

const COUNTRY = "is no country. Write its two capital letters (ISO 3166-1), as in 'XX'."

const WEB_ORIGIN = "is no origin of a web page. Write it as in 'https://app.example.com', without a path."

/** As browsers send it: scheme, host and port, nothing behind. */
const webOrigin = v.pipe(
  v.string(WEB_ORIGIN),
  v.check(input => URL.canParse(input) && new URL(input).origin === input, WEB_ORIGIN),
)

const origin = v.pipe(
  v.string("is no origin. Write a URL such as 'https://api.example.com', or 'route'."),
  v.check(
    input => input === 'route' || isOriginUrl(input),
    "is no origin. Write an http or https URL without query or credentials, such as 'https://api.example.com', or 'route'.",
  ),
)

/** It stands in API keys between underscores. */
const environmentName = v.pipe(
  text("is no name. Write it as in 'live' or 'test'."),
  v.regex(ENVIRONMENT, "is no name. Use 1 to 16 lower case letters and digits, as in 'live' or 'test'."),
)

const keyPrefix = v.pipe(
  text("is no prefix. Write it as in 'slk'."),
  v.regex(KEY_PREFIX, 'is no prefix. Use 2 to 12 lower case letters and digits, beginning with a letter.'),
)

const headerName = v.pipe(
  text("is no header name. Write it as in 'x-partner-key'."),
  v.regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/, "is no header name. Write it as in 'x-partner-key'."),
)

const headerOfKeys = v.pipe(
  headerName,
  v.check(
    input => !/^(authorization|x-api-key)$/i.test(input),
    'is where keys are looked for anyway. Leave it out, or name another header.',
  ),
)

const CONSUMER =
  "is no consumer. Write its name, as in 'acme', or of a token its issuer and what the claim says, percent-encoded, as in 'auth0~alice%40example.com'."

const consumer = v.pipe(
  v.string(CONSUMER),
  v.check(
    input => isConsumerName(input) || /^[a-z0-9][a-z0-9_-]{0,62}~(#[0-9a-f]{64}|[\w.!'()%-]+)$/.test(input),
    CONSUMER,
  ),
)

function isMethod(input: unknown): input is JwtMethod {
  return typeof input === 'object' && input !== null && 'createVerifier' in input
}

/** Told without the value, in which a secret may stand by mistake. */
const method = v.lazy(input =>
  isMethod(input)
    ? v.custom<JwtMethod>(isMethod)
    : v.never("is no issuer. Write jwt({ … }) around it, with import { jwt } from './src/config/jwt.ts'."),
)

const METHODS = 'Write it as in { auth0: jwt({ … }) }.'

const methods = v.lazy(input => {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    return v.never(`is no object. ${METHODS}`)
  }
  return isMethod(input)
    ? v.never(`is an issuer without a name. ${METHODS}`)
    : record(name('name of an issuer'), method, METHODS)
})

const LOCAL_SHARE = 'is no share. Write a number from 0.001 to 1.'

const BREAKER = "is no breaker. Write it as in { retryAfter: '1s' }, or false."

const breaker = v.lazy(input =>
  input === false
    ? v.literal(false)
    : settings(
        {
          failures: v.optional(units(1, 1000)),
          slowCalls: v.optional(units(1, 1000)),
          slowAfter: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
          retryAfter: v.optional(duration(10e3, 60e6, "from '10ms' to '60s'")),
        },
        BREAKER,
      ),
)

export const configSchema = settings(
  {
    origin,
    originDeadline: v.optional(duration(1e3, 600e6, "from '1ms' to '10m'")),
    plans: v.optional(
      v.pipe(
        v.array(name('plan name'), "is no list. Write it as in ['free', 'pro']."),
        v.minLength(1, 'is empty. Name at least one plan, or leave it out.'),
      ),
    ),
    rules: v.pipe(
      v.array(rule, 'is no list of rules. Write [{ … }, { … }].'),
      v.minLength(1, 'is empty. Write at least one rule: a gateway without a limit is a proxy.'),
    ),
    limits: v.optional(
      record(
        name('name of a limit'),
        v.pipe(
          v.array(limitRule, 'is no list of rules. Write [{ … }, { … }].'),
          v.minLength(1, 'is empty. Write at least one rule.'),
        ),
        "is no object. Write it as in { zendesk: [{ name: 'second', … }] }.",
      ),
    ),
    environment: v.optional(environmentName),
    address: v.optional(address),
    allow: v.optional(
      settings(
        {
          addresses: v.optional(addressRanges),
          consumers: v.optional(v.array(consumer, "is no list. Write it as in ['acme'].")),
        },
        "is no object. Write it as in { addresses: ['10.0.0.0/8'] }.",
      ),
    ),
    block: v.optional(
      settings(
        {
          addresses: v.optional(addressRanges),
          countries: v.optional(
            v.array(
              v.pipe(text(COUNTRY), v.regex(/^[A-Z][A-Z0-9]$/, COUNTRY)),
              "is no list. Write it as in ['XX'].",
            ),
          ),
        },
        "is no object. Write it as in { addresses: ['192.0.2.0/24'] }.",
      ),
    ),
    routes: v.optional(
      v.array(route, "is no list of routes. Write [{ name: 'reports', match: { path: '/reports/*' } }]."),
    ),
    credentials: v.optional(
      settings(
        {
          accept: v.optional(acceptList),
          apiKeys: v.optional(
            settings({ prefix: v.optional(keyPrefix) }, "is no object. Write it as in { prefix: 'slk' }."),
          ),
          opaqueKeys: v.optional(
            settings(
              {
                header: v.optional(headerOfKeys),
                rememberFor: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
              },
              "is no object. Write {}, or { header: 'x-partner-key' }.",
            ),
          ),
          jwt: v.optional(methods),
          forward: v.optional(flag),
          onStoreFailure: v.optional(
            v.picklist(
              ['recent', 'refuse', 'unchecked'],
              "is not known here. Use 'recent', 'refuse' or 'unchecked'.",
            ),
          ),
          seenFor: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
        },
        "is no object. Write it as in { accept: ['api-key'] }.",
      ),
    ),
    onStoreFailure: v.optional(onStoreFailure()),
    store: v.optional(
      settings(
        {
          deadline: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
          breaker: v.optional(breaker),
          maxInFlight: v.optional(units(1, 10_000)),
          localShare: v.optional(
            v.pipe(v.number(LOCAL_SHARE), v.minValue(0.001, LOCAL_SHARE), v.maxValue(1, LOCAL_SHARE)),
          ),
          keyLocking: v.optional(flag),
          cluster: v.optional(flag),
        },
        "is no object. Write it as in { deadline: '250ms' }.",
      ),
    ),
    log: v.optional(
      settings({ perSecond: v.optional(units(0, 1000)) }, 'is no object. Write it as in { perSecond: 5 }.'),
    ),
    stats: v.optional(
      settings(
        { keep: v.optional(flag), every: v.optional(duration(1e6, 20e6, "from '1s' to '20s'")) },
        "is no object. Write it as in { every: '10s' }.",
      ),
    ),
    cors: v.optional(
      settings(
        {
          origins: v.union(
            [
              v.literal('*'),
              v.pipe(
                v.array(webOrigin),
                v.minLength(1, 'is empty: nobody could read replies. Name an origin.'),
              ),
            ],
            "is no list of origins. Write '*' or ['https://app.example.com'].",
          ),
          headers: v.optional(
            v.array(headerName, "is no list of header names. Write it as in ['content-type']."),
          ),
          maxAge: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
        },
        "is no object. Write it as in { origins: '*' }.",
      ),
    ),
  },
  'is no config. Write export default defineConfig({ … }).',
) satisfies v.GenericSchema<ConfigInput>
