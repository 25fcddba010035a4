/**
 * Compares ways to limit tokens whose number is known only when a response ends: how many requests each of them refuses that a limiter
 * that knew the number in advance would have admitted, and how much it admits above the limit. The store is the model of the scripts, with
 * a real rule; the traffic is generated with fixed seeds, and at 80 % of the limit on average.
 */

import { ALL_ALGORITHMS } from '../../../src/algorithms/all.ts'
import type { SettlementTerms } from '../../../src/config/compile-rule.ts'
import { compileLimitRule } from '../../../src/config/compile-rule.ts'
import { ScriptModel } from '../../../src/script/model.ts'
import { type Chance, chanceFrom } from '../../../test/simulation/chance.ts'
import { Events } from '../../../test/simulation/events.ts'
import { bound } from '../../../test/support/bound.ts'

/** One call of an LLM API. Times are ms. */
export interface Call {
  at: number
  /** Tokens of the prompt, as the provider counts them. */
  input: number
  /** Tokens of the answer. */
  output: number
  /** The most tokens of the answer that the request asks for. */
  maxOutput: number
  /** Bytes of the prompt. */
  bytes: number
  ms: number
}

export interface Trace {
  what: string
  calls: readonly Call[]
}

/** Tokens per minute of one team. */
export const LIMIT = 1_000_000
const MINUTE = 60_000
const MINUTES = 120
/** Of the limit, on average. */
const USE = 0.8
/** How late a settlement arrives (ms). */
const SETTLES_AFTER = 250
/** The most tokens of an answer that an estimate counts. */
const MOST_OUTPUT = 4096
const FLAT = 5000

/** @param tokensPerSecond of the answer */
function callAt(at: number, chance: Chance, { input, output, maxOutput, tokensPerSecond = 60 }: Shape): Call {
  const tokens = Math.max(1, Math.round(chance.lognormal(...input)))
  const answer = Math.min(maxOutput, Math.max(1, Math.round(chance.lognormal(...output))))
  // English text has about four bytes a token; code and other languages have fewer.
  const bytes = Math.round(tokens * Math.max(2, chance.lognormal(4, 0.15)))
  const ms = 400 + tokens / 20 + (1000 * answer) / tokensPerSecond
  return { at, input: tokens, output: answer, maxOutput, bytes, ms }
}

interface Shape {
  /** Mean and sigma of a lognormal number. */
  input: [mean: number, sigma: number]
  output: [mean: number, sigma: number]
  maxOutput: number
  tokensPerSecond?: number
}

const CHAT: Shape = { input: [900, 1], output: [400, 0.9], maxOutput: 2048 }
const AGENT: Shape = { input: [14_000, 1.1], output: [500, 1.2], maxOutput: 8192 }
const BATCH: Shape = { input: [2500, 0.3], output: [350, 0.3], maxOutput: 512 }

/** Some minutes have more calls than others. */
const swing = (chance: Chance) => 0.75 + 0.5 * chance.uniform()

const meanOf = ({ input, output }: Shape) => input[0] + output[0]

function chat(seed: number): Call[] {
  const chance = chanceFrom(seed)
  const calls: Call[] = []
  const perSecond = (USE * LIMIT) / 60 / meanOf(CHAT)
  for (let minute = 0; minute < MINUTES; minute++) {
    const factor = swing(chance)
    for (let ms = chance.gapMs(factor * perSecond); ms < MINUTE; ms += chance.gapMs(factor * perSecond))
      calls.push(callAt(minute * MINUTE + ms, chance, CHAT))
  }
  return calls
}

/** Sessions: each call begins one to four seconds after the answer to the one before, about twelve in a row, with growing prompts. */
function agent(seed: number): Call[] {
  const chance = chanceFrom(seed)
  const calls: Call[] = []
  const perSecond = (USE * LIMIT) / 60 / meanOf(AGENT) / 12
  for (let start = 0; start < MINUTES * MINUTE; start += chance.gapMs(perSecond)) {
    let at = start
    const length = 4 + chance.below(17)
    for (let i = 0; i < length; i++) {
      const call = callAt(at, chance, AGENT)
      calls.push(call)
      at += call.ms + 1000 + 3000 * chance.uniform()
    }
  }
  return calls.filter(({ at }) => at < MINUTES * MINUTE).sort((a, b) => a.at - b.at)
}

/** A queue with 40 workers that pause together when the minute's work is done. */
function batch(seed: number): Call[] {
  const chance = chanceFrom(seed)
  const calls: Call[] = []
  const perMinute = (USE * LIMIT) / meanOf(BATCH)
  for (let minute = 0; minute < MINUTES; minute++) {
    const count = Math.round(perMinute * swing(chance))
    for (let i = 0; i < count; i++) {
      calls.push(callAt(minute * MINUTE + (30_000 * i) / count, chance, BATCH))
    }
  }
  return calls
}

export const TRACES: readonly Trace[] = [
  { what: 'chat', calls: chat(1) },
  { what: 'agents', calls: agent(2) },
  { what: 'batch', calls: batch(3) },
]

export interface Way {
  what: string
  /** The units that are reserved before the call; 0: it is only checked that something is left. */
  estimate(call: Call): number
}

export const WAYS: readonly Way[] = [
  {
    what: 'estimate from the request',
    estimate: ({ bytes, maxOutput }) => Math.ceil(bytes / 4) + Math.min(maxOutput, MOST_OUTPUT),
  },
  { what: `estimate of ${FLAT.toLocaleString('en')} tokens`, estimate: () => FLAT },
  { what: 'counted only afterwards', estimate: () => 0 },
]

export interface Result {
  /** Refused by this way and not by the limiter that knows the number: share of all calls. */
  needless: number
  /** Refused in all: share of all calls. */
  refused: number
  /** The most tokens above the limit in one minute, as a share of the limit. */
  overspend: number
  /** The tokens that the admitted calls have used, as a share of the limit. */
  used: number
}

const TERMS: SettlementTerms = { ttlMs: 600_000, onUnsettled: 'keep', aboveLimit: 'clamp' }
const START = Date.UTC(2026, 10, 20) * 1e3

/** Runs a trace through the rule. */
export function runTrace({ calls }: Trace, way: Way): Result {
  const knowing = admittedByKnowing(calls)
  const rule = {
    ...compileLimitRule(
      { name: 'tokens', algorithm: 'fixed-window', limit: LIMIT, period: '1m' },
      ALL_ALGORITHMS,
    ),
    settlement: TERMS,
  }
  const model = new ScriptModel()
  const events = new Events()
  const key = 'sluice:{l:llm}:state'
  const spent = new Map<number, number>()
  let [refused, needless, used] = [0, 0, 0]
  for (const [i, call] of calls.entries()) {
    events.at(call.at, () => {
      const now = START + Math.round(call.at * 1000)
      const estimate = way.estimate(call)
      const bind = bound(rule, key, Math.max(1, estimate), now / 1e3)
      const evaluation = { ruleSet: { plans: [] }, rules: [bind], reservationId: `${i}`, now }
      const { status, verdicts, at } = model.decide(evaluation)
      if (status !== 'admitted') {
        refused += 1
        needless += Number(knowing[i])
        return
      }
      const actual = call.input + call.output
      used += actual
      const minute = Math.floor(call.at / MINUTE)
      spent.set(minute, (spent.get(minute) ?? 0) + actual)
      events.after(call.ms + SETTLES_AFTER, () =>
        model.settle({
          rules: [bind],
          now: START + Math.round(events.now * 1000),
          requests: [{ id: `${i}`, spentAt: at, amounts: [{ reserved: verdicts[0]!.reserved!, actual }] }],
        }),
      )
    })
  }
  events.runUntil((MINUTES + 10) * MINUTE)
  return {
    needless: needless / calls.length,
    refused: refused / calls.length,
    overspend: Math.max(0, Math.max(...spent.values()) / LIMIT - 1),
    used: used / (MINUTES * LIMIT),
  }
}

/** The decisions of a limiter that knows what each call will use. */
export function admittedByKnowing(calls: readonly Call[]): boolean[] {
  const spent = new Map<number, number>()
  return calls.map(({ at, input, output }) => {
    const minute = Math.floor(at / MINUTE)
    const total = (spent.get(minute) ?? 0) + input + output
    if (total > LIMIT) return false
    spent.set(minute, total)
    return true
  })
}
