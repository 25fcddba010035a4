/**
 * The parts that a rule of the gateway can count by. docs/config.md is generated from their doc comments (`npm run reference`): the
 * text after `Without:` describes a request without a value. src/set-ups/http/identity-keys.ts reads the values.
 */

export interface IdentityPart {
  /** Rules by this part apply only to callers with a valid credential, or a valid token. */
  readonly needs?: 'credential' | 'token'
  /** The part belongs to a consumer: overrides of the consumer apply, and the counters are in the consumer's hash slot. */
  readonly isOfConsumer?: true
  /** Cloudflare reports the value with the connection (`cf`). `npx sluicegate explain --<part>` shows the example. */
  readonly cf?: { readonly example: string | number }
  /** The part is written with a name: `header:<name>`. `nameForms` has the valid names. */
  readonly isNamed?: true
  /** The part cannot be combined with others. */
  readonly isAlone?: true
}

export const identityParts = {
  /** The consumer that the credential belongs to. */
  consumer: { needs: 'credential', isOfConsumer: true },
  /** A single key or token. A new key or token starts with fresh counts; a token is the same in all spellings of its signature. */
  credential: { needs: 'credential', isOfConsumer: true },
  /** The client's address; for IPv6, its network ([address](#address)). Without: counted with all others whose address is not known. */
  address: {},
  /** The name of the request's route. Without: counted with all others without a route. */
  route: {},
  /** The method as sent: GET, HEAD, POST, … HEAD and GET are counted separately. */
  method: {},
  /** The hostname of the request. Except on Cloudflare, [clients choose it](security.md#what-a-caller-can-spoof). */
  host: {},
  /** The value of a header. Its name is written in lower case. Without: counted with all others without the header. */
  header: { isNamed: true },
  /**
   * A field of the request's body: a text or a whole number at the root of JSON, or of a form (not multipart), of at most 8 kB
   * ([guessed passwords](units.md#guessed-passwords)). Without: counted with all others without the field, or whose body can be read in two ways.
   */
  field: { isNamed: true },
  /**
   * A claim of a token (text, number or boolean), separate for each issuer. Without: a token without the claim is counted with all
   * others of its issuer that lack it.
   */
  claim: { needs: 'token', isNamed: true },
  /** The [mode](credentials.md#test-keys) of the credential, `live` or `test`. Without: counted as live. */
  mode: {},
  /** The country of the client, as Cloudflare reports it. Without: counted with all others without one. */
  country: { cf: { example: 'DE' } },
  /** The network of the client, by its AS number as Cloudflare reports it. Without: counted with all others without one. */
  asn: { cf: { example: 64496 } },
  /** All callers together. It cannot be combined with other parts. */
  global: { isAlone: true },
} as const satisfies Record<string, IdentityPart>

export type IdentityParts = typeof identityParts

/** The part without the name that may follow: `header` for `header:x-tenant`. */
export type PartName = keyof IdentityParts

/** Parts that have a property, such as `isNamed`. */
type PartsWith<Property extends keyof IdentityPart> = {
  [Name in PartName]: IdentityParts[Name] extends Record<Property, unknown> ? Name : never
}[PartName]

/** Parts that Cloudflare reports with the connection. */
export type CfPart = PartsWith<'cf'>

export const CF_PARTS = /* @__PURE__ */ (() =>
  Object.entries<IdentityPart>(identityParts).flatMap(([part, { cf }]) =>
    cf ? [{ part: part as CfPart, example: cf.example }] : [],
  ))()

export type NamedPart = PartsWith<'isNamed'>

/** The valid names of such parts, and a message for invalid ones. Only the check uses this, so a built Worker does not carry it. */
export const nameForms: Record<NamedPart, { form: RegExp; fix: string }> = {
  header: {
    // RFC 9110, section 5.6.2.
    form: /^[!#$%&'*+.^_`|~0-9a-z-]{1,64}$/,
    fix: "does not name a header. Write its name in lowercase, as in 'header:x-tenant'.",
  },
  field: {
    form: /^[^\s\p{C}]{1,64}$/u,
    fix: "does not name a field. Use 1 to 64 characters without spaces, as in 'field:email'.",
  },
  claim: { form: /^.{1,128}$/s, fix: "does not name a claim. Use 1 to 128 characters, as in 'claim:org'." },
}

/**
 * A part that a rule counts by, as written in a config. Requests without such a header, claim, route, country or network are counted
 * together. A rule by a part that needs a credential does not apply to requests without one. `global` cannot be combined with other
 * parts: it counts all requests together, under one key.
 */
export type By = Exclude<PartName, NamedPart> | `${NamedPart}:${string}`

/** Splits `header:x-tenant` into the part `header` and the name `x-tenant`. The name of other parts is empty. */
export function readPart(by: By): { part: PartName; name: string } {
  const end = by.indexOf(':')
  return end < 0
    ? { part: by as PartName, name: '' }
    : { part: by.slice(0, end) as PartName, name: by.slice(end + 1) }
}

export function partOf(by: By): IdentityPart {
  return identityParts[readPart(by).part]
}

/** Whether rules by this part apply only to callers with a valid credential. */
export function needsCredential(by: By): boolean {
  return partOf(by).needs !== undefined
}

export function needsToken(by: By): boolean {
  return partOf(by).needs === 'token'
}

/** Whether the value comes from the body of the request. */
export const isField = (by: By) => readPart(by).part === 'field'

/** Whether any rule counts by a field of the body. */
export const countsByField = (rules: readonly { by: readonly By[] }[]) =>
  rules.some(({ by }) => by.some(isField))

/** Whether the counters belong to a consumer. */
export function isOfConsumer(by: readonly By[]): boolean {
  return by.some(part => partOf(part).isOfConsumer)
}

/** Whether test callers and live ones are counted separately, although `by` does not say so: no test caller spends a live budget. */
export const separatesModes = (by: readonly By[]) => by.some(needsCredential) && !by.includes('mode')

/** The label, without a value, of identities that count both modes together. It must not be that of a part. */
export const BOTH_MODES = 'both-modes'

/**
 * Identifies what is counted. Rules with the same text share the state of an identity; rules with different texts never do. The
 * consumer or address that owns the state comes first, wherever it stands in `by`.
 */
export function identityOf(by: readonly By[], acrossModes = false): string {
  const owner = isOfConsumer(by) ? 'consumer' : by.includes('address') ? 'address' : ''
  const parts = by.filter(part => part !== owner && part !== 'global')
  // JSON, because the name of a claim can contain any character.
  return JSON.stringify([owner, ...parts, ...(acrossModes ? [BOTH_MODES] : [])])
}
