/** Slots from the documentation of Redis and from CLUSTER KEYSLOT. Random keys are compared in rest-bridge-cluster.test.ts. */
import { expect, it } from 'vitest'
import { slotOf } from '../../src/node/rest-bridge/key-slot.ts'

it.each([
  ['an empty key', '', 0],
  ['the check value of CRC16 XMODEM, 0x31C3', '123456789', 0x31c3 % 16384],
  ['a plain key', 'foo', 12182],
  ['another plain key', 'bar', 5061],
  ['a hash tag', 'foo{bar}', 5061],
  ['a hash tag at the start', '{user1000}.following', 3443],
  ['the same hash tag in another key', '{user1000}.followers', 3443],
  ['empty braces, which are not a hash tag', 'foo{}{bar}', 8363],
  ['a brace within the hash tag', 'foo{{bar}}zap', 4015],
  ['the first of two hash tags', 'foo{bar}{zap}', 5061],
])('computes the slot of %s', (_, key, slot) => {
  expect([slotOf(key), slotOf(Buffer.from(key))]).toEqual([slot, slot])
})
