/** What the suites of this folder show of `serve` at length, in a few seconds. */
import { afterAll, beforeAll, beforeEach, it, vi } from 'vitest'
import { expectNoFaults } from './faults.ts'
import { type HostileBed, startHostileBed } from './gateways.ts'
import { attack } from './origin-cases.ts'
import { ORIGIN_KINDS } from './origin-kinds.ts'
import { sendUnanswered } from './retry-cases.ts'
import { CLOSE } from './steps.ts'

let bed: HostileBed
beforeAll(async () => {
  bed = await startHostileBed('in-process')
})
afterAll(async () => {
  await bed?.close()
})
beforeEach(() => {
  // Of origins that do not answer.
  vi.spyOn(console, 'error').mockImplementation(() => {})
})

it.each([
  'a body after HEAD, 5 ms later',
  'a body after 204, 5 ms later',
  'a second reply after Content-Length, in one packet',
])('callers of serve get their own replies from an origin with %s', async name => {
  const kind = ORIGIN_KINDS.find(each => each.name === name)!
  expectNoFaults(bed, name, await attack(bed, kind))
})

it('serve sends a request twice at most, if the origin closes idle connections instead of answering', async () => {
  for (const method of ['GET', 'POST'])
    expectNoFaults(bed, '20 idle connections', await sendUnanswered(bed, method, 20, CLOSE))
})
