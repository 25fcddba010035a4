/** Compares the parser of addresses with those of Node: net.isIP, net.BlockList and the host of a URL. */
import { BlockList, isIP } from 'node:net'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Address,
  addressText,
  isInRanges,
  networkOf,
  parseAddress,
  parseRange,
} from '../../src/config/address-ranges.ts'
import { sized } from '../selection.ts'
import { expectShare, forEvery } from '../support/property.ts'

const RUNS = sized(5000, 1000)

/** Zeros are frequent, so that several runs of zeros compete for the `::`. */
const group = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('0', '0000', '1', 'ffff', 'FFFF', '00a') },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 0xffff }).map(number => number.toString(16)) },
)

const dotted = fc
  .array(fc.oneof(fc.constantFrom(0, 1, 127, 255), fc.integer({ min: 0, max: 255 })), {
    minLength: 4,
    maxLength: 4,
  })
  .map(octets => octets.join('.'))

const eightGroups = fc.array(group, { minLength: 8, maxLength: 8 }).map(groups => groups.join(':'))

/** Addresses with `::`, sometimes with IPv4 at the end, and often with too many or too few groups. */
const shortened = fc
  .record({
    before: fc.array(group, { maxLength: 7 }),
    after: fc.array(group, { maxLength: 7 }),
    end: fc.option(dotted, { nil: undefined, freq: 2 }),
  })
  .map(
    ({ before, after, end }) =>
      `${before.join(':')}::${[...after, ...(end === undefined ? [] : [end])].join(':')}`,
  )

const mapped = fc
  .oneof(
    dotted,
    fc.tuple(group, group).map(groups => groups.join(':')),
  )
  .map(end => `::ffff:${end}`)

const text = fc.oneof(dotted, eightGroups, shortened, mapped)

/** Rejected, because parsers read this form as different addresses (RFC 4291, section 2.5.5.1). */
const COMPATIBLE = /^::\d+\.\d+\.\d+\.\d+$/

/** The text of an address in a URL: RFC 5952, except for IPv4-mapped addresses. */
function spelling(address: string): string {
  const url = new URL(address.includes(':') ? `http://[${address}]` : `http://${address}`)
  const host = url.hostname.replace(/[[\]]/g, '')
  const [, high, low] = /^::ffff:([^:]+):([^:]+)$/.exec(host) ?? []
  if (high === undefined || low === undefined) return host
  const number = Number.parseInt(high, 16) * 65_536 + Number.parseInt(low, 16)
  return new URL(`http://${number}`).hostname
}

const family = (address: Address) => (address.length === 2 ? 'ipv4' : 'ipv6')

describe('an address', () => {
  it('is accepted if Node accepts it, and is written as in URLs', async () => {
    let addresses = 0
    await forEvery(text, RUNS, async value => {
      const parsed = parseAddress(value)
      expect(parsed !== undefined).toBe(isIP(value) !== 0 && !COMPATIBLE.test(value))
      if (!parsed) return
      addresses++
      expect(addressText(parsed)).toBe(spelling(value))
      expect(parseAddress(addressText(parsed))).toEqual(parsed)
    })
    expectShare('addresses', addresses, RUNS, 0.5, 0.9)
  })

  it.each([
    ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
    ['::2:3:4:5:6:7:8', '0:2:3:4:5:6:7:8'],
    ['0:0:1:0:0:0:1:0', '0:0:1::1:0'],
    ['1:0:0:2:0:0:3:4', '1::2:0:0:3:4'],
    ['10:0:0:1:0:0:0:1', '10:0:0:1::1'],
    ['0:0:0:0:0:0:0:0', '::'],
    ['1:0:0:0:0:0:0:0', '1::'],
    ['2001:DB8::00A0', '2001:db8::a0'],
    ['64:ff9b::192.0.2.1', '64:ff9b::c000:201'],
    ['::ffff:0:192.0.2.1', '::ffff:0:c000:201'],
    ['0:0:0:0:0:ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201%eth0', '192.0.2.1'],
    ['fe80::1%a:b.c', 'fe80::1'],
  ])('%s is written as %s', (value, expected) => expect(addressText(parseAddress(value)!)).toBe(expected))

  it.each([
    ...[
      '1::2::3',
      ':::',
      '::1::',
      '1:2:3:4:5:6:7:8::',
      '::1:2:3:4:5:6:7:8',
      '1:2:3:4::5:6:7:8',
      '1:2:3:4:5:6:7',
    ],
    // These have one group too many because of their IPv4 part.
    ...['1:2:3:4:5:6:7:1.2.3.4', '1:2:3:4::5:6:1.2.3.4', '::1:2:3:4:5:6:1.2.3.4'],
    ...['1.2.3.4:5::', '::1.2.3.4:5', '::1.2.3.4', '::ffff:1.2.3.04', '::ffff:1.2.3.256', '::0x7f000001'],
    ...['00000::', '::-1', '::+1', ' ::1', '::1 '],
    ...['1.2.3', '1.2.3.4.5', '01.2.3.4', '1.2.3.4%eth0', '1.2.3.4%a:b', '::1%', '::1%a%b', '%a:b', ''],
  ])('%j is not an address', value => expect(parseAddress(value)).toBeUndefined())
})

describe('a range', () => {
  const range = fc.record({
    value: text,
    length: fc.integer({ min: 0, max: 128 }),
    other: text,
    kept: fc.nat(8),
  })

  it('contains the same addresses as in Node', async () => {
    let inside = 0
    await forEvery(range, RUNS, async ({ value, length, other, kept }) => {
      const parsed = parseRange(`${value}/${length}`)
      if (!parsed) return
      const { network, prefix } = parsed
      const list = new BlockList()
      list.addSubnet(addressText(network), prefix, family(network))
      const candidates = [parseAddress(value), parseAddress(other), neighbour(network, kept)]
      for (const address of candidates) {
        if (address?.length !== network.length) continue
        const isInside = list.check(addressText(address), family(address))
        expect(isInRanges([parsed], addressText(address))).toBe(isInside)
        expect(networkOf(address, prefix).join() === networkOf(network, prefix).join()).toBe(isInside)
        if (isInside && address.join() !== network.join()) inside++
      }
    })
    expectShare('addresses inside', inside, RUNS, 0.05)
  })

  /** An address that differs in one group. */
  function neighbour(address: Address, at: number): Address {
    return address.map((each, i) => (i === at ? each ^ 0x0101 : each))
  }

  it.each([
    ['::ffff:192.0.2.0/120', '192.0.2.0', 24],
    ['::ffff:0:0/96', '0.0.0.0', 0],
    ['192.0.2.7', '192.0.2.7', 32],
    ['2001:db8::', '2001:db8::', 128],
    ['::/0', '::', 0],
  ])('%s is the network %s with a prefix of %i bits', (value, network, prefix) => {
    const parsed = parseRange(value)!
    expect([addressText(parsed.network), parsed.prefix]).toEqual([network, prefix])
  })

  it.each([
    '1.2.3.4/33',
    '::/129',
    '::ffff:1.2.3.4/95',
    '1.2.3.4/',
    '1.2.3.4/08',
    '::1%eth0/64',
    '::/-1',
    '/8',
    '::/64/64',
  ])('%j is neither an address nor a range', value => expect(parseRange(value)).toBeUndefined())
})
