/** The schema of `credentials`: how callers authenticate. Messages: see rule-schema.ts. */
import * as v from 'valibot'
import type { JwtMethod } from '../jwt-method.ts'
import { acceptList } from './route-schema.ts'
import { duration, flag, headerName, name, oneOf, record, settings, text } from './values.ts'

/** The setting `credentials`: the kinds of credentials that are accepted, and how they are verified. */
export interface CredentialsInput extends v.InferInput<typeof credentials> {}

const KEY_PREFIX = /^[a-z][a-z0-9]{1,11}$/

const keyPrefix = v.pipe(
  text("is not a prefix. Write it like 'slk'."),
  v.regex(KEY_PREFIX, 'is not a prefix. Use 2 to 12 lowercase letters and digits, beginning with a letter.'),
)

const headerOfKeys = v.pipe(
  headerName,
  v.check(
    input => !/^(authorization|x-api-key)$/i.test(input),
    'is always searched for keys. Leave it out, or name another header.',
  ),
)

function isMethod(input: unknown): input is JwtMethod {
  return typeof input === 'object' && input !== null && 'createVerifier' in input
}

/** The message leaves the value out, because it may be a secret that was written here by mistake. */
const method = v.lazy(input =>
  isMethod(input)
    ? v.custom<JwtMethod>(isMethod)
    : v.never("is not an issuer. Wrap it in jwt({ … }), with import { jwt } from 'sluicegate'."),
)

const METHODS = 'Write it like { auth0: jwt({ … }) }.'

const methods = v.lazy(input => {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    return v.never(`is not an object. ${METHODS}`)
  }
  return isMethod(input)
    ? v.never(`is an issuer without a name. ${METHODS}`)
    : record(name('name of an issuer'), method, METHODS)
})

export const credentials = settings(
  {
    /**
     * Accepted credentials, tried in list order, unless a route has its own list: `'api-key'`, `'opaque-key'`,
     * names of `jwt`, `'identify'` for callers that the hook of this name identifies, and `'anonymous'` for callers without a credential.
     * Default: all of them, except `'anonymous'`.
     */
    accept: v.optional(acceptList),
    /** The keys that `npx sluicegate keys create` makes. */
    apiKeys: v.optional(
      settings(
        {
          /** Prefix of the keys (default `'slk'`). Keys with another prefix are no longer accepted. */
          prefix: v.optional(keyPrefix),
          /**
           * Check the signatures of keys with `SLUICE_KEY_SECRET`: a key with a wrong one is refused without a trip to the store (`'check'`),
           * and so is a key without one (`'require'`). Default: not checked, or `'check'` with `onStoreFailure: 'signed'`.
           */
          signature: v.optional(oneOf(['check', 'require'], 'does not say which signatures are needed')),
        },
        "is not an object. Write it like { prefix: 'slk' }.",
      ),
    ),
    /**
     * Keys that another system created and that were imported with `npx sluicegate keys import`. `{}` reads them from `X-API-Key` and
     * `Authorization: Bearer`. Default: such keys are not accepted.
     */
    opaqueKeys: v.optional(
      settings(
        {
          /** The only header that carries them. Default: `X-API-Key` and `Authorization: Bearer`. */
          header: v.optional(headerOfKeys),
          /** How long an isolate caches the consumer of a key (default `'10m'`). Every request still checks that the key is valid. */
          rememberFor: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
        },
        "is not an object. Write {}, or { header: 'x-partner-key' }.",
      ),
    ),
    /**
     * Tokens of other issuers, by a name of your choice: `{ auth0: jwt({ jwks, algorithms, issuer, audience }) }`, with `jwt` from
     * `sluicegate`. Default: none.
     */
    jwt: v.optional(methods),
    /**
     * Accept keys in a WebSocket subprotocol, because browsers cannot set headers on WebSockets:
     * `new WebSocket(url, ['sluice-key.slk_…', 'chat'])` (default `false`). If the origin has no subprotocol, write `'sluice'` in
     * place of `'chat'`. The origin does not get the key, but a proxy in front of the gateway can log it: docs/security.md.
     */
    webSocketKeys: v.optional(flag),
    /** Pass the caller's credential on to the origin (default `false`). */
    forward: v.optional(flag),
    /**
     * Which keys are accepted while the store cannot verify them: those that this isolate has admitted recently
     * (`'recent'`), these and signed keys (`'signed'`), none (`'refuse'`), or all that look like a key (`'unchecked'`: use it only if
     * the origin checks them too). Other callers get a 503. Tokens do not need the store: their signature verifies them. Default: `'recent'`.
     */
    onStoreFailure: v.optional(
      oneOf(['recent', 'signed', 'refuse', 'unchecked'], 'is not a fallback for keys'),
    ),
    /** How long an admitted key stays accepted during an outage (default `'10m'`), even if it has been revoked since. */
    seenFor: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
    /** How old a signed key that an isolate does not know can be to pass during an outage (default `'30d'`). */
    signedFor: v.optional(duration(86400e6, 3650 * 86400e6, "from '1d' to '3650d'")),
    /** The plan that such keys are counted on. Default: the first of `plans`. */
    signedPlan: v.optional(text('is not a plan. Write text.')),
  },
  "is not an object. Write it like { accept: ['api-key'] }.",
)
