/**
 * The shape of sluice.config.ts: the types a user sees, and the schema that checks what they wrote.
 * Messages are the second half of a sentence that config-error.ts begins with the path and the value.
 */
import * as v from 'valibot'
import type { Duration } from './duration.ts'
import { type LimitRuleInput, limitRule, type RuleInput, rule } from './rule-schema.ts'
import { duration, flag, name, settings, text } from './values.ts'

export type { Duration, LimitRuleInput, RuleInput }

export interface CorsInput {
  /** Origins that may read replies: `'*'` or `['https://app.example.com']` */
  origins: '*' | string[]
  /** Request headers that scripts may send (default: what the preflight asks for). */
  headers?: string[] | undefined
  /** How long a browser may remember the answer (default 10m). */
  maxAge?: Duration | undefined
}

export interface ConfigInput {
  /**
   * Where admitted requests go: a URL (a path in it is put before the request's own), or `'route'` on a Workers
   * route, where the origin is what the zone's DNS says. The variable ORIGIN_URL overrides it.
   */
  origin: string
  /** How long the origin may take until its response headers (default 30s); then the caller gets a 504. */
  originDeadline?: Duration | undefined
  /** Names that API keys may carry as their plan; the first is the default. Default: `['free']`. */
  plans?: string[] | undefined
  /** Every rule that matches a request is evaluated, all in one trip, all or nothing. */
  rules: RuleInput[]
  /**
   * Limits that are asked by name and not by requests that pass through: calls to third parties, background tasks.
   * Each is a set of rules that is decided all or nothing.
   */
  limits?: Record<string, LimitRuleInput[]> | undefined
  credentials?:
    | {
        /** Hand the caller's API key on to the origin (default false). */
        forward?: boolean | undefined
      }
    | undefined
  store?:
    | {
        /** How long one decision may take (default 250ms); after that the request passes unlimited, marked. */
        deadline?: Duration | undefined
        /**
         * Send the script with `flags=allow-key-locking` (default true), without which Upstash runs it under a
         * lock on the whole database. The bridge of this project takes either; turn it off for other proxies.
         */
        keyLocking?: boolean | undefined
        /**
         * The store is a Redis Cluster (default false): the bridge of this project in front of one. A request that
         * is counted in several slots is decided by each of them; docs/algorithms.md says what that means.
         */
        cluster?: boolean | undefined
      }
    | undefined
  /**
   * Answer browsers' preflights here. Without it they go to the origin, and its own CORS headers stand. Either
   * way they are neither authenticated nor counted.
   */
  cors?: CorsInput | undefined
}

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

/** An http(s) URL that a request's path can be put behind. */
export function isOriginUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const url = new URL(text)
  return /^https?:$/.test(url.protocol) && !url.search && !url.hash && !url.username && !url.password
}

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
      v.record(
        name('name of a limit'),
        v.pipe(
          v.array(limitRule, 'is no list of rules. Write [{ … }, { … }].'),
          v.minLength(1, 'is empty. Write at least one rule.'),
        ),
        "is no object. Write it as in { zendesk: [{ name: 'second', … }] }.",
      ),
    ),
    credentials: v.optional(settings({ forward: v.optional(flag) }, 'is no object.')),
    store: v.optional(
      settings(
        {
          deadline: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
          keyLocking: v.optional(flag),
          cluster: v.optional(flag),
        },
        'is no object.',
      ),
    ),
    cors: v.optional(
      settings(
        {
          origins: v.union(
            [v.literal('*'), v.array(webOrigin)],
            "is no list of origins. Write '*' or ['https://app.example.com'].",
          ),
          headers: v.optional(v.array(text('is no header name.'), 'is no list of header names.')),
          maxAge: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
        },
        "is no object. Write it as in { origins: '*' }.",
      ),
    ),
  },
  'is no config. Write export default defineConfig({ … }).',
) satisfies v.GenericSchema<ConfigInput>
