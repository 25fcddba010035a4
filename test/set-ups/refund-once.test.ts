/** How long the store keeps what a call has got back, so that it gives nothing back twice. */
import { expect, it } from 'vitest'
import { refundOnce } from '../../src/set-ups/limits/refund-once.ts'
import { configOf } from '../support/engines.ts'

const [rule] = configOf({
  limits: { sms: [{ name: 'rate', algorithm: 'gcra', limit: 10, period: '1m', overridable: true }] },
}).limits.get('sms')!

const keepSeconds = (written?: string) => {
  const records = { rate: `${rule!.family}${rule!.tag}${written === undefined ? '' : ` ${written}`}` }
  const decision = {
    limit: 'sms',
    identity: {},
    at: 1e15,
    allowed: true,
    rules: [],
    costs: { rate: 1 },
    records,
  }
  return refundOnce(decision, 'id', [{ rule: rule!, key: 'k' }]).keepSeconds
}

it('is until the bucket has drained, also with the numbers of an override', () => {
  expect(keepSeconds()).toBe(120)
  expect(keepSeconds('20,20')).toBe(120)
  expect(keepSeconds('10,1000')).toBe(6060)
  expect(keepSeconds('5,500')).toBe(6060)
})

it('is as long as without an override if a receipt has other text there', () => {
  for (const text of ['', 'x,y', '1,1e400', '-1', '0,1']) expect(keepSeconds(text)).toBe(120)
})
