/**
 * The shape of sluice.config.ts: the types a user sees, and the schema that checks what they wrote.
 * Messages are the second half of a sentence that config-error.ts begins with the path and the value.
 */
import * as v from 'valibot'
import { type Duration, parseDuration } from './duration.ts'

export type { Duration }

interface RuleBase {
  /** Names the rule in headers, logs and state: lower case letters, digits, `-` and `_`. Unique. */
  name: string
  /** Whose requests are counted together: the API key's consumer, or the client address (IPv6: its /64). */
  by: 'consumer' | 'address'
  /** How many units per period. */
  limit: number
  /** `'1s'`, `'90s'`, `'15m'`, `'1h'`, `'1d'`, … from 1 ms to 366 days. */
  period: Duration
  /** Units one request takes (default 1). 0 reports what is left and takes nothing. */
  cost?: number | undefined
  /** Which requests the rule is for. Everything that is given must hold. Default: every request. */
  match?: MatchInput | undefined
  /**
   * Callers without a credential are let in where at least one rule with `anonymous: true` matches; elsewhere
   * they get a 401. Only rules `by: 'address'` can say so: it is all that is known of such a caller.
   */
  anonymous?: boolean | undefined
}

export interface GcraRuleInput extends RuleBase {
  /** Evenly spaced, with a burst. Never more than `burst` + rate × time. */
  algorithm: 'gcra'
  /** Units at once after a pause (default: `limit`). 1 means strictly evenly spaced. */
  burst?: number | undefined
}

export interface FixedWindowRuleInput extends RuleBase {
  /** At most `limit` in each window; windows are aligned to the epoch (`'1h'`: on the hour, UTC). */
  algorithm: 'fixed-window'
}

export type RuleInput = GcraRuleInput | FixedWindowRuleInput

export interface MatchInput {
  /** `['GET', 'HEAD']` */
  methods?: string[] | undefined
  /** A URLPattern for the host name: `'api.example.com'`, `'*.example.com'` */
  host?: string | undefined
  /** A URLPattern for the path: `'/reports/*'`, `'/users/:id'` */
  path?: string | undefined
  /** Plans, as listed in `plans`. */
  plans?: string[] | undefined
}

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
      }
    | undefined
  /**
   * Answer browsers' preflights here. Without it they go to the origin, and its own CORS headers stand. Either
   * way they are neither authenticated nor counted.
   */
  cors?: CorsInput | undefined
}

/** The largest count × scale that stays exact in double arithmetic with room for the sums made with it. */
export const MAX_TICKS = 2 ** 51
const MAX_UNITS = 1e9
const MAX_PERIOD = 366 * 86400e6

const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/

/** An object with these keys and no others. */
function settings<const T extends v.ObjectEntries>(entries: T, fix: string) {
  return v.strictObject(entries, issue => {
    if (issue.expected === 'never') {
      return `is not a setting here. The settings are ${Object.keys(entries).join(', ')}.`
    }
    const missing = entries[String(issue.path?.at(-1)?.key)]
    // A key that is missing is explained as if undefined stood there.
    return (missing && v.safeParse(missing as v.GenericSchema, undefined).issues?.[0].message) ?? fix
  })
}

const text = (fix: string) => v.pipe(v.string(fix), v.minLength(1, fix))

const name = (what: string) =>
  v.pipe(
    v.string(`is no ${what}. Write text.`),
    v.regex(NAME, `is no ${what}. Use 1 to 63 lower case letters, digits, '-' and '_'.`),
  )

function duration(low: number, high: number, range: string) {
  const fix = "is no duration. Write a number and a unit in quotes, as in '250ms', '1s', '15m', '1h' or '1d'."
  return v.pipe(
    v.custom<Duration>(input => typeof input === 'string' && parseDuration(input) !== undefined, fix),
    v.check(input => {
      const microseconds = parseDuration(input)!
      return microseconds >= low && microseconds <= high
    }, `is out of range. It can be ${range}.`),
  )
}

const units = (low: number) => {
  const fix = `is no amount. Write a whole number from ${low} to ${MAX_UNITS}.`
  return v.pipe(v.number(fix), v.integer(fix), v.minValue(low, fix), v.maxValue(MAX_UNITS, fix))
}

const flag = v.boolean('is neither true nor false.')

function urlPattern(part: 'pathname' | 'hostname', example: string) {
  return v.pipe(
    text(`is no pattern. Write text such as '${example}'.`),
    v.check(input => {
      try {
        return Boolean(new URLPattern({ [part]: input }))
      } catch {
        return false
      }
    }, `is no URLPattern. Write something like '${example}'.`),
  )
}

const match = settings(
  {
    methods: v.optional(
      v.pipe(
        v.array(
          v.pipe(
            v.string('is no method.'),
            v.regex(/^[A-Z]+$/, "is no method. Write it in capitals, as in 'GET'."),
          ),
          "is no list. Write it as in ['GET', 'POST'].",
        ),
        v.minLength(1, 'is empty: the rule would match nothing. Name a method, or leave it out.'),
      ),
    ),
    host: v.optional(urlPattern('hostname', 'api.example.com')),
    path: v.optional(
      v.pipe(
        urlPattern('pathname', '/reports/*'),
        v.startsWith('/', "does not start with '/'. Write it as in '/reports/*'."),
      ),
    ),
    plans: v.optional(
      v.pipe(
        v.array(name('plan name'), "is no list. Write it as in ['pro']."),
        v.minLength(1, 'is empty: the rule would match nothing. Name a plan, or leave it out.'),
      ),
    ),
  },
  "is no object. Write it as in { path: '/reports/*' }.",
)

const ruleBase = {
  name: name('rule name'),
  by: v.picklist(['consumer', 'address'], "is nothing to count by. Use 'consumer' or 'address'."),
  limit: units(1),
  period: duration(1e3, MAX_PERIOD, "from '1ms' to '366d'"),
  cost: v.optional(units(0)),
  match: v.optional(match),
  anonymous: v.optional(flag),
}

const RULE =
  "is no rule. Write { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }."

const rule = v.variant(
  'algorithm',
  [
    settings({ ...ruleBase, algorithm: v.literal('gcra'), burst: v.optional(units(1)) }, RULE),
    settings({ ...ruleBase, algorithm: v.literal('fixed-window') }, RULE),
  ],
  issue => (issue.expected === 'Object' ? RULE : "is no algorithm. Use 'gcra' or 'fixed-window'."),
)

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
    credentials: v.optional(settings({ forward: v.optional(flag) }, 'is no object.')),
    store: v.optional(
      settings(
        {
          deadline: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
          keyLocking: v.optional(flag),
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
