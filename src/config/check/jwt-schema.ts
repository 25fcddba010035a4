/**
 * The schema of one entry of `credentials.jwt`. Each message is the second half of a sentence that mistake.ts begins with the
 * path and the value.
 */
import * as v from 'valibot'
import { CALLER_MODES } from '../caller-mode.ts'
import { didYouMean } from './did-you-mean.ts'
import { duration, flag, name, oneOf, record, settings, text } from './values.ts'

const PUBLIC_KEY_ALGORITHMS = [
  ...(['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'] as const),
  ...(['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'] as const),
] as const
const SECRET_ALGORITHMS = ['HS256', 'HS384', 'HS512'] as const

/**
 * Tokens that an issuer signs: their claims name the caller's consumer and plan. The keys come from one of three
 * sources: `jwks`, `secret` or `access`.
 */
export type JwtInput = JwksInput | SecretInput | AccessInput

export interface JwksInput extends v.InferInput<typeof METHODS.jwks> {}

export interface SecretInput extends v.InferInput<typeof METHODS.secret> {}

/** Cloudflare Access in front of this Worker; `audience` is the application's AUD tag. */
export interface AccessInput extends v.InferInput<typeof METHODS.access> {}

const METHOD =
  "is not an issuer. Write { jwks: 'https://…', algorithms: ['RS256'], issuer: 'https://…', audience: '…' }."

/**
 * The schema of a URL that keys are read from. It must be https, so that the keys cannot be replaced in transit; http is
 * accepted for localhost.
 */
function keyUrl(fix: string, isAllowed: (url: URL) => boolean) {
  const isLocal = ({ hostname }: URL) => hostname === 'localhost' || hostname === '127.0.0.1'
  return v.pipe(
    text(fix),
    v.check(input => {
      if (!URL.canParse(input)) return false
      const url = new URL(input)
      const isSafe = url.protocol === 'https:' || (url.protocol === 'http:' && isLocal(url))
      return isSafe && !url.username && !url.password && !url.hash && isAllowed(url)
    }, fix),
  )
}

const jwks = keyUrl(
  "is not the URL of a key set. Write an https URL (http only for localhost), as in 'https://issuer.example.com/.well-known/jwks.json'.",
  () => true,
)

const access = keyUrl(
  "is not the URL of an Access team. Write it like 'https://team.cloudflareaccess.com', without a path.",
  url => url.pathname === '/' && !url.search,
)

const SECRET =
  "is not the name of a variable. Write the name in capitals, as in 'JWT_SECRET', and never the secret itself: npx wrangler secret put JWT_SECRET"

/** An invalid value may be the secret itself. With `never`, mistake.ts leaves the value out of the message. */
const secret = v.lazy(input =>
  typeof input === 'string' && /^[A-Z][A-Z0-9_]{0,63}$/.test(input) ? v.string() : v.never(SECRET),
)

function algorithms<const Names extends readonly string[]>(
  own: Names,
  foreign: readonly string[],
  whyNot: string,
) {
  const list = `Use ${own.slice(0, -1).join(', ')} or ${own.at(-1)}.`
  return v.pipe(
    v.array(
      v.picklist(own, ({ input }) => {
        const written = typeof input === 'string' ? input : ''
        if (written.toLowerCase() === 'none') {
          return `is not allowed: a token without a signature proves nothing. ${list}`
        }
        return foreign.includes(written)
          ? `${whyNot} ${list}`
          : `is not an algorithm.${didYouMean(written, own)} ${list}`
      }),
      `is not a list of algorithms. Write what the issuer signs with, as in ['${own[0]}'].`,
    ),
    v.minLength(1, `is empty. Write what the issuer signs with, as in ['${own[0]}'].`),
  )
}

const HEADER = "is not a header name. Write it like 'X-Token'."

const issuer = {
  /** The exact `iss` of its tokens. With Auth0, it ends with a slash. */
  issuer: text("is not an issuer. Write the iss of its tokens, as in 'https://issuer.example.com/'."),
}

const oneOrMore = (fix: string) =>
  v.union([text(fix), v.pipe(v.array(text(fix), fix), v.minLength(1, fix))], fix)

const common = {
  /** The audience that tokens must name in `aud`. Of several, one is enough. */
  audience: oneOrMore("is not an audience. Write the aud of its tokens, as in 'api'."),
  /** How far the issuer's clock may be off (default `'5s'`). */
  clockTolerance: v.optional(duration(0, 300e6, "from '0s' to '5m'")),
  /** A header that carries the bare token. Default: `Authorization: Bearer <token>`; Access: `Cf-Access-Jwt-Assertion`. */
  header: v.optional(
    v.pipe(
      v.string(HEADER),
      v.regex(/^[\w!#$%&'*+.^`|~-]+$/, HEADER),
      v.check(
        input => !/^authorization$/i.test(input),
        'needs no setting: Authorization: Bearer is the default. Remove this line.',
      ),
      v.check(input => !/^x-api-key$/i.test(input), 'is the header of API keys. Name another header.'),
    ),
  ),
  /** Which claims describe the caller. */
  claims: v.optional(
    settings(
      {
        /**
         * The claim that names the consumer. Of several, the first that is not empty. Default: `'sub'`; Access:
         * `['sub', 'common_name']`, because service tokens have an empty `sub`.
         */
        consumer: v.optional(oneOrMore("is not a claim name. Write it like 'sub' or ['sub', 'email'].")),
        /** The claim that names the plan. Default: none. */
        plan: v.optional(text("is not a claim name. Write it like 'plan'.")),
        /**
         * The claim that names the mode: `live` or `test`. A token without it is live; one with another value is refused with a 401.
         * Default: all tokens are live.
         */
        mode: v.optional(text("is not a claim name. Write it like 'mode'.")),
      },
      "is not an object. Write it like { consumer: 'sub', plan: 'plan' }.",
    ),
  ),
  /**
   * Maps the issuer's plans to plans of this config, as in `{ gold: 'pro' }`. Plans that are not listed keep their name. Default: all
   * plans keep their name.
   */
  plans: v.optional(
    record(v.string(), name('plan name'), "is not an object. Write it like { gold: 'pro' }."),
  ),
  /** Maps the issuer's modes to `live` and `test`, as in `{ sandbox: 'test' }` or `{ true: 'live', false: 'test' }`. Default: none. */
  modes: v.optional(
    record(
      v.string(),
      oneOf(CALLER_MODES, 'is not a mode'),
      "is not an object. Write it like { sandbox: 'test' }.",
    ),
  ),
  /**
   * Whether the claim names the same consumers as API keys, so that both are counted together (default `false`: each issuer has
   * its own consumers, and cannot name those of another). Use `true` only for an issuer that you trust with every consumer.
   */
  sharesConsumers: v.optional(flag),
}

const METHODS = {
  jwks: settings(
    {
      /** Where the issuer publishes its public keys: `'https://issuer.example.com/.well-known/jwks.json'` */
      jwks,
      /** The algorithms that the issuer signs with, as in `['RS256']`. A token with another algorithm is refused. */
      algorithms: algorithms(
        PUBLIC_KEY_ALGORITHMS,
        SECRET_ALGORITHMS,
        'cannot be combined with jwks: anyone who reads the public key could sign with it.',
      ),
      ...issuer,
      ...common,
    },
    METHOD,
  ),
  secret: settings(
    {
      /**
       * The name of the variable (the Worker's secret) that holds the secret shared with the issuer, as in `'JWT_SECRET'`:
       * never the secret itself. The secret is text, and at least as long as the hash (HS256: 32 bytes).
       */
      secret,
      /** The algorithms that the issuer signs with, as in `['HS256']`. A token with another algorithm is refused. */
      algorithms: algorithms(
        SECRET_ALGORITHMS,
        PUBLIC_KEY_ALGORITHMS,
        'cannot be combined with secret: it uses public keys, which come from jwks.',
      ),
      ...issuer,
      ...common,
    },
    METHOD,
  ),
  access: settings(
    {
      /** The team's address: `'https://team.cloudflareaccess.com'` */
      access,
      ...common,
    },
    METHOD,
  ),
}

/** The source of the keys decides which other settings there are. Messages leave the value out, which may contain the secret by mistake. */
export const jwtSchema: v.GenericSchema<JwtInput> = v.lazy(input => {
  if (typeof input !== 'object' || input === null) return v.never(METHOD)
  const [place, ...others] = (['jwks', 'secret', 'access'] as const).filter(place => place in input)
  if (!place) {
    return v.never(
      "has no keys. Write jwks: 'https://…', secret: 'NAME_OF_A_VARIABLE' or access: 'https://team.cloudflareaccess.com'.",
    )
  }
  if (others.length > 0) {
    return v.never(`has ${[place, ...others].join(' and ')}. Keep one of them: keys come from one place.`)
  }
  return METHODS[place]
})

/**
 * Finds mistakes that the schema cannot find.
 * @param planNames the plans of the config
 * @returns the key and the message of each mistake
 */
export function mistakesOfJwt(
  name: string,
  { claims, plans, modes }: JwtInput,
  planNames?: readonly string[],
): [key: string, message: string][] {
  const mistakes: [string, string][] = []
  if (plans && claims?.plan === undefined) {
    mistakes.push([
      'plans',
      `has no effect without claims.plan. Name the claim that holds the plan in tokens of ${name}, or leave plans out.`,
    ])
  }
  if (modes && claims?.mode === undefined) {
    mistakes.push([
      'modes',
      `has no effect without claims.mode. Name the claim that holds the mode in tokens of ${name}, or leave modes out.`,
    ])
  }
  for (const [value, plan] of Object.entries(plans ?? {})) {
    if (!planNames || planNames.includes(plan)) continue
    mistakes.push([
      `plans.${value}`,
      `'${plan}' is not in plans (${planNames.join(', ')}).${didYouMean(plan, planNames) || ' Add it there.'}`,
    ])
  }
  return mistakes
}
