/** Shared signals: the state that each isolate computes from them, and the effect of lost, late and wrong replies. */
import * as fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { RESET } from '../../src/script/reset.ts'
import { encodePush } from '../../src/script/signal.ts'
import { signalScript } from '../../src/script/signal-text.ts'
import { type Controller, numbersAsText } from '../../src/shedding/controller.ts'
import { createSignalBoard, type SignalBoardOptions } from '../../src/shedding/signal-board.ts'
import { signalKey } from '../../src/store/keys.ts'
import type { ScriptCall, Store, StoreCall } from '../../src/store/store.ts'
import { withRiders } from '../../src/trips/carry.ts'
import type { Trips } from '../../src/trips/trips.ts'
import { describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { storeOf } from '../support/stores.ts'
import { TRIP, tripsOn } from '../support/trips.ts'

const NOON_MS = 1_800_000_000_000
const WINDOW = NOON_MS / 1000
const OWN: StoreCall = { script: RESET, keys: ['sluice:{k}'], args: ['1', ''] }

/** Sums over all windows. */
interface Totals {
  sum: number
  ms: number
}
const initial: Totals = { sum: 0, ms: 0 }
const controller: Controller<Totals> = {
  initial,
  next: ({ sum, ms }, window) => ({ sum: sum + (window.sums[0] ?? 0), ms: ms + window.ms }),
  ...numbersAsText(initial, totals => totals),
}

/** Adds pushes as one more sample of each window. */
const addPushes: SignalBoardOptions<Totals>['addPushes'] = ([sum = 0, samples = 0], { mean }) => [
  sum + mean,
  samples + 1,
]

/** The clock of this machine (ms), and how far the clock of the store is ahead. */
let now: number
let ahead: number
beforeEach(() => {
  now = NOON_MS
  ahead = 0
})

const boardOf = (change: Partial<SignalBoardOptions<Totals>> = {}) =>
  createSignalBoard({
    ...{ name: 'origin', sums: 2, controller, now: () => now, script: signalScript },
    reportAt: () => (now + ahead) * 1000,
    ...change,
  })

type Board = ReturnType<typeof boardOf>

/** A store whose replies the test provides. */
function fakeStore(answer: (calls: readonly StoreCall[]) => unknown[] | Promise<unknown[]>) {
  const sent: (readonly StoreCall[])[] = []
  const store: Store = {
    async run(calls) {
      sent.push(calls)
      return await answer(calls)
    },
    ping: async () => {},
  }
  return { store, sent }
}

const replyOf = (closed: number, sums: number[], stateAt = -1, text = '', pushed = [-1, 0]) => [
  ...[now * 1000, closed, ...sums, stateAt, text, ...pushed],
]
const argsOf = (call: StoreCall) => (call as ScriptCall).args
const sumsSent = (call: StoreCall) => argsOf(call).slice(4, 6).map(Number)
const stateSent = (call: StoreCall) => argsOf(call).slice(6)

describe('a report', () => {
  it('is sent with the first trip of each window, after its calls, whose replies stay the same', async () => {
    const board = boardOf()
    const { store, sent } = fakeStore(calls => calls.map((_, i) => (i === 0 ? 'own' : replyOf(-1, [0, 0]))))
    const storeWithReports = withRiders(store, [board])
    for (const pause of [0, 400, 599, 1, 0, 1000]) {
      now += pause
      expect(await storeWithReports.run([OWN])).toEqual(['own'])
    }
    expect(sent.map(calls => calls.length)).toEqual([2, 1, 1, 2, 1, 2])
    expect(sent[0]).toEqual([OWN, expect.objectContaining({ keys: [signalKey('origin')] })])
  })

  it('of several signals is sent in one trip', async () => {
    const boards = [boardOf({ name: 'a' }), boardOf({ name: 'b' })]
    const { store, sent } = fakeStore(calls => calls.map(() => 'x'))
    expect(await withRiders(store, boards).run([OWN])).toEqual(['x'])
    expect(sent[0]?.map(call => ('keys' in call ? call.keys[0] : ''))).toEqual([
      ...['sluice:{k}', signalKey('a'), signalKey('b')],
    ])
  })

  it('has what was added since the last report, in integers; negative values, NaN and null add nothing', async () => {
    const board = boardOf()
    const { store, sent } = fakeStore(() => ['own', replyOf(-1, [0, 0])])
    board.add([1.6, 1])
    board.add([3, 1])
    for (const bad of [[-1, Number.NaN], [Number.NEGATIVE_INFINITY], [], ['7', null, 9] as never])
      board.add(bad)
    await withRiders(store, [board]).run([OWN])
    now += 1000
    await withRiders(store, [board]).run([OWN])
    expect(sent.map(([, report]) => sumsSent(report!))).toEqual([
      [12, 2],
      [0, 0],
    ])
  })

  it('stays within exact integers, whatever was added', async () => {
    const board = boardOf()
    const { store, sent } = fakeStore(() => ['own', replyOf(-1, [0, 0])])
    for (let i = 0; i < 3; i++) board.add([Number.MAX_VALUE, Number.POSITIVE_INFINITY])
    await withRiders(store, [board]).run([OWN])
    expect(sumsSent(sent[0]![1]!)).toEqual([2 ** 52, 2 ** 52])
  })

  it('leaves out measurements that are older than ten windows', async () => {
    const board = boardOf()
    const { store, sent } = fakeStore(() => ['own', replyOf(-1, [0, 0])])
    board.add([5, 1])
    now += 10_000
    await withRiders(store, [board]).run([OWN])
    board.add([6, 1])
    now += 9_999
    await withRiders(store, [board]).run([OWN])
    expect(sent.map(([, report]) => sumsSent(report!))).toEqual([
      [0, 0],
      [6, 1],
    ])
  })

  it('is due after the clock was set back', () => {
    const board = boardOf()
    board.startReport()
    expect(board.load(TRIP)).toBeUndefined()
    now -= 1
    expect(board.load(TRIP)).toBeDefined()
  })

  it.each([
    ...[undefined, null, 'x', 7, [], {}, [1, 2, 3], new GatewayError('ERR_STORE_REFUSED', 'no')],
    ...[['x', 5, 1, 1, -1, '', -1, 0]],
  ])('with the reply %j does not affect the other calls or the state', async answer => {
    const board = boardOf()
    const { store } = fakeStore(() => ['own', answer])
    expect(await withRiders(store, [board]).run([OWN])).toEqual(['own'])
    expect(board.state()).toEqual(controller.initial)
  })

  it('without a reply, or with a script or controller that throws, does not affect the other calls', async () => {
    const { store, sent } = fakeStore(calls => calls.map(() => 'own').slice(0, 1))
    expect(await withRiders(store, [boardOf()]).run([OWN])).toEqual(['own'])
    const broken = boardOf({
      script() {
        throw new Error('not built')
      },
    })
    expect(await withRiders(store, [broken]).run([OWN])).toEqual(['own'])
    expect(sent.at(-1)).toEqual([OWN])
    const answering = fakeStore(() => ['own', replyOf(WINDOW - 1, [1, 1])])
    const throwing = boardOf({
      controller: {
        ...controller,
        next() {
          throw new Error('x')
        },
      },
    })
    expect(await withRiders(answering.store, [throwing]).run([OWN])).toEqual(['own'])
  })

  it('fails if the whole trip fails, as the trip would without it', async () => {
    const failure = new GatewayError('ERR_STORE_TIMEOUT', 'late')
    const { store } = fakeStore(() => Promise.reject(failure))
    await expect(withRiders(store, [boardOf()]).run([OWN])).rejects.toBe(failure)
  })

  it('does not change whether its store is a cluster', async () => {
    const { store } = fakeStore(() => [])
    expect(withRiders(store, []).isCluster).toBeUndefined()
    expect(withRiders({ ...store, isCluster: true }, []).isCluster).toBe(true)
    await withRiders(store, []).ping()
  })
})

describe('the state', () => {
  const applyReply = (board: Board, reply: unknown) => board.startReport().done([reply])

  it('moves with a newer window at once, and is sent with the next report', () => {
    const board = boardOf()
    applyReply(board, replyOf(WINDOW - 1, [40, 2], WINDOW - 3, '100 5000'))
    expect(board.state()).toEqual({ sum: 140, ms: 7000 })
    now += 1000
    const report = board.startReport()
    expect(stateSent(report.calls[0]!)).toEqual([`${WINDOW - 1}`, '140 7000'])
    report.done([replyOf(WINDOW - 1, [40, 2], WINDOW - 1, '140 7000')])
    // The store has the state.
    expect(stateSent(board.startReport().calls[0]!)).toEqual([])
    expect(board.state()).toEqual({ sum: 140, ms: 7000 })
  })

  it('is sent again until the store has it', () => {
    const board = boardOf()
    applyReply(board, replyOf(WINDOW - 1, [40, 2]))
    for (let i = 0; i < 3; i++)
      expect(stateSent(board.startReport().calls[0]!)).toEqual([`${WINDOW - 1}`, '40 1000'])
  })

  it('is replaced by that of another isolate for the same window', () => {
    const board = boardOf()
    applyReply(board, replyOf(WINDOW - 1, [40, 2]))
    applyReply(board, replyOf(WINDOW - 1, [40, 2], WINDOW - 1, '7 8'))
    expect(board.state()).toEqual({ sum: 7, ms: 8 })
  })

  it('is kept if the store has an older one', () => {
    const board = boardOf()
    applyReply(board, replyOf(WINDOW - 2, [40, 2]))
    now += 1000
    applyReply(board, replyOf(WINDOW - 1, [2, 1], WINDOW - 5, '7 8'))
    expect(board.state()).toEqual({ sum: 42, ms: 2000 })
  })

  it('is kept if the controller cannot read the stored one', () => {
    const board = boardOf()
    applyReply(board, replyOf(WINDOW - 1, [40, 2], WINDOW - 2, 'of another version'))
    expect(board.state()).toEqual({ sum: 40, ms: 1000 })
  })

  it('is not replaced by a late reply to an earlier report', () => {
    const board = boardOf()
    const [first, second] = [board.startReport(), board.startReport()]
    second.done([replyOf(WINDOW - 1, [5, 1])])
    first.done([replyOf(WINDOW - 2, [9, 1], WINDOW - 2, '1 1')])
    expect(board.state()).toEqual({ sum: 5, ms: 1000 })
  })

  it('is not sent if it cannot be written', () => {
    const board = boardOf({ controller: { ...controller, write: () => ';' } })
    applyReply(board, replyOf(WINDOW - 1, [5, 1]))
    expect(stateSent(board.startReport().calls[0]!)).toEqual([])
  })

  it('includes pushes, once for each window', () => {
    const board = boardOf({ addPushes })
    for (let i = 0; i < 3; i++) applyReply(board, replyOf(WINDOW - 1, [40, 2], -1, '', [800, 3]))
    expect(board.state()).toEqual({ sum: 840, ms: 1000 })
    applyReply(board, replyOf(WINDOW, [1, 1], WINDOW - 1, '840 1000'))
    expect(board.state()).toEqual({ sum: 841, ms: 2000 })
    const deaf = boardOf()
    applyReply(deaf, replyOf(WINDOW - 1, [40, 2], -1, '', [800, 3]))
    expect(deaf.state()).toEqual({ sum: 40, ms: 1000 })
  })

  it('is kept when the clock of the store is set back, and moves with the next window there', () => {
    const board = boardOf()
    applyReply(board, replyOf(WINDOW - 1, [40, 2]))
    now -= 100_000
    applyReply(board, replyOf(-1, [0, 0]))
    expect(board.state()).toEqual({ sum: 40, ms: 1000 })
    // The state no longer has a window, so any closed window there is newer.
    applyReply(board, replyOf(WINDOW - 101, [2, 1]))
    expect(board.state()).toEqual({ sum: 42, ms: 2000 })
  })
})

describe('without a reply', () => {
  it('the isolate waits for three windows, and then moves the state by its own measurements', () => {
    const board = boardOf()
    board.startReport().done([replyOf(WINDOW - 1, [40, 2])])
    // The only report has been answered, so the state does not move.
    now += 60_000
    expect(board.state()).toEqual({ sum: 40, ms: 1000 })
    board.add([3, 1])
    board.startReport()
    now += 2999
    expect(board.state()).toEqual({ sum: 40, ms: 1000 })
    now += 1
    expect(board.state()).toEqual({ sum: 43, ms: 4000 })
    board.add([5, 1])
    now += 999
    expect(board.state().sum).toBe(43)
    now += 1
    expect(board.state()).toEqual({ sum: 48, ms: 5000 })
    // Even without measurements, time passes for the controller.
    now += 60_000
    expect(board.state()).toEqual({ sum: 48, ms: 65_000 })
    board.startReport().done([replyOf(WINDOW + 50, [1, 1], WINDOW + 40, '5 5')])
    expect(board.state()).toEqual({ sum: 6, ms: 10_005 })
    now += 60_000
    expect(board.state()).toEqual({ sum: 6, ms: 10_005 })
  })

  it('from the start, the isolate moves the state after three windows from its first report', () => {
    const board = boardOf()
    board.add([3, 1])
    board.startReport()
    now += 2999
    expect(board.state()).toEqual(controller.initial)
    board.startReport()
    board.add([4, 1])
    now += 1
    expect(board.state()).toEqual({ sum: 7, ms: 3000 })
  })

  it('the isolate waits again after the clock was set back', () => {
    const board = boardOf()
    board.startReport().done([replyOf(WINDOW - 1, [40, 2])])
    board.startReport()
    now -= 1e7
    expect(board.state().ms).toBe(1000)
    now += 2999
    expect(board.state().ms).toBe(1000)
    now += 1
    expect(board.state().ms).toBe(4000)
  })
})

describe('if requests make no trip', () => {
  const background: Promise<unknown>[] = []
  const refresh = (trips: Trips) => trips.schedule(task => background.push(task.catch(() => {})))
  const tripsWith = (store: Store, board: Board) =>
    tripsOn(store, [board], { now: () => now, timer: () => () => {} })

  it('a report is sent separately after two windows without one', async () => {
    const board = boardOf()
    const { store, sent } = fakeStore(() => [replyOf(WINDOW - 1, [7, 1])])
    const trips = tripsWith(store, board)
    board.startReport()
    for (const pause of [0, 1999, 1, 0, 1999, 1]) {
      now += pause
      refresh(trips)
      await Promise.all(background)
    }
    await Promise.all(background)
    expect(sent.map(calls => calls.length)).toEqual([1, 1])
    expect(board.state().sum).toBe(7)
  })

  it('on a cluster, reports without a reply are sent separately, and delay no decision', async () => {
    const board = boardOf()
    let hangs = true
    const { store, sent } = fakeStore(async calls => {
      if (hangs && calls.length > 1) throw new GatewayError('ERR_STORE_TIMEOUT', 'late')
      return calls.map(call =>
        call === OWN
          ? 'own'
          : hangs
            ? new GatewayError('ERR_STORE_TIMEOUT', 'late')
            : replyOf(WINDOW, [7, 1]),
      )
    })
    const trips = tripsWith({ ...store, isCluster: true }, board)
    let failed = 0
    const decide = async () => {
      await trips.store.run([OWN]).catch(() => failed++)
      refresh(trips)
      await Promise.all(background)
      now += 500
    }
    for (let i = 0; i < 20; i++) await decide()
    expect(failed).toBe(1)
    const apart = sent.filter(([call]) => call !== OWN)
    expect(apart.map(calls => calls.length)).toEqual([1, 1, 1, 1])
    hangs = false
    for (let i = 0; i < 8; i++) await decide()
    expect(sent.slice(-8).filter(([first, report]) => first === OWN && report).length).toBeGreaterThan(1)
    expect(failed).toBe(1)
  })

  it('a failed report is tried again two windows later', async () => {
    const board = boardOf()
    const { store, sent } = fakeStore(() => Promise.reject(new GatewayError('ERR_STORE_TIMEOUT', 'late')))
    const trips = tripsWith(store, board)
    for (let i = 0; i < 10; i++) {
      refresh(trips)
      await Promise.all(background)
      now += 500
    }
    await Promise.all(background)
    expect(sent.length).toBe(3)
  })
})

describeOnRedisEngine('isolates that share a signal', fresh => {
  interface Isolate {
    board: Board
    store: Store
  }
  const isolateOn = (redis: RedisEngine, change: Partial<SignalBoardOptions<Totals>> = {}): Isolate => {
    const board = boardOf(change)
    return { board, store: withRiders(storeOf(redis, { isCluster: true }), [board]) }
  }
  /** One decision by each isolate in turn, then a second passes. */
  const second = async (...isolates: Isolate[]) => {
    for (const { store } of isolates) await store.run([OWN])
    now += 1000
  }

  it('have the same state, which moves once per window', async () => {
    const redis = await fresh()
    const [a, b] = [isolateOn(redis), isolateOn(redis)]
    for (let i = 1; i <= 5; i++) {
      a.board.add([i, 1])
      b.board.add([10 * i, 1])
      await second(a, b)
    }
    // The fifth window is still open.
    expect(a.board.state()).toEqual({ sum: 11 + 22 + 33 + 44, ms: 4000 })
    expect(b.board.state()).toEqual(a.board.state())
  })

  it('pass the state on to a new isolate', async () => {
    const redis = await fresh()
    const [a, late] = [isolateOn(redis), isolateOn(redis)]
    a.board.add([5, 1])
    for (let i = 0; i < 5; i++) await second(a)
    await second(late)
    // The last closed window is empty.
    expect(late.board.state()).toEqual({ sum: 5, ms: 5000 })
  })

  it('count a window without a report as elapsed time', async () => {
    const redis = await fresh()
    const a = isolateOn(redis)
    for (const pause of [0, 0, 7000, 0]) {
      a.board.add([1, 1])
      now += pause
      await second(a)
    }
    // Windows 0 and 1, and window 9 with the time before it.
    expect(a.board.state()).toEqual({ sum: 3, ms: 10_000 })
  })

  it('agree again after they have computed different states', async () => {
    const redis = await fresh()
    // The second isolate counts double, as if it had another version of the controller.
    const twice: Controller<Totals> = {
      ...controller,
      next: (state, window) => controller.next(state, { ...window, sums: window.sums.map(sum => 2 * sum) }),
    }
    const [a, b] = [isolateOn(redis), isolateOn(redis, { controller: twice })]
    a.board.add([10, 1])
    await second(a, b)
    await second(a, b)
    expect([a.board.state().sum, b.board.state().sum]).toEqual([10, 20])
    // The state that arrives first is kept.
    await second(b, a)
    expect([a.board.state().sum, b.board.state().sum]).toEqual([20, 20])
  })

  it('lose only the lost reports and replies', async () => {
    const redis = await fresh()
    const [a, b] = [isolateOn(redis), isolateOn(redis)]
    let lost: 'request' | 'reply' | undefined
    const inner = storeOf(redis)
    a.store = withRiders(
      {
        ...inner,
        async run(calls) {
          if (lost === 'request') throw new GatewayError('ERR_STORE_TIMEOUT', 'late')
          const replies = await inner.run(calls)
          if (lost === 'reply') throw new GatewayError('ERR_STORE_TIMEOUT', 'late')
          return replies
        },
      },
      [a.board],
    )
    for (const [i, what] of [undefined, 'request', 'reply', undefined, undefined].entries()) {
      a.board.add([10 ** i, 1])
      lost = what as typeof lost
      await a.store.run([OWN]).catch(() => {})
      await second(b)
    }
    await second(a, b)
    expect(a.board.state()).toEqual({ sum: 11_101, ms: 5000 })
    expect(b.board.state()).toEqual(a.board.state())
  })

  it('keep the state when Redis loses it', async () => {
    const redis = await fresh()
    const [a, late] = [isolateOn(redis), isolateOn(redis)]
    a.board.add([5, 1])
    for (let i = 0; i < 3; i++) await second(a)
    await redis.send(['FLUSHALL'])
    for (let i = 0; i < 3; i++) await second(a)
    await second(a, late)
    expect(late.board.state()).toEqual(a.board.state())
    expect(late.board.state().sum).toBe(5)
  })

  it.each([-3_600_000, -1500, 1500, 3_600_000])(
    'continue when the clock of Redis jumps by %d ms',
    async jump => {
      const redis = await fresh()
      const [a, b] = [isolateOn(redis), isolateOn(redis)]
      for (let i = 0; i < 4; i++) {
        a.board.add([1, 1])
        await second(a, b)
      }
      const before = a.board.state()
      expect(before.sum).toBe(3)
      ahead = jump
      for (let i = 0; i < 6; i++) {
        b.board.add([10, 1])
        await second(b, a)
      }
      const after = a.board.state()
      expect(after).toEqual(b.board.state())
      // The sums of the old windows may be lost; the new ones count.
      expect(after.sum).toBeGreaterThanOrEqual(before.sum + 40)
      expect(after.sum).toBeLessThanOrEqual(before.sum + 61)
      ahead = 0
      for (let i = 0; i < 4; i++) await second(a, b)
      // A state that was not stored before the clock was set back is lost: one window.
      expect(a.board.state().sum).toBeGreaterThanOrEqual(after.sum - 10)
      expect(b.board.state()).toEqual(a.board.state())
    },
  )

  it('all include pushes, until they are stale', async () => {
    const redis = await fresh()
    const [a, b] = [isolateOn(redis, { addPushes }), isolateOn(redis, { addPushes })]
    for (const [reporter, value] of [
      ['m-1', 600],
      ['m-2', 800],
    ] as const) {
      const push = { signal: 'origin', reporter, value, staleAfterMs: 2500, now: now * 1000 }
      await redis.run(encodePush(signalScript(), push))
    }
    for (let i = 0; i < 6; i++) await second(a, b)
    // Two windows closed while the pushes were fresh.
    expect(a.board.state()).toEqual({ sum: 1400, ms: 5000 })
    expect(b.board.state()).toEqual(a.board.state())
  })

  it(`agree soon after any loss (SEED=${SEED})`, async () => {
    const redis = await fresh()
    const step = fc.record({
      who: fc.nat(2),
      pause: fc.constantFrom(0, 100, 400, 1000, 3000),
      lost: fc.constantFrom(undefined, undefined, 'request', 'reply', 'late'),
      jump: fc.constantFrom(0, 0, 0, 0, -5000, 2000),
    })
    await forEvery(fc.array(step, { maxLength: 30 }), 15, async steps => {
      await redis.send(['FLUSHALL'])
      now = NOON_MS
      ahead = 0
      const boards = [boardOf(), boardOf(), boardOf()]
      const late: (() => void)[] = []
      for (const { who, pause, lost, jump } of steps) {
        now += pause
        ahead += jump
        const board = boards[who]!
        board.add([1, 1])
        const report = board.load(TRIP)
        if (!report) continue
        const reply = lost === 'request' ? undefined : await redis.run(report.calls[0] as ScriptCall)
        // A reply that cannot be read is ignored, as in a trip.
        const applyReply = () => reply !== undefined && report.done([reply])
        if (lost === 'late') late.push(applyReply)
        else if (lost === undefined) applyReply()
      }
      for (const applyLateReply of late) applyLateReply()
      const isolates = boards.map(board => ({ board, store: withRiders(storeOf(redis), [board]) }))
      for (let i = 0; i < 4; i++) await second(...isolates)
      const [first, ...others] = boards.map(board => board.state())
      for (const other of others) expect(other).toEqual(first)
    })
  })
})
