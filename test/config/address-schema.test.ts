import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { compileRanges, isInRanges, parseAddress } from '../../src/config/address-ranges.ts'
import { address, mistakesOfAddress } from '../../src/config/check/address-schema.ts'
import { mistakeOf } from '../../src/config/check/mistake.ts'
import { addressRanges } from '../../src/config/check/range-schema.ts'
import { compileAddress } from '../../src/config/compile-address.ts'

function mistakesIn(input: unknown): string[] {
  const parsed = v.safeParse(address, input)
  if (!parsed.success) return parsed.issues.map(mistakeOf).map(({ path, message }) => `${path}: ${message}`)
  return mistakesOfAddress(parsed.output).map(([key, message]) => `${key}: ${message}`)
}

describe('the setting `address`', () => {
  it('reads CF-Connecting-IP by default, and counts an IPv6 caller by its /64', () => {
    const defaults = { from: 'cloudflare', trustedProxies: [], ipv6Prefix: 64 }
    expect(compileAddress(undefined)).toEqual(defaults)
    expect(compileAddress({})).toEqual(defaults)
    expect(compileAddress({ ipv6Prefix: 56 })).toEqual({ ...defaults, ipv6Prefix: 56 })
  })

  it.each([
    [undefined],
    [{}],
    [{ from: 'cloudflare' }],
    [{ from: 'peer', ipv6Prefix: 32 }],
    [{ from: 'forwarded', trustedProxies: ['192.0.2.7'], ipv6Prefix: 128 }],
    [
      {
        from: 'x-forwarded-for',
        trustedProxies: ['10.0.0.0/8', '2001:db8::/32', '::1', '::ffff:10.0.0.0/104'],
      },
    ],
  ])('accepts %j', input => expect(input ? mistakesIn(input) : mistakesOfAddress(input)).toEqual([]))

  const RANGE =
    "is not a range of addresses. Write an address or a range, as in '192.0.2.7', '10.0.0.0/8' or '2001:db8::/32'."
  const OBJECT =
    "is not an object. Write it like { from: 'x-forwarded-for', trustedProxies: ['10.0.0.0/8'] }."
  const NAME = "Name your proxies, as in ['10.0.0.0/8']. What others write into the header is ignored."
  const withProxies = (...trustedProxies: unknown[]) => ({ from: 'x-forwarded-for', trustedProxies })

  it.each([
    ['text', 'peer', [`config: 'peer' ${OBJECT}`]],
    ['null', null, [`config: null ${OBJECT}`]],
    [
      'a misspelled setting',
      { form: 'peer' },
      [
        "form: is not a setting here. Did you mean 'from'? Settings: from, trustedProxies, trustedWorkers, ipv6Prefix.",
      ],
    ],
    [
      'a header that is not supported',
      { from: 'X-Real-IP' },
      [
        "from: 'X-Real-IP' is not a source of addresses. Use 'cloudflare', 'peer', 'x-forwarded-for' or 'forwarded'.",
      ],
    ],
    [
      'a prefix with a fraction',
      { ipv6Prefix: 64.5 },
      ['ipv6Prefix: 64.5 is not a prefix length. Write a whole number from 32 to 128.'],
    ],
    [
      'too short a prefix',
      { ipv6Prefix: 31 },
      ['ipv6Prefix: 31 is not a prefix length. Write a whole number from 32 to 128.'],
    ],
    [
      'too long a prefix',
      { ipv6Prefix: 129 },
      ['ipv6Prefix: 129 is not a prefix length. Write a whole number from 32 to 128.'],
    ],
    [
      'a prefix as text',
      { ipv6Prefix: '/64' },
      ["ipv6Prefix: '/64' is not a prefix length. Write a whole number from 32 to 128."],
    ],
    ['no proxies', { from: 'x-forwarded-for' }, [`trustedProxies: is missing. ${NAME}`]],
    [
      'an empty list of proxies',
      { from: 'forwarded', trustedProxies: [] },
      [`trustedProxies: [] is empty. ${NAME}`],
    ],
    [
      'proxies without a header that uses them',
      { trustedProxies: ['10.0.0.0/8'] },
      [
        `trustedProxies: ['10.0.0.0/8'] has no effect with from: 'cloudflare'. Leave it out, or use 'x-forwarded-for' or 'forwarded'.`,
      ],
    ],
    [
      "proxies with from: 'peer'",
      { from: 'peer', trustedProxies: [] },
      [
        "trustedProxies: [] has no effect with from: 'peer'. Leave it out, or use 'x-forwarded-for' or 'forwarded'.",
      ],
    ],
    [
      'one proxy without a list',
      { from: 'forwarded', trustedProxies: '10.0.0.0/8' },
      ["trustedProxies: '10.0.0.0/8' is not a list. Write it like ['10.0.0.0/8', '2001:db8::/32']."],
    ],
    [
      'ranges of all addresses',
      withProxies('10.0.0.0/8', '0.0.0.0/0', '::/0'),
      [
        "trustedProxies[1]: '0.0.0.0/0' covers all addresses, so every client could choose its own. Name the proxies.",
        "trustedProxies[2]: '::/0' covers all addresses, so every client could choose its own. Name the proxies.",
      ],
    ],
    [
      'bits set after the prefix',
      withProxies('10.0.0.1/8'),
      [
        "trustedProxies[0]: '10.0.0.1/8' is an address inside a range. Write '10.0.0.0/8' for the range, or '10.0.0.1' for this address alone.",
      ],
    ],
    [
      'bits set after the prefix of IPv6',
      withProxies('2001:db8:0:ffff::1/50'),
      [
        "trustedProxies[0]: '2001:db8:0:ffff::1/50' is an address inside a range. Write '2001:db8:0:c000::/50' for the range, or '2001:db8:0:ffff::1' for this address alone.",
      ],
    ],
    [
      'bits set after the prefix of IPv4 in IPv6',
      withProxies('::ffff:10.0.0.1/104'),
      [
        "trustedProxies[0]: '::ffff:10.0.0.1/104' is an address inside a range. Write '10.0.0.0/8' for the range, or '10.0.0.1' for this address alone.",
      ],
    ],
    ...[
      ...['', '10.0.0.0/33', '10.0.0.0/', '/8', '10.0.0.0/08', '10.0.0.0/-8', '10.0.0.0/+8', '10.0.0.0/8/8'],
      ...['10.0.0.0/255.0.0.0', '10.0.0/8', '10', '010.0.0.0/8', '0xa.0.0.0/8', ' 10.0.0.0/8', '10.0.0.0 /8'],
      ...['10.0.0.0/8\n', '10.0.0.*', '10.0.0.1-9', '2001:db8::/129', '::ffff:10.0.0.0/95', '::10.0.0.0/104'],
      ...['fe80::1%eth0', 'fe80::%eth0/64', '[::1]', '10.0.0.1:80', 'localhost', '١٠.0.0.0/8', '10.0.0.0/٨'],
    ].map(text => [text, withProxies(text), [`trustedProxies[0]: '${text}' ${RANGE}`]] as const),
    ['a range that is not text', withProxies(10), [`trustedProxies[0]: 10 ${RANGE}`]],
  ] as const)('rejects %s', (_, input, mistakes) => expect(mistakesIn(input)).toEqual(mistakes))
})

describe('a list of ranges', () => {
  const list = [
    '10.0.0.0/8',
    '192.0.2.7',
    '198.51.100.128/25',
    '2001:db8::/33',
    '::1',
    '::ffff:203.0.113.0/120',
  ]
  const ranges = compileRanges(v.parse(addressRanges, list))

  it.each([
    ...['10.0.0.0', '10.255.255.255', '192.0.2.7', '198.51.100.128', '203.0.113.9', '::1', '0:0:0:0:0:0:0:1'],
    ...['2001:db8::', '2001:DB8:7fff:ffff::1', '::ffff:10.1.2.3', '::ffff:a01:203', '2001:db8::1%eth0'],
  ])('contains %s', text => expect(isInRanges(ranges, text)).toBe(true))

  it.each([
    ...[
      '9.255.255.255',
      '11.0.0.0',
      '192.0.2.6',
      '198.51.100.127',
      '203.0.112.255',
      '::2',
      '2001:db8:8000::',
    ],
    ...['2001:db9::', '::10.0.0.1', '::a00:1', '64:ff9b::10.0.0.1', '2002:a00:1::', '::fffe:10.0.0.1'],
    ...['10.1', '012.0.0.1', '0xa.0.0.1', '10.0.0.1:80', '10.0.0.1%eth0', ' 10.0.0.1', '10.0.0.1, 10.0.0.2'],
    ...['', 'unknown', undefined],
  ])('does not contain %j', text => expect(isInRanges(ranges, text)).toBe(false))

  it('that covers all addresses of one family contains none of the other; an IPv4-mapped address is IPv4', () => {
    const all = (text: string, address: string) => isInRanges(compileRanges([text]), address)
    expect(all('0.0.0.0/0', '::ffff:192.0.2.1')).toBe(true)
    expect(all('::ffff:0:0/96', '192.0.2.1')).toBe(true)
    expect(all('::/0', '::ffff:192.0.2.1')).toBe(false)
    expect(all('::/0', '2001:db8::1')).toBe(true)
    expect(all('0.0.0.0/0', '2001:db8::1')).toBe(false)
  })

  it('that is empty contains no address', () => expect(isInRanges([], '192.0.2.1')).toBe(false))

  it('treats an address like a range with the full prefix', () => {
    expect(compileRanges(['192.0.2.7', '::1'])).toEqual(compileRanges(['192.0.2.7/32', '::1/128']))
    expect(parseAddress('::1')).toEqual(compileRanges(['::1'])[0]!.network)
  })
})
