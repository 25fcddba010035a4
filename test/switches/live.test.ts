/** An isolate's copy of the switches: its age, and the trips that read a new one. */

import { beforeEach, describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { RESET } from '../../src/script/reset.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'
import { createSwitchBoard, type SwitchBoard } from '../../src/switches/live.ts'
import { formatSwitches } from '../../src/switches/switches.ts'
import { withRiders } from '../../src/trips/carry.ts'
import { sendAlone } from '../support/trips.ts'

const KILLED = formatSwitches({ kill: { at: new Date(0), by: 'ops' }, rules: new Map() })
const GET = { command: 'GET', key: 'sluice:{switches}' }
const CALL: StoreCall = { script: RESET, keys: ['k'], args: [] }

let now: number
let board: SwitchBoard
beforeEach(() => {
  now = 1_000_000
  board = createSwitchBoard({ now: () => now })
})

const isKilled = () => board.current().kill !== undefined
const TRIP = { calls: [], isAnswering: true, keysPerCall: 50 }
const isStale = () => board.load({ ...TRIP, isAlone: false }) !== undefined
/** @returns a function for the reply */
function startRead() {
  const { done } = board.load({ ...TRIP, isAlone: true })!
  return (reply: unknown) => done([reply])
}
const applyReply = (reply: unknown) => startRead()(reply)

describe('the copy', () => {
  it('is stale until it was read, and again a second after that read started', () => {
    expect(isStale()).toBe(true)
    const applyReply = startRead()
    expect(isStale()).toBe(true)
    now += 400
    applyReply(null)
    now += 599
    expect(isStale()).toBe(false)
    now += 1
    expect(isStale()).toBe(true)
  })

  it('is stale when the clock is set back', () => {
    applyReply(null)
    now -= 1
    expect(isStale()).toBe(true)
    applyReply(KILLED)
    expect([isKilled(), isStale()]).toEqual([true, false])
  })

  it.each([undefined, 7, [], {}, new GatewayError('ERR_STORE_REFUSED', 'no')])(
    'stays unchanged and stale after the reply %j',
    answer => {
      applyReply(KILLED)
      now += 5000
      applyReply(answer)
      expect([isKilled(), isStale()]).toEqual([true, true])
    },
  )

  it('is not replaced by a late reply to an earlier read', () => {
    const [slow, fast] = [startRead(), startRead()]
    fast(KILLED)
    slow(null)
    expect(isKilled()).toBe(true)
  })

  it('drops expired switches by its own clock', () => {
    applyReply(
      formatSwitches({ kill: { at: new Date(0), by: 'ops', until: new Date(now + 100) }, rules: new Map() }),
    )
    expect(isKilled()).toBe(true)
    now += 100
    expect(isKilled()).toBe(false)
  })

  it('has an expired switch again if the clock ran ahead and is set back', () => {
    const until = new Date(now + 100)
    applyReply(formatSwitches({ kill: { at: new Date(0), by: 'ops', until }, rules: new Map() }))
    now += 3600e3
    expect(isKilled()).toBe(false)
    now -= 3600e3
    expect(isKilled()).toBe(true)
  })

  it('is the same object until a switch starts or expires, so that caches keyed by it stay valid', () => {
    const [at, until] = [new Date(0), new Date(now + 100)]
    const rules = new Map([
      ['brief', { at, by: 'ops', until, mode: 'off' as const }],
      ['lasting', { at, by: 'ops', mode: 'shadow' as const }],
    ])
    applyReply(formatSwitches({ rules }))
    const both = board.current()
    now += 99
    expect(board.current()).toBe(both)
    now += 1
    const one = board.current()
    expect([...one.rules.keys()]).toEqual(['lasting'])
    now += 500
    applyReply(formatSwitches({ rules }))
    expect(board.current()).toBe(one)
  })

  it('is overdue if no trip has started to read it for a second', () => {
    expect(board.isOverdue()).toBe(true)
    startRead()
    expect(board.isOverdue()).toBe(false)
    now += 1000
    expect(board.isOverdue()).toBe(true)
    applyReply(null)
    expect(board.isOverdue()).toBe(false)
  })
})

describe('the read of the switches', () => {
  /** The calls of each HTTP request. */
  let requests: (readonly StoreCall[])[]
  let answers: (calls: readonly StoreCall[]) => Promise<unknown[]>
  const storeOf = (isCluster?: boolean) => {
    const rider = board
    const bare: Store = {
      ...(isCluster !== undefined && { isCluster }),
      run(calls) {
        requests.push(calls)
        return answers(calls)
      },
      ping: () => Promise.resolve(),
    }
    return { run: withRiders(bare, [rider]).run, refresh: () => sendAlone(rider, bare) }
  }
  beforeEach(() => {
    requests = []
    answers = async calls => calls.map(call => ('command' in call ? KILLED : 'reply'))
  })

  it('is sent before the calls of a decision with an old copy, and its reply is not returned', async () => {
    const store = storeOf()
    expect(await store.run([CALL, CALL])).toEqual(['reply', 'reply'])
    expect(isKilled()).toBe(true)
    expect(await store.run([CALL])).toEqual(['reply'])
    now += 1000
    expect(await store.run([CALL])).toEqual(['reply'])
    expect(requests).toEqual([[GET, CALL, CALL], [CALL], [GET, CALL]])
  })

  it('is repeated by all decisions until the first reply', async () => {
    const store = storeOf()
    await Promise.all([store.run([CALL]), store.run([CALL]), store.run([CALL])])
    expect(requests).toEqual([
      [GET, CALL],
      [GET, CALL],
      [GET, CALL],
    ])
  })

  it('makes its own trip in a refresh', async () => {
    const store = storeOf()
    await store.refresh()
    expect(isKilled()).toBe(true)
    expect(requests).toEqual([[GET]])
  })

  it('keeps the copy if it fails, and does not affect the replies to the other calls', async () => {
    const store = storeOf()
    await store.refresh()
    now += 1000
    const failure = new GatewayError('ERR_STORE_REFUSED', 'The store answered WRONGTYPE.')
    answers = async calls => calls.map(call => ('command' in call ? failure : 'reply'))
    expect(await store.run([CALL])).toEqual(['reply'])
    expect([isKilled(), isStale()]).toEqual([true, true])
    answers = () => Promise.reject(failure)
    await expect(store.run([CALL])).rejects.toBe(failure)
    expect([isKilled(), isStale()]).toEqual([true, true])
  })

  it('fails a refresh like any other call', async () => {
    const failure = new GatewayError('ERR_STORE_TIMEOUT', 'late')
    answers = () => Promise.reject(failure)
    await expect(storeOf().refresh()).rejects.toBe(failure)
  })

  it('pauses for a second on a cluster after a failure, because perhaps only the node of the switches hangs', async () => {
    for (const [isCluster, callCounts] of [
      [true, [2, 1, 2]],
      [false, [2, 2, 2]],
    ] as const) {
      board = createSwitchBoard({ now: () => now })
      requests = []
      const store = storeOf(isCluster)
      answers = () => Promise.reject(new GatewayError('ERR_STORE_TIMEOUT', 'late'))
      await store.run([CALL]).catch(() => {})
      await store.run([CALL]).catch(() => {})
      now += 1000
      await store.run([CALL]).catch(() => {})
      expect(requests.map(calls => calls.length)).toEqual(callCounts)
    }
  })
})
