/** Whether limits can be avoided: by a header that says another address, or by requests that do not pass the gateway. */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Check, type Finding, fault, ok, unknown } from './checks.ts'
import { type AskCounted, ask, limitsOf, MAX_WAIT } from './replies.ts'

/** As the names of checks, and what stands before the address. */
const HEADERS = { 'CF-Connecting-IP': '', 'X-Forwarded-For': '', Forwarded: 'for=' }

export const aroundChecks = (
  counted: AskCounted,
  { origin, path }: { origin?: string | undefined; path: string },
): Check[] => [
  ...Object.entries(HEADERS).map(([header, prefix]) => ({
    name: header.toLowerCase(),
    run: () => checkForged(counted, header, prefix),
  })),
  ...(origin === undefined ? [] : [{ name: 'origin', run: () => checkOrigin(origin, path) }]),
]

async function checkForged(counted: AskCounted, header: string, prefix: string): Promise<Finding> {
  const found = await isNewCaller(counted, header, prefix)
  // Twice, because a window can end in between.
  if (found && (await isNewCaller(counted, header, prefix)))
    return fault`A caller gets a new budget by a forged ${header}. → Let requests reach the gateway only through Cloudflare, or name your proxies in the config (address): docs/security.md#the-model`
  return found === undefined
    ? unknown`Whether a forged ${header} is trusted could not be found out: no limit goes down. → Name a path with --path that has a rule by address, of 10 requests a minute, for example.`
    : ok`A forged ${header} gives no new budget.`
}

/** Requests from the same address, of which units must be missing afterwards. */
const SAME = 3

/** Refused requests spend nothing, so they show nothing. */
const ATTEMPTS = 3

/** @returns whether the first request from another address finds a whole limit; undefined if no limit shows it */
async function isNewCaller(
  counted: AskCounted,
  header: string,
  prefix: string,
): Promise<boolean | undefined> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    // Addresses for documentation (RFC 5737), which no caller has.
    const from = (network: string) => ({ [header]: `${prefix}${network}.${randomInt(1, 255)}` })
    const one = from('198.51.100')
    const startedAt = performance.now()
    const same = await Promise.all(Array.from({ length: SAME }, () => counted(one)))
    const other = await counted(from('203.0.113'))
    const elapsed = (performance.now() - startedAt) / 1e3
    const wait = Math.max(...[...same, other].map(({ headers }) => Number(headers.get('retry-after') ?? 0)))
    if (wait > MAX_WAIT) break
    if (wait > 0) {
      await sleep(wait * 1e3)
      continue
    }
    const before = same.flatMap(reply => limitsOf(reply) ?? [])
    const wentDown = (limitsOf(other) ?? []).filter(({ name, most, seconds = 86_400 }) => {
      const isSlow = elapsed < seconds / most
      return isSlow && before.some(each => each.name === name && each.remaining <= most - SAME)
    })
    return wentDown.length === 0 ? undefined : wentDown.some(({ most, remaining }) => remaining === most - 1)
  }
  return undefined
}

async function checkOrigin(origin: string, path: string): Promise<Finding> {
  const reply = await ask(origin.replace(/\/+$/, '') + path).catch(() => undefined)
  if (!reply) return ok`The origin cannot be reached from here without the gateway.`
  return [401, 403, 407, 421].includes(reply.status)
    ? ok`The origin refuses a request that has not passed the gateway (HTTP ${reply.status}).`
    : fault`The origin answers a request that has not passed the gateway (HTTP ${reply.status}), so all limits can be avoided. → Make it reachable only through the gateway: docs/security.md#the-model`
}
