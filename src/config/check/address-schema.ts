/** The schema of `address`: where the client's address is read, and which addresses are one caller. Messages: see rule-schema.ts. */
import * as v from 'valibot'
import { compileRanges } from '../address-ranges.ts'
import { show } from './mistake.ts'
import { addressRanges } from './range-schema.ts'
import { name, oneOf, settings } from './values.ts'

/** The setting `address`: where the client's address is read, and which addresses are one caller. */
export interface AddressInput extends v.InferInput<typeof address> {}

const SOURCES = ['cloudflare', 'peer', 'x-forwarded-for', 'forwarded'] as const

const PREFIX = 'is not a prefix length. Write a whole number from 32 to 128.'

export const address = settings(
  {
    /**
     * Where the client's address is read:
     * - `cloudflare` (default): CF-Connecting-IP, which Cloudflare sets even if the client sends one. Use it only on
     *   Cloudflare: on other platforms, clients can set this header.
     * - `peer`: the other end of the connection, for a guard on a server that clients reach without a proxy. A gateway
     *   on Workers does not see it, and would count all callers as one.
     * - `x-forwarded-for`, `forwarded` (RFC 7239): the last address in the header that is not in `trustedProxies`
     *   (the nearest proxy writes at the end). The header is read only if the
     *   connection comes from a trusted proxy. Where the platform does not report the other end of the connection, a
     *   trusted proxy is assumed: the gateway must then be reachable through that proxy only, or clients choose their address.
     */
    from: v.optional(oneOf(SOURCES, 'is not a source of addresses')),
    /**
     * The proxies in front of the gateway, as in `['10.0.0.0/8', '192.0.2.7', '2001:db8::/32']`. Needed for
     * `x-forwarded-for` and `forwarded`. List nothing else: a caller in this list can claim any address. Default: none.
     */
    trustedProxies: v.optional(addressRanges),
    /**
     * Workers of your account that call the gateway through a service binding on behalf of clients, by the name in the binding:
     * `props = { caller = "storefront" }`. Their header `Sluice-Client-IP` is the client's address if the request has no
     * CF-Connecting-IP. Only with `cloudflare`. Default: none; callers without an address are counted together.
     */
    trustedWorkers: v.optional(
      v.pipe(
        v.array(name('name of a Worker'), "is not a list. Write it like ['storefront']."),
        v.minLength(1, 'is empty. Name a Worker, or leave it out.'),
      ),
    ),
    /** How many leading bits of an IPv6 address identify a caller, 32 to 128 (default `64`: the usual network of a subscriber). */
    ipv6Prefix: v.optional(
      v.pipe(v.number(PREFIX), v.integer(PREFIX), v.minValue(32, PREFIX), v.maxValue(128, PREFIX)),
    ),
  },
  "is not an object. Write it like { from: 'x-forwarded-for', trustedProxies: ['10.0.0.0/8'] }.",
)

/** Finds mistakes that the schema cannot find. @returns the key and the message of each */
export function mistakesOfAddress(input: AddressInput | undefined): [key: string, message: string][] {
  const { from = 'cloudflare', trustedProxies, trustedWorkers } = input ?? {}
  const ofWorkers: [string, string][] =
    trustedWorkers === undefined || from === 'cloudflare'
      ? []
      : [['trustedWorkers', `${show(trustedWorkers)} has no effect with from: '${from}'. Leave it out.`]]
  return [...ofWorkers, ...mistakesOfProxies(from, trustedProxies)]
}

function mistakesOfProxies(
  from: NonNullable<AddressInput['from']>,
  trustedProxies: AddressInput['trustedProxies'],
): [key: string, message: string][] {
  if (from === 'cloudflare' || from === 'peer') {
    if (trustedProxies === undefined) return []
    const message = `${show(trustedProxies)} has no effect with from: '${from}'. Leave it out, or use 'x-forwarded-for' or 'forwarded'.`
    return [['trustedProxies', message]]
  }
  if (!trustedProxies?.length) {
    const what = trustedProxies ? '[] is empty' : 'is missing'
    const message = `${what}. Name your proxies, as in ['10.0.0.0/8']. What others write into the header is ignored.`
    return [['trustedProxies', message]]
  }
  return compileRanges(trustedProxies).flatMap(({ prefix }, i): [string, string][] =>
    prefix > 0
      ? []
      : [
          [
            `trustedProxies[${i}]`,
            `'${trustedProxies[i]}' covers all addresses, so every client could choose its own. Name the proxies.`,
          ],
        ],
  )
}
