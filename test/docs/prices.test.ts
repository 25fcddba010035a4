/** The prices on README.md and docs/deploy.md are those that src/ops/prices.ts computes. */
import { describe, expect, it } from 'vitest'
import {
  dollarsOf,
  dollarsOfWorker,
  dollarsPerMillion,
  dollarsPerMonth,
  PRICES,
} from '../../src/ops/prices.ts'
import { readPage } from '../support/pages.ts'

const README = readPage('README.md')
const DEPLOY = readPage('docs/deploy.md').replaceAll('\n', ' ').replaceAll(/ +/g, ' ')

/** Of six limits: EVALSHA, TIME, MGET and two SETEX; a refusal writes nothing. test/ops/decision-cost.test.ts counts them. */
const ADMITTED = 5
const REFUSED = 3
const SWITCHES = 1
/** The commands of the counters, and how often they are written (s). */
const COUNTERS = { usual: 3, refusing: 5, every: 10 }

const REQUESTS = 200e6
const usd = (dollars: number) => `$${dollars.toLocaleString('en-US')}`
const cents = (dollars: number) => `$${dollars.toFixed(2)}`

const isolate = dollarsPerMonth(SWITCHES, 1) + dollarsPerMonth(COUNTERS.usual, COUNTERS.every)
const allOf = (commands: number) => dollarsOf(REQUESTS * commands)
/** Isolates of which each gets one request a second. */
const isolates = Math.round(REQUESTS / (30 * 86400))
const thin = allOf(ADMITTED + SWITCHES)
const counters = Math.round(isolates * dollarsPerMonth(COUNTERS.usual, COUNTERS.every))
const thinnest = allOf(ADMITTED + SWITCHES + COUNTERS.usual)
/** The CPU of a request, which `npm run performance` writes. */
const CPU_MS = Number(/\(([\d.]+) ms a request/.exec(DEPLOY)?.[1])
const ofWorker = dollarsOfWorker(REQUESTS, CPU_MS)
const { upstash, cloudflare } = PRICES

describe('docs/deploy.md', () => {
  it.each([
    `at ${cents(upstash.per100kCommands)} per 100,000`,
    `| an admitted request, six limits | ${ADMITTED} (\`EVALSHA\`, \`TIME\`, \`MGET\`, two \`SETEX\`) | ${usd(dollarsPerMillion(ADMITTED))} per million |`,
    `| a refused one | ${REFUSED} | ${usd(dollarsPerMillion(REFUSED))} per million |`,
    `up to ${cents(dollarsPerMonth(SWITCHES, 1))} a month for each isolate`,
    `${ADMITTED + 1} commands if admitted, ${REFUSED + 1} if refused | ${usd(dollarsPerMillion(ADMITTED + 1))} and ${usd(dollarsPerMillion(REFUSED + 1))} per million`,
    `up to ${cents(dollarsPerMonth(COUNTERS.usual, COUNTERS.every))} a month for each isolate, ${cents(dollarsPerMonth(COUNTERS.refusing, COUNTERS.every))} if it always refuses`,
    `at list prices of ${PRICES.date}`,
    `200 × ${usd(dollarsPerMillion(ADMITTED))} = ${usd(allOf(ADMITTED))}, plus ${cents(isolate)} for each busy isolate`,
    `For ${usd(upstash.fixedPlan.monthly)}: ${upstash.fixedPlan.dataGigabytes} GB, ${upstash.fixedPlan.bandwidthGigabytes} GB and ${upstash.fixedPlan.commandsPerSecond.toLocaleString('en-US')} a second, which are ${(upstash.fixedPlan.commandsPerSecond / ADMITTED).toLocaleString('en-US')} admitted requests a second`,
    `one a second in each of ${isolates} isolates, ${usd(thin)} with the \`GET\`, and ${usd(counters)} for the counters`,
    `${usd(thinnest)} (${ADMITTED + SWITCHES + COUNTERS.usual} commands each)`,
    `${usd(cloudflare.monthly)} with 10 million requests and 30 million ms, ${usd(190 * cloudflare.perMillionRequests)} for the rest (190 × ${cents(cloudflare.perMillionRequests)})`,
    `at ${usd(cloudflare.perMillionCpuMs)} a million): ${cents(ofWorker)}.`,
  ])('%s', sentence => {
    expect(DEPLOY).toContain(sentence)
  })
})

describe('README.md', () => {
  it.each([
    `${ADMITTED} commands that Upstash bills, ${usd(dollarsPerMillion(ADMITTED))} per million admitted requests; at most ${REFUSED} and ${usd(dollarsPerMillion(REFUSED))} for a refused one`,
    `at list prices of ${PRICES.date}`,
    `**${usd(allOf(ADMITTED))}**: ${ADMITTED} commands each. A refused request takes ${REFUSED}`,
    `**${usd(Math.round(ofWorker))}**`,
    `**${usd(upstash.fixedPlan.monthly)}**: up to 10,000 commands a second (2,000 requests), ${upstash.fixedPlan.bandwidthGigabytes} GB a month, ${upstash.fixedPlan.dataGigabytes} GB of data`,
    `**${usd(allOf(ADMITTED) / 10)} to ${usd(allOf(ADMITTED))}**`,
    `add up to ${cents(isolate)} for each copy of the Worker`,
    `Upstash bills ${usd(thin + counters)} to ${usd(thinnest)} in all`,
  ])('%s', sentence => {
    expect(README).toContain(sentence)
  })
})
