/** Whether a burst of twice a limit gets what the limit has left, and no more. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Finding, findings, unknown } from './checks.ts'
import { type AskCounted, isProblem, limitsOf, MAX_WAIT, type Reply } from './replies.ts'

/** A larger burst would be a load for the origin. */
const MAX_LIMIT = 200

export async function checkBurst(ask: AskCounted): Promise<Finding> {
  const tightest = async () => {
    const shown = limitsOf(await ask()) ?? []
    const [first] = shown.sort((a, b) => a.most - b.most).filter(({ isOfRequests }) => isOfRequests)
    return first && first.most <= MAX_LIMIT ? first : undefined
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
  return refused.every(isRefusal)
    ? found.ok`${text}. Refusals arrive as they are documented.`
    : found.fault`${text}, and refusals do not arrive as they are documented (Retry-After, application/problem+json). → A proxy in front of the gateway must pass them on.`
}

const isRefusal = (reply: Reply) =>
  isProblem(reply) &&
  /^\d+$/.test(reply.headers.get('retry-after') ?? '') &&
  reply.body.includes('"violated-policies":')
