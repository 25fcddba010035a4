/** Whether limits hold on a gateway: a forged address gets no new budget, and a burst of twice a limit no more than it has left. */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Finding, fault, findings, ok, unknown } from './checks.ts'
import { type AskCounted, isProblem, limitsOf, type Reply } from './replies.ts'

/** Waits (s) until a limit is whole again. */
const MAX_WAIT = 10

/** With what stands before the address. */
const HEADERS = { 'CF-Connecting-IP': '', 'X-Forwarded-For': '', Forwarded: 'for=' }
type Header = keyof typeof HEADERS

export async function checkForgery(counted: AskCounted): Promise<Finding> {
  const isNewBy = (all: readonly Header[]) =>
    isNewCaller(address => counted(Object.fromEntries(all.map(name => [name, HEADERS[name] + address]))))
  const all = Object.keys(HEADERS) as Header[]
  const isForgeable = await isNewBy(all)
  if (isForgeable === undefined)
    return unknown`Whether a forged address is trusted could not be found out: no limit goes down. → Name a path with --path that has a rule by address, of 10 requests a minute, for example.`
  const forged: string[] = []
  // If a window has ended meanwhile, no single header gives a new budget.
  if (isForgeable) for (const name of all) if (await isNewBy([name])) forged.push(name)
  return forged.length > 0
    ? fault`A caller gets a new budget by a forged ${forged.join(', ')}. → Let requests reach the gateway only through Cloudflare, or name your proxies in the config (address): docs/security.md#the-model`
    : ok`A forged address gives no new budget (${all.join(', ')}).`
}

/** Requests from the same address, of which units must be missing afterwards. */
const SAME = 3

/** @returns whether the first request from another address finds a whole limit; undefined if no limit shows it */
async function isNewCaller(askFrom: (address: string) => Promise<Reply>): Promise<boolean | undefined> {
  // Networks for documentation (RFC 5737), from which no caller comes.
  const [one, another] = ['198.51.100', '203.0.113'].map(network => `${network}.${randomInt(1, 255)}`)
  const startedAt = performance.now()
  const same = await Promise.all(Array.from({ length: SAME }, () => askFrom(one!)))
  const other = await askFrom(another!)
  const elapsed = (performance.now() - startedAt) / 1e3
  // Refused requests spend nothing, so they show nothing.
  if ([...same, other].some(({ status }) => status === 429)) return undefined
  const before = same.flatMap(limitsOf)
  const wentDown = limitsOf(other).filter(({ name, most, seconds = 86_400 }) => {
    const isSlow = elapsed < seconds / most
    return isSlow && before.some(each => each.name === name && each.remaining <= most - SAME)
  })
  return wentDown.length === 0 ? undefined : wentDown.some(({ most, remaining }) => remaining === most - 1)
}

/** A larger burst would be a load for the origin. */
const MAX_LIMIT = 200

export async function checkBurst(ask: AskCounted): Promise<Finding> {
  const tightest = async () => {
    const shown = limitsOf(await ask()).filter(({ isOfRequests, most }) => isOfRequests && most <= MAX_LIMIT)
    return shown.sort((a, b) => a.most - b.most)[0]
  }
  let limitToTry = await tightest()
  // If it is whole soon, the burst finds it whole.
  if (limitToTry && limitToTry.reset <= MAX_WAIT) {
    await sleep(limitToTry.reset * 1e3)
    limitToTry = await tightest()
  }
  if (!limitToTry)
    return unknown`There is no limit to try: the reply shows none of at most ${MAX_LIMIT} requests. → Name a path with --path that has one.`
  const { most, remaining, seconds } = limitToTry
  const startedAt = performance.now()
  const replies = await Promise.all(Array.from({ length: 2 * most }, () => ask()))
  const elapsed = (performance.now() - startedAt) / 1e3
  const refused = replies.filter(({ status }) => status === 429)
  const admitted = replies.length - refused.length
  // Of a limit that refills, units come back meanwhile.
  const back = seconds === undefined ? 0 : Math.max(0, Math.ceil((most * elapsed) / seconds - 0.1))
  const found = findings({ sent: replies.length, admitted, left_before: remaining, come_back: back })
  const text = `Of ${replies.length} requests at once, ${admitted} were admitted. Before, ${remaining} of ${most} were left${back > 1 ? `, and up to ${back} have come back meanwhile` : ''}`
  if (admitted > remaining + back)
    return found.fault`${text}. → Run this again: a window may have ended meanwhile. If it is the same, report it.`
  if (admitted < remaining)
    return found.limit`${text}: another limit refuses, or others use the same credential. → Name a path with --path that has one limit, and run this again.`
  if (refused.every(isRefusal)) return found.ok`${text}. Refusals arrive as they are documented.`
  return found.fault`${text}, and refusals do not arrive as they are documented (Retry-After, application/problem+json). → A proxy in front of the gateway must pass them on.`
}

const isRefusal = (reply: Reply) =>
  isProblem(reply) &&
  'violated-policies' in reply.body &&
  /^\d+$/.test(reply.headers.get('retry-after') ?? '')
