/**
 * The parts that a rule of the gateway can count by. docs/config.md is made from their doc comments (`npm run reference`): the
 * text after `Without:` says what happens where a request has no value. src/edges/http/identity-keys.ts reads the values.
 */

export interface IdentityPart {
  /** Rules by this part apply only to callers who show a valid credential, or a valid token. */
  readonly needs?: 'credential' | 'token'
  /** It belongs to a consumer: overrides of the consumer apply, and the counters lie in the consumer's slot. */
  readonly isOfConsumer?: true
  /** Cloudflare reports it with the connection (`cf`). The example is what `npx sluicegate explain --<part>` shows. */
  readonly cf?: { readonly example: string | number }
  /** The part is written with a name: `header:<name>`. The form of the name is in `nameForms`. */
  readonly isNamed?: true
  /** No other part can stand beside it. */
  readonly isAlone?: true
}

export const identityParts = {
  /** The consumer that the credential belongs to. */
  consumer: { needs: 'credential', isOfConsumer: true },
  /** The one key or token. A new key or token starts with fresh counts. */
  credential: { needs: 'credential', isOfConsumer: true },
  /** The client's address; of IPv6 the network ([address](#address)). Without: counted with all others whose address is not known. */
  address: {},
  /** The name of the request's route. Without: counted with all others without a route. */
  route: {},
  /** The method as sent: GET, HEAD, POST, … HEAD is not GET here. */
  method: {},
  /** The host name of the request. */
  host: {},
  /** The value of a header. Its name is written in lower case. Without: counted with all others without the header. */
  header: { isNamed: true },
  /** A claim of a token (text, number or boolean), separate for each issuer. Without: a token without the claim is counted with all others of its issuer that lack it. */
  claim: { needs: 'token', isNamed: true },
  /** The country of the client, as Cloudflare reports it. Without: counted with all others without one. */
  country: { cf: { example: 'DE' } },
  /** The network of the client, as Cloudflare reports it. Without: counted with all others without one. */
  asn: { cf: { example: 64496 } },
  /** All callers together. It cannot be combined with other parts. */
  global: { isAlone: true },
} as const satisfies Record<string, IdentityPart>

export type Parts = typeof identityParts

/** What a part is called, without the name that may follow. */
export type PartName = keyof Parts

/** Parts with a property, as in `isNamed`. */
type PartsWith<Property extends keyof IdentityPart> = {
  [Name in PartName]: Parts[Name] extends Record<Property, unknown> ? Name : never
}[PartName]

/** Parts that Cloudflare reports with the connection. */
export type CfPart = PartsWith<'cf'>

export const CF_PARTS = /* @__PURE__ */ (() =>
  Object.entries<IdentityPart>(identityParts).flatMap(([part, { cf }]) =>
    cf ? [{ part: part as CfPart, example: cf.example }] : [],
  ))()

export type NamedPart = PartsWith<'isNamed'>

/** The names that such a part can have, and what a message says of others. Not in the Worker: the config has been checked. */
export const nameForms: Record<NamedPart, { form: RegExp; fix: string }> = {
  header: {
    // RFC 9110, section 5.6.2.
    form: /^[!#$%&'*+.^_`|~0-9a-z-]{1,64}$/,
    fix: "does not name a header. Write its name in lowercase, as in 'header:x-tenant'.",
  },
  claim: { form: /^.{1,128}$/s, fix: "does not name a claim. Use 1 to 128 characters, as in 'claim:org'." },
}

/**
 * What of a request is counted apart. A request without such a header, claim, route, country or network is counted with all
 * others without one. Rules by a part that needs a credential do not apply to a request without one. `global` stands alone:
 * it counts all requests together, on Upstash in one queue.
 */
export type By = Exclude<PartName, NamedPart> | `${NamedPart}:${string}`

/** `header:x-tenant` is the part `header` with the name `x-tenant`; of other parts the name is empty. */
export function readPart(by: By): { part: PartName; name: string } {
  const [part, ...rest] = by.split(':')
  return { part: part as PartName, name: rest.join(':') }
}

export function partOf(by: By): IdentityPart {
  return identityParts[readPart(by).part]
}

/** Whether callers without a valid credential are not counted by this. */
export function needsCredential(by: By): boolean {
  return partOf(by).needs !== undefined
}

export function needsToken(by: By): boolean {
  return partOf(by).needs === 'token'
}

/** Whether what is counted belongs to a consumer. */
export function isOfConsumer(by: readonly By[]): boolean {
  return by.some(part => partOf(part).isOfConsumer)
}

/**
 * Names what is counted. Rules of one name share a state, and rules of different names never do: the consumer or the address
 * that the state belongs to comes first in its key, wherever it stands in `by`.
 */
export function identityOf(by: readonly By[]): string {
  const owner = isOfConsumer(by) ? 'consumer' : by.includes('address') ? 'address' : ''
  // A name of a header or a claim can hold any letter.
  return JSON.stringify([owner, ...by.filter(part => part !== owner && part !== 'global')])
}
