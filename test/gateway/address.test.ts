import { describe, expect, it } from 'vitest'
import { addressIdentity } from '../../src/gateway/address.ts'

describe('an address as an identity', () => {
  it.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:0DB8:0000:0000:aaaa::', '2001:db8:0:0::/64'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
  ])('%s is %s', (text, identity) => expect(addressIdentity(text)).toBe(identity))

  it.each([
    undefined,
    '',
    'unknown',
    'example.com',
    '192.0.2.1, 10.0.0.1',
    '192.0.2.1:80',
    '{ip:x}',
    '*',
    '\0',
    'x'.repeat(1e4),
  ])('%j is nobody in particular', text => expect(addressIdentity(text)).toBe('unknown'))
})
