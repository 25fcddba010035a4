import { isIP } from 'node:net'
import { describe, expect, it } from 'vitest'
import { addressText, isIPv4, parseAddress } from '../../src/config/address-ranges.ts'
import { compileAddress } from '../../src/config/compile-address.ts'
import { addressIdentity, clientAddress as clientAddressBy } from '../../src/set-ups/http/address.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { forwardedFor } from '../../src/set-ups/http/forwarded.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'

const PROXIES = ['10.0.0.0/8', '2001:db8:1::/48']

type Header = 'x-forwarded-for' | 'forwarded'

const clientAddress = (request: Request, settings = compileAddress(undefined), peer?: string) =>
  clientAddressBy(request, settings, peer, ALL_PARTS)

/**
 * The client's address behind trusted proxies.
 *
 * @param lines of the header; the client's own come first
 */
function clientBehind(from: Header, lines: string | readonly string[], peer?: string): string | undefined {
  const headers = new Headers()
  for (const line of [lines].flat()) headers.append(from, line)
  return clientAddress(requestWith(headers), compileAddress({ from, trustedProxies: PROXIES }), peer)
}

const requestWith = (headers: Headers | Record<string, string>) =>
  new Request('https://gateway.example/', { headers })

/** Texts that are not addresses, although some parsers accept them. */
const NO_ADDRESSES = [
  ...['', ' ', 'unknown', '_hidden', '-', '*', 'null', 'localhost', 'example.com', 'for=192.0.2.1'],
  ...['1', '127.1', '127.0.1', '2130706433', '0x7f000001', '0x7f.0.0.1', '0177.0.0.1', '192.0.2.01'],
  ...['192.0.2', '192.0.2.', '.192.0.2.1', '192.0.2.256', '192.0.2.1.1', '192.0.2.-1', '1e1.0.2.1'],
  ...[
    '192.0.2.1, 192.0.2.2',
    '192.0.2.1 192.0.2.2',
    '192.0.2.1;',
    '192.0.2.1/32',
    '192.0.2.1%eth0',
    '+192.0.2.1',
  ],
  ...[
    ':',
    ':::',
    '::1::',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7::8:9',
    '12345::',
    'g::',
    '::/64',
  ],
  ...['1:2:3:4:5:6:7:', ':1:2:3:4:5:6:7', '::1%', '%eth0', '::%%1', '::192.0.2.1', '::ffff:0177.0.0.1'],
  ...['::ffff:192.0.2', '::ffff:192.0.2.256', '::ffff:0x7f.0.0.1', '1.2.3.4::', '1.2.3.4%:1', '[]', '[::1'],
  ...[
    '::1]',
    '[[::1]]',
    '[192.0.2.1]',
    '[::1]x',
    '{ip:x}',
    "'192.0.2.1'",
    '"192.0.2.1"',
    '1.2.3.²',
    '\xa0::1',
  ],
]

/** More such texts, some of which headers cannot carry. */
const NO_TEXT_OF_HEADERS = ['\0', '192.0.2.1\0', '192.0.2.1\n', '١.2.3.4', '1.2.3.４', '１９２.0.2.1', '∷1']

describe('the identity of an address', () => {
  it.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:0DB8:0000:0000:aaaa::', '2001:db8:0:0::/64'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
  ])('%s has the identity %s', (text, identity) => expect(addressIdentity(text)).toBe(identity))

  it.each([
    [32, '2001:db8::/32'],
    [33, '2001:db8:8000::/33'],
    [47, '2001:db8:fffe::/47'],
    [48, '2001:db8:ffff::/48'],
    [56, '2001:db8:ffff:ab00::/56'],
    [60, '2001:db8:ffff:abc0::/60'],
    [63, '2001:db8:ffff:abcc::/63'],
    [64, '2001:db8:ffff:abcd::/64'],
    [65, '2001:db8:ffff:abcd:8000::/65'],
    [112, '2001:db8:ffff:abcd:8765:0:0::/112'],
    [113, '2001:db8:ffff:abcd:8765:0:0:8000/113'],
    [127, '2001:db8:ffff:abcd:8765:0:0:800e/127'],
    [128, '2001:db8:ffff:abcd:8765:0:0:800f/128'],
  ])('is a network of %i bits', (prefix, identity) => {
    expect(addressIdentity('2001:db8:ffff:abcd:8765::800f', prefix)).toBe(identity)
    expect(addressIdentity('192.0.2.1', prefix)).toBe('192.0.2.1')
    expect(addressIdentity('::ffff:192.0.2.1', prefix)).toBe('192.0.2.1')
    expect(addressIdentity(undefined, prefix)).toBe('unknown')
  })

  it.each([
    undefined,
    ...['192.0.2.1:80', '[::1]', 'x'.repeat(1e4), '1:'.repeat(1e4), '9'.repeat(1e4)],
    ...NO_ADDRESSES,
    ...NO_TEXT_OF_HEADERS,
  ])('is unknown for %j', text => expect(addressIdentity(text)).toBe('unknown'))

  it('is the same for two addresses if and only if their first bits are equal', () => {
    const random = randomFrom(SEED)
    for (let i = 0; i < 2000; i++) {
      const bits = Array.from({ length: 128 }, () => random.int(0, 1))
      const flipped = random.int(0, 127)
      const other = bits.map((bit, at) => (at === flipped ? 1 - bit : bit))
      const prefix = random.int(32, 128)
      const [a, b] = [bits, other].map(each => addressIdentity(addressOf(each), prefix))
      expect(a === b, `seed ${SEED}: ${addressOf(bits)}, bit ${flipped}, /${prefix}`).toBe(flipped >= prefix)
    }
  })

  function addressOf(bits: number[]): string {
    const groups = Array.from({ length: 8 }, (_, i) => bits.slice(16 * i, 16 * i + 16).join(''))
    return groups.map(group => Number.parseInt(group, 2).toString(16)).join(':')
  }
})

describe('a text', () => {
  it('is an address if Node accepts it, and is written as in URLs', () => {
    const random = randomFrom(SEED)
    const samples = [
      '192.0.2.10',
      '2001:db8::1:0:0:1',
      '1:2:3:4:5:6:7:8',
      '::ffff:10.0.0.1',
      'fe80::',
      '64:ff9b::1.2.3.4',
    ]
    let addresses = 0
    for (let i = 0; i < 10_000; i++) {
      const text = mutated(random.pick(samples), random)
      const parsed = parseAddress(text)
      // Deprecated by RFC 4291, section 2.5.5.1; parsers read it as different addresses.
      const isCompatible = /^::\d+\.\d+\.\d+\.\d+$/.test(text)
      const message = `seed ${SEED}: ${text}`
      expect(parsed !== undefined, message).toBe(isIP(text) !== 0 && !isCompatible)
      if (!parsed) continue
      addresses++
      const { hostname } = new URL(text.includes(':') ? `http://[${text}]` : `http://${text}`)
      const isMapped = hostname.startsWith('[::ffff:') && isIPv4(parsed)
      if (!isMapped) expect(addressText(parsed), message).toBe(hostname.replace(/[[\]]/g, ''))
    }
    expect(addresses).toBeGreaterThan(1000)
  })

  function mutated(text: string, random: Random): string {
    let result = text
    for (let n = random.int(0, 4); n > 0; n--) {
      const at = random.int(0, result.length)
      const inserted = random.chance(0.7) ? random.pick([...'0019afF::..gx-']) : ''
      result = result.slice(0, at) + inserted + result.slice(at + random.int(0, 1))
    }
    return result
  }
})

describe('on Cloudflare', () => {
  const all = (address: string) =>
    requestWith({
      'cf-connecting-ip': address,
      'x-forwarded-for': '203.0.113.1',
      forwarded: 'for=203.0.113.1',
      'x-real-ip': '203.0.113.1',
      'true-client-ip': '203.0.113.1',
    })

  it.each([
    ['192.0.2.1', '192.0.2.1'],
    ['2001:DB8:0::0001', '2001:db8::1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['2001:db8:0:0:1:0:0:0', '2001:db8:0:0:1::'],
  ])('%s in CF-Connecting-IP is read as %s', (text, address) => {
    expect(clientAddress(all(text))).toBe(address)
    expect(clientAddress(all(text), compileAddress({}), '203.0.113.1')).toBe(address)
  })

  it.each([...NO_ADDRESSES, '192.0.2.1:80', '[::1]:80'])(
    '%j is not an address, and no other header is read',
    text => {
      expect(clientAddress(all(text), compileAddress({}), '203.0.113.1')).toBeUndefined()
    },
  )

  it('the address is unknown without CF-Connecting-IP', () => {
    expect(clientAddress(requestWith({ 'x-forwarded-for': '203.0.113.1' }))).toBeUndefined()
  })
})

describe('without a proxy', () => {
  const settings = compileAddress({ from: 'peer' })
  const request = requestWith({
    'cf-connecting-ip': '203.0.113.1',
    'x-forwarded-for': '203.0.113.1',
    forwarded: 'for=203.0.113.1',
  })

  it.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['fe80::1%eth0', 'fe80::1'],
    ['fe80::1%br-lan.10', 'fe80::1'],
    ['', undefined],
    [undefined, undefined],
  ])('the address comes from the connection: %j is %s', (peer, address) =>
    expect(clientAddress(request, settings, peer)).toBe(address),
  )
})

describe('behind proxies that write X-Forwarded-For', () => {
  it.each([
    ['one proxy', '192.0.2.1', '192.0.2.1'],
    ['two proxies', '192.0.2.1, 10.0.0.2', '192.0.2.1'],
    ['three, one of them in IPv6', '192.0.2.1, 10.0.0.3, 2001:db8:1::2', '192.0.2.1'],
    ['a proxy in IPv4-mapped IPv6', '192.0.2.1, ::ffff:10.0.0.2', '192.0.2.1'],
    ['text that the client wrote first', '203.0.113.1, 192.0.2.1, 10.0.0.2', '192.0.2.1'],
    ['a client that claims to come through a trusted proxy', '203.0.113.1, 10.0.0.9, 192.0.2.1', '192.0.2.1'],
    ['several lines', ['203.0.113.1', '192.0.2.1', '10.0.0.2'], '192.0.2.1'],
    ['a port', '192.0.2.1:5678', '192.0.2.1'],
    ['a proxy with a port', '192.0.2.1, 10.0.0.2:443', '192.0.2.1'],
    ['IPv6', '2001:DB8::0:1', '2001:db8::1'],
    ['IPv6 with a port', '[2001:db8::1]:80', '2001:db8::1'],
    ['IPv6 in brackets', '[2001:db8::1]', '2001:db8::1'],
    ['IPv4-mapped IPv6', '::ffff:192.0.2.1', '192.0.2.1'],
    ['IPv4-mapped IPv6 in hex', '::ffff:c000:201', '192.0.2.1'],
    ['IPv4-mapped IPv6 with a port', '[::ffff:192.0.2.1]:80', '192.0.2.1'],
    ['a zone', 'fe80::1%eth0', 'fe80::1'],
    ['a zone and a port', '[fe80::1%eth0]:80', 'fe80::1'],
    ['no spaces', '203.0.113.1,192.0.2.1,10.0.0.2', '192.0.2.1'],
    ['many spaces', '203.0.113.1 ,\t 192.0.2.1 \t,  10.0.0.2  ', '192.0.2.1'],
    ['only trusted proxies', '10.0.0.4, 10.0.0.3, 10.0.0.2', '10.0.0.4'],
    ['an empty entry', '1.2.3.4, , 5.6.7.8', '5.6.7.8'],
    ['an empty entry before a proxy', '1.2.3.4, , 10.0.0.2', '10.0.0.2'],
    ['a comma at the end', '203.0.113.1, 192.0.2.1,', '192.0.2.1'],
    ['a comma and spaces at the end', '192.0.2.1, 10.0.0.2 , \t', '192.0.2.1'],
    ['two commas at the end, with an empty entry between them', '192.0.2.1,,', '10.0.0.1'],
    ['an empty header', '', '10.0.0.1'],
    ['only commas', ',,,', '10.0.0.1'],
    ['no header', [], '10.0.0.1'],
  ] as const)('%s', (_, lines, address) => {
    expect(clientBehind('x-forwarded-for', lines, '10.0.0.1')).toBe(address)
    expect(clientBehind('x-forwarded-for', lines, '::ffff:10.0.0.1')).toBe(address)
    // If the platform reports no peer, the peer is assumed to be the last proxy, with an unknown address.
    expect(clientBehind('x-forwarded-for', lines)).toBe(address === '10.0.0.1' ? undefined : address)
    for (const stranger of ['192.0.2.99', '2001:db8:2::1']) {
      expect(clientBehind('x-forwarded-for', lines, stranger)).toBe(stranger)
    }
  })

  it.each(NO_ADDRESSES.filter(text => !text.includes(',')))('no entry before %j is read', text => {
    expect(clientBehind('x-forwarded-for', `203.0.113.1, ${text}, 10.0.0.2`, '10.0.0.1')).toBe('10.0.0.2')
    // An empty one there is only a comma at the end.
    if (text.trim() === '') return
    expect(clientBehind('x-forwarded-for', `203.0.113.1, ${text}`, '10.0.0.1')).toBe('10.0.0.1')
    expect(clientBehind('x-forwarded-for', `203.0.113.1, ${text}`)).toBeUndefined()
  })

  it('no other header is read', () => {
    const settings = compileAddress({ from: 'x-forwarded-for', trustedProxies: PROXIES })
    const names = ['cf-connecting-ip', 'x-real-ip', 'true-client-ip', 'x-client-ip']
    const request = requestWith({
      ...Object.fromEntries(names.map(name => [name, '203.0.113.1'])),
      forwarded: 'for=203.0.113.1',
    })
    expect(clientAddress(request, settings, '10.0.0.1')).toBe('10.0.0.1')
    expect(clientAddress(request, settings)).toBeUndefined()
  })

  it.each(['', 'unknown', '10.0.0.1, 10.0.0.2'])(
    'a peer that is not an address, %j, is not trusted',
    peer => {
      expect(clientBehind('x-forwarded-for', '192.0.2.1', peer)).toBeUndefined()
    },
  )
})

describe('behind proxies that write Forwarded', () => {
  it.each([
    ['an address', 'for=192.0.2.1', '192.0.2.1'],
    ['quoted', 'for="192.0.2.1"', '192.0.2.1'],
    ['a port', 'for="192.0.2.1:4711"', '192.0.2.1'],
    ['IPv6', 'for="[2001:db8::1]"', '2001:db8::1'],
    ['IPv6 with a port', 'for="[2001:DB8::1]:4711"', '2001:db8::1'],
    ['IPv6 with a hidden port', 'for="[2001:db8::1]:_p.1-2"', '2001:db8::1'],
    ['IPv4-mapped IPv6', 'for="[::ffff:192.0.2.1]"', '192.0.2.1'],
    ['capitals', 'FOR=192.0.2.1;Proto=http', '192.0.2.1'],
    ['other parameters', 'by=203.0.113.43;proto=https;for=192.0.2.1;host=a.example', '192.0.2.1'],
    ['several elements', 'for=203.0.113.1, for=192.0.2.1;proto=http, for=10.0.0.2', '192.0.2.1'],
    ['several lines', ['for=203.0.113.1', 'for=192.0.2.1', 'for=10.0.0.2;by="[::1]"'], '192.0.2.1'],
    ['no spaces', 'for=203.0.113.1,for=192.0.2.1,for=10.0.0.2', '192.0.2.1'],
    ['spaces and tabs', 'for=203.0.113.1 ,\tfor=192.0.2.1 ; proto=http\t, for=10.0.0.2 ', '192.0.2.1'],
    ['semicolons at the ends', ';for=192.0.2.1;;proto=http;', '192.0.2.1'],
    ['commas in quotes', 'for=192.0.2.1;host="a, for=203.0.113.1, b", for=10.0.0.2', '192.0.2.1'],
    ['semicolons in quotes', 'host="a;for=203.0.113.1;b";for=192.0.2.1', '192.0.2.1'],
    ['escaped quotes', 'host="a\\", for=203.0.113.1, \\"b";for=192.0.2.1, for=10.0.0.2', '192.0.2.1'],
    ['escaped backslashes', 'host="a\\\\";for=192.0.2.1, for=10.0.0.2;host="\\\\\\""', '192.0.2.1'],
    ['needless escapes', 'for="\\1\\92.0.2.1"', '192.0.2.1'],
    ['an empty quoted string', 'host="";for=192.0.2.1', '192.0.2.1'],
    ['an extension', 'for=192.0.2.1;x-y_z="=;,"', '192.0.2.1'],
    ['a quote that the client left open', 'for="203.0.113.1, for=192.0.2.1, for=10.0.0.2', '192.0.2.1'],
    ['a quote that a proxy would close', 'for=203.0.113.1;x=", for=192.0.2.1;host="a.example"', '192.0.2.1'],
    ['a backslash that the client left open', 'x="\\, for="192.0.2.1:1", for=10.0.0.2', '192.0.2.1'],
    ['only trusted proxies', 'for=10.0.0.3, for=10.0.0.2', '10.0.0.3'],
    ['a hidden client', 'for=203.0.113.1, for=_secret, for=10.0.0.2', '10.0.0.2'],
    ['a hidden client behind the nearest proxy', 'for=203.0.113.1, for=_secret', '10.0.0.1'],
    ['an unknown client', 'for=unknown, for=10.0.0.2', '10.0.0.2'],
    ['an unknown client in quotes', 'for=203.0.113.1, for="unknown"', '10.0.0.1'],
    ['an element without for', 'for=203.0.113.1, proto=http, for=10.0.0.2', '10.0.0.2'],
    ['two for in one element', 'for=203.0.113.1;for=192.0.2.1', '10.0.0.1'],
    ['the same for twice', 'for=192.0.2.1;proto=http;For=192.0.2.1, for=10.0.0.2', '10.0.0.2'],
    ['an empty element', 'for=203.0.113.1, , for=10.0.0.2', '10.0.0.2'],
    ['an empty for', 'for=', '10.0.0.1'],
    ['an empty quoted for', 'for=""', '10.0.0.1'],
    ['for without a value', 'for', '10.0.0.1'],
    ['an address without for', '192.0.2.1', '10.0.0.1'],
    ['a port without quotes', 'for=192.0.2.1:80', '10.0.0.1'],
    ['IPv6 without quotes', 'for=[2001:db8::1]', '10.0.0.1'],
    ['spaces around the equals sign', 'for = 192.0.2.1', '10.0.0.1'],
    ['a space instead of a semicolon', 'for=192.0.2.1 proto=http', '10.0.0.1'],
    ['text behind a quoted string', 'for="192.0.2.1"x', '10.0.0.1'],
    ['text before a quoted string', 'for=x"192.0.2.1"', '10.0.0.1'],
    ['single quotes', "for='192.0.2.1'", '10.0.0.1'],
    ['a quote that is never closed', 'for=192.0.2.1;host="a', '10.0.0.1'],
    ['a quote that is never opened', 'for=192.0.2.1"', '10.0.0.1'],
    ['an escaped end', 'for="192.0.2.1\\"', '10.0.0.1'],
    ['another parameter whose name ends in for', 'x-for=192.0.2.1', '10.0.0.1'],
    ['an empty header', '', '10.0.0.1'],
    ['no header', [], '10.0.0.1'],
  ] as const)('%s', (_, lines, address) => {
    expect(clientBehind('forwarded', lines, '10.0.0.1')).toBe(address)
    expect(clientBehind('forwarded', lines)).toBe(address === '10.0.0.1' ? undefined : address)
    expect(clientBehind('forwarded', lines, '192.0.2.99')).toBe('192.0.2.99')
  })

  it.each(NO_ADDRESSES)('no entry before for=%j is read', text => {
    const quoted = `"${text.replace(/["\\]/g, '\\$&')}"`
    expect(clientBehind('forwarded', `for=203.0.113.1, for=${quoted}, for=10.0.0.2`, '10.0.0.1')).toBe(
      '10.0.0.2',
    )
    expect(clientBehind('forwarded', `for=203.0.113.1, for=${quoted}`)).toBeUndefined()
  })

  it('each element is parsed separately, the last one first', () => {
    expect([...forwardedFor('for=a, for="b,\\"c";for=d, by=e, for="f\\"g"')]).toEqual([
      'f"g',
      undefined,
      undefined,
      'a',
    ])
    expect([...forwardedFor('')]).toEqual([undefined])
  })
})

describe('a long header', () => {
  const write = { 'x-forwarded-for': (text: string) => text, forwarded: (text: string) => `for="${text}"` }

  describe.each(['x-forwarded-for', 'forwarded'] as const)('%s', from => {
    const entry = write[from]

    it.each([
      ['10 kB of addresses', Array(900).fill(entry('203.0.113.1')).join(', ')],
      ['100 kB of trusted proxies', Array(9000).fill(entry('10.0.0.9')).join(', ')],
      ['commas', ','.repeat(1e5)],
      ['quotes', '"'.repeat(1e5)],
      ['backslashes', '\\'.repeat(1e5)],
      ['a quote of backslashes', `for="${'\\'.repeat(1e5)}"`],
      ['spaces', `x${' '.repeat(1e5)}x`],
      ['semicolons', ';'.repeat(1e5)],
      ['colons', '1:'.repeat(5e4)],
      ['digits', '1'.repeat(1e5)],
    ])('%s: the entries that proxies appended are read', (_, text) => {
      const lines = [text, entry('192.0.2.1'), entry('10.0.0.2')]
      expect(clientBehind(from, lines, '10.0.0.1')).toBe('192.0.2.1')
    })

    it.each([',', '"', '\\', ';', ' ', '1', '1:', '1.', 'for=', 'for="', '\\"', 'a=b;', '[', '%', '::'])(
      'of repeated %j has no client',
      part =>
        expect(clientBehind(from, `x${part.repeat(16_000 / part.length)}x`, '10.0.0.1')).toBe('10.0.0.1'),
    )

    it('ignores an entry that is much longer than an address', () => {
      const padded = (spaces: number) => entry(`192.0.2.1${' '.repeat(spaces)}`)
      expect(clientBehind(from, [padded(100), entry('10.0.0.2')].join())).toBe('192.0.2.1')
      expect(clientBehind(from, [padded(200), entry('10.0.0.2')].join())).toBe('10.0.0.2')
    })

    it('is read for at most 50 hops, including the peer', () => {
      const hops = (count: number) => Array.from({ length: count }, (_, i) => entry(`10.0.1.${count - i}`))
      const client = entry('192.0.2.1')
      expect(clientBehind(from, [client, ...hops(48)].join(), '10.0.0.1')).toBe('192.0.2.1')
      expect(clientBehind(from, [client, ...hops(49)].join(), '10.0.0.1')).toBe('10.0.1.49')
      expect(clientBehind(from, [client, ...hops(49)].join())).toBe('192.0.2.1')
      expect(clientBehind(from, [client, ...hops(50)].join())).toBe('10.0.1.50')
    })
  })

  it('is cut off at 16 KiB, and the entry at the cut is ignored', () => {
    const clients = new Set<string | undefined>()
    for (let length = 16_300; length < 16_400; length++) {
      // Cut after `x-`, this entry would name another client.
      const client = `for=192.0.2.1;x-for=203.0.113.1;y="${'y'.repeat(length)}"`
      clients.add(clientBehind('forwarded', client, '10.0.0.1'))
      clients.add(clientBehind('forwarded', ['for=192.0.2.1', `for=10.0.0.2;y="${'y'.repeat(length)}"`]))
    }
    expect(clients).toEqual(new Set(['192.0.2.1', '10.0.0.1', undefined, '10.0.0.2']))
  })
})

describe('arbitrary text of clients', () => {
  const random = randomFrom(SEED)
  const PIECES = [
    ...['10.0.0.1', '10.0.0.2', '203.0.113.1', '2001:db8:1::1', '2001:db8::1', '[::1]:80', '::ffff:10.0.0.1'],
    ...[
      'for=',
      'for=10.0.0.1',
      'For="',
      '"',
      '"',
      '\\',
      '\\"',
      ',',
      ', ',
      ';',
      '=',
      ' ',
      '\t',
      'by=',
      'host="a',
    ],
    ...['unknown', '_hidden', '?', ':', '[', ']', '%', '\xff', 'x'.repeat(200)],
  ]
  const junk = () => Array.from({ length: random.int(0, 12) }, () => random.pick(PIECES)).join('')
  const trusted = () => random.pick([`10.${random.int(0, 255)}.0.${random.int(0, 255)}`, hex('2001:db8:1:')])
  const stranger = () => random.pick([`192.0.2.${random.int(0, 255)}`, hex('2001:db8:2:')])
  const hex = (network: string) => `${network}:${random.int(1, 0xffff).toString(16)}`

  /** The entry that a proxy writes for an address. */
  function written(from: Header, address: string): string {
    const isIPv6 = address.includes(':')
    const port = random.chance(0.3) ? `:${random.int(1, 65_535)}` : ''
    const mapped = !isIPv6 && random.chance(0.2) ? `[::ffff:${address}]` : address
    const node = isIPv6 && (from === 'forwarded' || port) ? `[${address}]` : mapped
    if (from === 'x-forwarded-for') return node + port
    const quoted = /^[\d.]+$/.test(node + port) && random.chance(0.5) ? node + port : `"${node}${port}"`
    // A proxy escapes quoted text. The client chooses the host.
    const host = `host="${junk().replace(/["\\]/g, '\\$&')}"`
    const pairs = [`${random.pick(['for', 'For', 'FOR'])}=${quoted}`, 'proto=https', host]
    const kept = pairs.filter((_, i) => i === 0 || random.chance(0.5))
    return (random.chance(0.5) ? kept : kept.reverse()).join(';')
  }

  describe.each(['x-forwarded-for', 'forwarded'] as const)('%s', from => {
    it('without a proxy, the peer is the client', () => {
      for (let i = 0; i < 2000; i++) {
        const [peer, lines] = [stranger(), Array.from({ length: random.int(0, 3) }, junk)]
        expect(clientBehind(from, lines, peer), `seed ${SEED}: ${JSON.stringify(lines)}`).toBe(peer)
      }
    })

    it('with proxies, the client is the address that the outermost proxy has written', () => {
      for (let i = 0; i < 3000; i++) {
        const client = stranger()
        const proxies = Array.from({ length: random.int(1, 6) }, trusted)
        // Each proxy appends the address of its peer to the last line, or adds a line.
        const lines = Array.from({ length: random.int(0, 2) }, junk)
        for (const seen of [client, ...proxies.slice(0, -1)]) {
          const entry = written(from, seen)
          const last = lines.at(-1)
          if (last !== undefined && random.chance(0.5))
            lines.splice(-1, 1, `${last}${random.pick([',', ', '])}${entry}`)
          else lines.push(entry)
        }
        const peer = random.chance(0.7) ? proxies.at(-1) : undefined
        expect(clientBehind(from, lines, peer), `seed ${SEED}: ${JSON.stringify({ lines, peer })}`).toBe(
          client,
        )
      }
    })

    it('the client is an address in canonical form, or unknown', () => {
      for (let i = 0; i < 2000; i++) {
        const [peer, lines] = [
          random.pick([undefined, trusted()]),
          Array.from({ length: random.int(0, 3) }, junk),
        ]
        const client = clientBehind(from, lines, peer)
        if (client !== undefined) expect(addressText(parseAddress(client)!)).toBe(client)
        else expect(peer).toBeUndefined()
      }
    })
  })
})
