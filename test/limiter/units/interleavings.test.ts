/**
 * Every order of requests, replies, endings and messages of two isolates, with messages that are late, repeated or lost, isolates that
 * die, and a store that is emptied. docs/internals/concurrency.md proves the properties that these tests check. The holdings and the model of the
 * store are the real code; test/script/parity.test.ts compares the model with the script.
 */
import { describe, expect, it } from 'vitest'
import { IDLE, type State } from '../../../src/algorithms/algorithm.ts'
import { applyMessage, concurrency, MAX_UNITS } from '../../../src/algorithms/concurrency.ts'
import { Holdings, type Permit } from '../../../src/limiter/units/holdings.ts'
import type { Message } from '../../../src/script/sync.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import { SELECTION, sized } from '../../selection.ts'
import { bound } from '../../support/bound.ts'
import { rulesOf } from '../../support/engines.ts'
import { NOON } from '../../support/traffic.ts'

const STATE = consumerStateKey('acme')

/** The worlds replace its limit. */
const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'concurrency', limit: 1 })

interface TestRequest {
  kind: 'request'
  isolate: number
  permit: Permit
  cost: number
  /** `nothing`: the isolate waits for the reply. */
  isolateKnows: 'nothing' | 'reply' | 'timeout'
  /** The answer of the store: whether it has admitted the request. */
  reply?: boolean
  isEnded: boolean
}

interface Sent {
  kind: 'message'
  isolate: number
  messages: readonly Message[]
  /** Whether it has arrived or was lost. */
  isGone: boolean
}

/** One isolate. */
interface Isolate {
  holdings: Holdings
  isDead: boolean
}

interface Plan {
  limit: number
  /** How many requests each isolate makes. */
  requests: readonly number[]
  /** What the n-th request of an isolate costs. Absent: 1. */
  costOf?(n: number): number
  /** The highest limit that the isolates expect. Absent: they do not know which cost the store always refuses. */
  mostAtOnce?: number
  /** How often each of these events may happen. */
  most: typeof NOTHING
}

/** SOAK=1 visits many more worlds, for more than five minutes. */
const LARGE = process.env.SOAK !== undefined ? [2, 2] : [1, 1]
/** `npm test` visits thousands of worlds of these plans, `npm run test:all` ten thousands. */
const MEDIUM = SELECTION === 'all' ? [2, 1] : [1, 1]

const NOTHING = { late: 0, repeated: 0, unconfirmed: 0, lost: 0, death: 0, restart: 0, epoch: 0, pause: 0 }

/** The isolates, the messages between them and the store, and the state of the store, after some events. */
class World {
  readonly #plan: Plan
  readonly #happened = { ...NOTHING }
  readonly #isolates: Isolate[]
  readonly #made: number[]
  readonly #requests: TestRequest[] = []
  readonly #sent: Sent[] = []
  #state: State = IDLE
  #nowMs = NOON / 1e3
  /** The most units that were in flight at once. */
  mostInFlight = 0
  /** The requests that were admitted and not over when the isolates stopped to run; some isolates do not know yet. */
  heldAtPause = 0

  constructor(plan: Plan) {
    this.#plan = plan
    this.#isolates = plan.requests.map((_, i) => ({
      holdings: new Holdings(
        () => this.#nowMs,
        () => `isolate${i}`,
      ),
      isDead: false,
    }))
    this.#made = plan.requests.map(() => 0)
  }

  /** The names of all events that can happen next. */
  next(): string[] {
    const may = (what: keyof typeof NOTHING) => this.#happened[what] < this.#plan.most[what]
    const names: string[] = []
    this.#isolates.forEach(({ isDead, holdings }, i) => {
      if (isDead) return
      if (this.#made[i]! < this.#plan.requests[i]!) names.push(`ask ${i}`)
      if (
        holdings.unconfirmedSince() !== undefined &&
        !this.#sent.some(sent => sent.isolate === i && !sent.isGone)
      )
        names.push(`send ${i}`)
      if (may('death') && holdings.heldUnits.length > 0) names.push(`die ${i}`)
      if (holdings.isRenewalDue()) names.push(`renew ${i}`)
      if (may('pause') && holdings.heldUnits.length > 0) names.push('pause')
      if (may('epoch') && holdings.heldUnits.length > 0) names.push('epoch')
    })
    this.#requests.forEach((request, i) => {
      const isDead = this.#isolates[request.isolate]!.isDead
      if (request.reply === undefined) names.push(`arrive ${i}`)
      else if (may('repeated')) names.push(`repeat ${i}`)
      if (isDead) return
      if (request.isolateKnows === 'nothing') {
        if (request.reply !== undefined) names.push(`answer ${i}`)
        if (may('late')) names.push(`time out ${i}`)
      } else if (request.isolateKnows === 'reply' && request.reply && !request.isEnded) names.push(`end ${i}`)
    })
    this.#sent.forEach((sent, i) => {
      if (!sent.isGone) names.push(`receive ${i}`)
      else if (may('repeated')) names.push(`receive again ${i}`)
      if (!sent.isGone && may('unconfirmed')) names.push(`receive without a reply ${i}`)
      if (!sent.isGone && may('lost')) names.push(`lose ${i}`)
    })
    if (may('restart') && this.#state !== IDLE) names.push('restart')
    return [...new Set(names)]
  }

  happen(name: string): void {
    const [, verb = '', number] = /^(.*?)(?: (\d+))?$/.exec(name)!
    const i = Number(number)
    switch (verb) {
      case 'ask': {
        const cost = this.#plan.costOf?.(this.#made[i]!) ?? 1
        const boundRule = bound(rule!, STATE, cost, this.#nowMs)
        const permit = this.#isolates[i]!.holdings.takePermit(boundRule, this.#plan.mostAtOnce)
        this.#made[i]! += 1
        const state = { isolateKnows: 'nothing', isEnded: false } as const
        this.#requests.push({ kind: 'request', isolate: i, permit, cost, ...state })
        break
      }
      case 'repeat':
        this.#happened.repeated += 1
        this.#decide(this.#requests[i]!)
        break
      case 'arrive':
        this.#requests[i]!.reply = this.#decide(this.#requests[i]!)
        break
      case 'answer': {
        const request = this.#requests[i]!
        request.isolateKnows = 'reply'
        this.#isolates[request.isolate]!.holdings.resolve(
          request.permit,
          request.reply ? 'admitted' : 'refused',
        )
        break
      }
      case 'time out': {
        const request = this.#requests[i]!
        this.#happened.late += 1
        request.isolateKnows = 'timeout'
        this.#isolates[request.isolate]!.holdings.resolve(request.permit, 'lost')
        break
      }
      case 'end': {
        const request = this.#requests[i]!
        request.isEnded = true
        this.#isolates[request.isolate]!.holdings.release(request.permit)
        break
      }
      case 'send':
        this.#sent.push({
          kind: 'message',
          isolate: i,
          messages: this.#isolates[i]!.holdings.unconfirmed(),
          isGone: false,
        })
        break
      case 'receive':
      case 'receive again':
      case 'receive without a reply': {
        const sent = this.#sent[i]!
        for (const { holding, ttl } of sent.messages) this.#receive(holding, ttl)
        if (verb === 'receive again') this.#happened.repeated += 1
        if (verb === 'receive without a reply') this.#happened.unconfirmed += 1
        const { holdings, isDead } = this.#isolates[sent.isolate]!
        if (verb === 'receive' && !isDead) holdings.confirm(sent.messages)
        sent.isGone = true
        break
      }
      case 'lose':
        // The message never arrives, and the isolate gets no reply.
        this.#happened.lost += 1
        this.#sent[i]!.isGone = true
        break
      case 'die':
        this.#happened.death += 1
        this.#isolates[i]!.isDead = true
        break
      case 'renew': {
        // The first timer renews its own request, and sends what is due.
        const own = this.#requests.find(request => request.isolate === i && this.#isInFlight(request))
        const { holdings } = this.#isolates[i]!
        if (own) holdings.renew(own.permit)
        this.#sent.push({ kind: 'message', isolate: i, messages: holdings.renewalsDue(), isGone: false })
        break
      }
      case 'pause':
        // No isolate runs for longer than the ttl, so all records expire.
        this.#happened.pause += 1
        this.heldAtPause = this.#requests.filter(
          ({ reply, isEnded, isolateKnows }) => reply && !isEnded && isolateKnows !== 'timeout',
        ).length
        this.#nowMs += rule!.quota.period / 1e3 + 1
        break
      case 'epoch':
        // A third of the ttl passes, so the next request begins an epoch.
        this.#happened.epoch += 1
        this.#nowMs += rule!.quota.period / 3e3
        break
      case 'restart':
        this.#happened.restart += 1
        this.#state = IDLE
        break
    }
    this.mostInFlight = Math.max(this.mostInFlight, this.inFlight)
  }

  /** Units of the requests that were admitted and are not over: those that the origin has. */
  get inFlight(): number {
    return this.#requests
      .filter(request => this.#isInFlight(request))
      .reduce((units, { cost }) => units + cost, 0)
  }

  #isInFlight({ isolate, isolateKnows, reply, isEnded }: TestRequest): boolean {
    return isolateKnows === 'reply' && reply === true && !isEnded && !this.#isolates[isolate]!.isDead
  }

  /** Units in flight, as the store counts them. */
  get counted(): number {
    const { quota } = rule!
    const { remaining } = concurrency.peek({
      quota: { ...quota, burst: 1e9 },
      state: this.#state,
      now: this.#now,
    })
    return 1e9 - remaining
  }

  /** Delivers everything that is on its way, and lets each isolate send its unconfirmed changes. */
  settle(): void {
    for (let round = 0; round < 4; round++) {
      // After this time, messages without a reply are sent again.
      this.#nowMs += 500
      this.#requests.forEach((request, i) => {
        if (request.reply === undefined) this.happen(`arrive ${i}`)
        if (request.isolateKnows === 'nothing' && !this.#isolates[request.isolate]!.isDead)
          this.happen(`answer ${i}`)
      })
      this.#sent.forEach((sent, i) => {
        if (!sent.isGone) this.happen(`receive ${i}`)
      })
      this.#isolates.forEach(({ isDead, holdings }, i) => {
        if (!isDead && holdings.unconfirmedSince() !== undefined) this.happen(`send ${i}`)
      })
    }
  }

  /** Lets more than a ttl pass. Isolates that are alive renew; everything else expires. */
  passTtl(): void {
    for (let third = 0; third < 4; third++) {
      this.#nowMs += rule!.quota.period / 3e3
      for (const { isolate, permit, isolateKnows, isEnded } of this.#requests) {
        if (isolateKnows === 'reply' && !isEnded) this.#isolates[isolate]!.holdings.renew(permit)
      }
      for (const { isDead, holdings } of this.#isolates) {
        if (isDead) continue
        const messages = [...holdings.unconfirmed(), ...holdings.renewalsDue()]
        for (const { holding, ttl } of messages) this.#receive(holding, ttl)
        holdings.confirm(messages)
      }
    }
  }

  /** Worlds with the same fingerprint have the same future. */
  fingerprint(): string {
    return JSON.stringify([
      this.#state,
      this.#nowMs,
      this.#made,
      this.#happened,
      this.#isolates.map(({ isDead, holdings }) => [
        isDead,
        isDead ? [] : holdings.heldUnits.map(({ emptyPlace, sentPlace, renewalPlace, ...held }) => held),
      ]),
      this.#requests.map(({ permit: { holding }, isolateKnows, reply, isEnded }) => [
        holding,
        isolateKnows,
        reply,
        isEnded,
      ]),
      this.#sent.map(({ messages, isGone }) => [messages, isGone]),
    ])
  }

  get #now(): number {
    return this.#nowMs * 1e3
  }

  #decide({ permit: { holding }, cost }: TestRequest): boolean {
    const quota = { ...rule!.quota, burst: this.#plan.limit }
    const { after } = concurrency.decide({ quota, holding, state: this.#state, now: this.#now, cost })
    this.#state = after?.state ?? this.#state
    return after !== undefined
  }

  #receive(holding: Message['holding'], ttl: number): void {
    const quota = { rate: 1, period: ttl, burst: 1 }
    this.#state = applyMessage({ quota, holding, state: this.#state, now: this.#now })
  }
}

/**
 * Visits every reachable world.
 * @param visit checks it. Its `check` is called hundred thousands of times, and calls `expect` only if the check fails
 * @returns the number of worlds
 */
function explore(plan: Plan, visit: (world: World, check: (isRight: boolean, what: string) => void) => void) {
  const seen = new Set<string>()
  const replay = (path: readonly string[]) => {
    const world = new World(plan)
    for (const name of path) world.happen(name)
    return world
  }
  const paths: string[][] = [[]]
  for (let path = paths.pop(); path; path = paths.pop()) {
    const world = replay(path)
    const print = world.fingerprint()
    if (seen.has(print)) continue
    seen.add(print)
    const names = world.next()
    visit(world, (isRight, what) => {
      if (!isRight) expect.fail(`${what}, after: ${path.join(', ')}`)
    })
    for (const name of names) paths.push([...path, name])
  }
  return seen.size
}

describe('in every order of events', () => {
  const plans: [string, Plan][] = [
    ['nothing goes wrong', { limit: 1, requests: [2, 1], most: NOTHING }],
    ['a reply is late or lost', { limit: 1, requests: MEDIUM, most: { ...NOTHING, late: 1 } }],
    ['two replies are late or lost', { limit: 1, requests: LARGE, most: { ...NOTHING, late: 2 } }],
    ['a message is repeated', { limit: 1, requests: [1, 1], most: { ...NOTHING, repeated: 1 } }],
    [
      'a reply is late, and a message is repeated',
      { limit: 2, requests: LARGE, most: { ...NOTHING, late: 1, repeated: 1 } },
    ],
    [
      'an ending arrives, and its reply is lost',
      { limit: 1, requests: [2, 1], most: { ...NOTHING, unconfirmed: 1 } },
    ],
    ['an ending is lost', { limit: 1, requests: [2, 1], most: { ...NOTHING, lost: 1 } }],
    [
      'an ending is lost, and a reply is late',
      { limit: 1, requests: LARGE, most: { ...NOTHING, lost: 1, late: 1 } },
    ],
    ['an epoch begins in between', { limit: 1, requests: MEDIUM, most: { ...NOTHING, epoch: 1 } }],
    [
      'epochs begin while a reply is late',
      { limit: 2, requests: LARGE, most: { ...NOTHING, epoch: sized(2, 1), late: 1 } },
    ],
    [
      'the second request of an isolate costs more than the limit',
      {
        ...{ limit: 1, requests: [2, 1], mostAtOnce: 1, costOf: n => (n === 0 ? 1 : MAX_UNITS) },
        most: { ...NOTHING, late: 1 },
      },
    ],
    [
      'more units are pending than a record can count',
      {
        ...{ limit: 1e7, requests: [3], costOf: () => 1e7 },
        most: { ...NOTHING, late: 1, epoch: sized(1, 0) },
      },
    ],
    ['an isolate dies', { limit: 1, requests: MEDIUM, most: { ...NOTHING, death: 1 } }],
  ]

  it.each(plans)(
    'at most the limit is in flight, and units of ended requests are free again: %s',
    (_, plan) => {
      const worlds = explore(plan, (world, check) => {
        check(world.mostInFlight <= plan.limit, 'more units than the limit are in flight')
        check(world.counted >= world.inFlight, 'the store counts fewer units than are in flight')
        world.settle()
        // Units of a dead isolate, and units of a repeated request, are free after the ttl.
        if (plan.most.death + plan.most.repeated > 0) world.passTtl()
        check(world.counted === world.inFlight, 'in the end the store counts other units than are in flight')
      })
      expect(worlds).toBeGreaterThan(100)
    },
  )

  it.each([
    ['', {}],
    ['a reply is late', { late: 1 }],
    ['an ending is lost', { lost: 1 }],
  ])('after a pause beyond the ttl, all units in flight are held again: %s', (_, more) => {
    const plan = { limit: 1, requests: [1, 1], most: { ...NOTHING, pause: 1, ...more } }
    const worlds = explore(plan, (world, check) => {
      const most = plan.limit + world.heldAtPause
      check(world.mostInFlight <= most, 'more units are in flight than the limit and those of the pause')
      world.settle()
      world.passTtl()
      check(world.counted === world.inFlight, 'the store counts other units than are in flight')
    })
    expect(worlds).toBeGreaterThan(100)
  })

  it('after a third of the ttl, a store that was emptied counts all units in flight', () => {
    const plan = { limit: 2, requests: MEDIUM, most: { ...NOTHING, restart: 1 } }
    const worlds = explore(plan, (world, check) => {
      world.settle()
      world.passTtl()
      check(world.counted === world.inFlight, 'the store counts other units than are in flight')
    })
    expect(worlds).toBeGreaterThan(100)
  })
})
