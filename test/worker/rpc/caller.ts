/** The Worker that calls the limits of another Worker (limits.ts) through service bindings. */
import type { Limits as BuiltLimits } from '../../../src/built/binding.generated.ts'
import { acquireTwice, type UnitEnd } from '../../support/ending-list.ts'
import type { Limits } from './limits.ts'

// The type of this binding, as `wrangler types` generates it, fits wherever code expects Cloudflare's rate limiting binding.
true satisfies Service<typeof Limits> extends RateLimit ? true : never
true satisfies Service<typeof BuiltLimits> extends RateLimit ? true : never

interface Env {
  LIMITS: Service<typeof Limits>
  /** A third Worker, with the same limits and store as `LIMITS`. It stands for a second isolate of that Worker. */
  OTHER: Service<typeof Limits>
  /** The same entrypoint with `props: { limit: 'signups' }`, used as Cloudflare's rate limiting binding. */
  SIGNUPS: Service<typeof Limits>
  /** Without props. */
  ANY: Service<typeof Limits>
  INHERITED: Service<typeof Limits>
  /** The same Worker without variables. */
  BARE: Service<typeof Limits>
}

const CALLS: Record<string, (env: Env, key: string) => Promise<unknown>> = {
  '/limit-by-key': async (env, key) => (await env.SIGNUPS.limit({ key })).success,
  '/limit-by-key/ambiguous': async (env, key) => await env.ANY.limit({ key }),
  '/limit-by-key/inherited': async (env, key) => await env.INHERITED.limit({ key }),
  '/limit-by-key/delta': async (env, key) => {
    const { success, rules } = await env.SIGNUPS.limit({ key, delta: 2 })
    const { retryAfterMs } = await env.SIGNUPS.limit({ key: `all of ${key}`, delta: 4 })
    return [success, rules[0]!.remaining, retryAfterMs]
  },
  // Sends the arguments of the test as they are, like a caller without types.
  '/limit-by-key/arguments': async (env, key) => {
    const limit = env.SIGNUPS.limit as unknown as (...args: unknown[]) => Promise<unknown>
    return await limit(...(JSON.parse(key) as unknown[]))
  },
  '/limit-by-key/nothing': async env => await (env.SIGNUPS.limit as unknown as () => Promise<unknown>)(),
  '/limit': async (env, key) =>
    await env.LIMITS.limit('mails', { account: key }, { cost: { day: 4, all: 1 } }),
  '/limit/without-variables': async env => await env.BARE.limit('exports', { account: 'a' }),
  '/limit/unknown': async env => await env.LIMITS.limit('nothing'),
  '/peek': async (env, key) => await env.LIMITS.peek('mails', { account: key }),
  '/refund': async (env, key) => {
    const { receipt } = await env.LIMITS.limit('mails', { account: key }, { cost: 4 })
    return await env.LIMITS.refund(receipt, { cost: 3 })
  },
  '/numbers': async (env, key) => {
    const numbers = { quota: { limit: 300, period: '1d' } }
    const { receipt } = await env.LIMITS.limit('tenant', { tenant: key }, { cost: 20, numbers })
    await env.OTHER.refund(receipt, { cost: 15 })
    return await env.LIMITS.peek('tenant', { tenant: key }, { numbers })
  },
  '/numbers/missing': async (env, key) => await env.LIMITS.limit('tenant', { tenant: key }),
  '/pause': async (env, key) => {
    const headers = new Headers({ 'retry-after': '30' })
    const paused = await env.LIMITS.pause('drafts', { account: key }, { retryAfter: headers })
    const refused = await env.OTHER.limit('drafts', { account: key })
    await env.OTHER.resume('drafts', { account: key })
    const { allowed } = await env.OTHER.limit('drafts', { account: key })
    return { paused, refused, allowed }
  },
  '/refund/elsewhere': async (env, key) => {
    const { receipt } = await env.LIMITS.limit('mails', { account: key }, { cost: { day: 4, all: 1 } })
    // A receipt can also be stored as JSON in between.
    const stored = JSON.parse(JSON.stringify(receipt)) as typeof receipt
    const { rules: some } = await env.OTHER.refund(stored, { cost: { day: 3 } })
    const { rules: rest } = await env.OTHER.refund(stored)
    const { rules: again } = await env.OTHER.refund(stored)
    const { rules: after } = await env.LIMITS.peek('mails', { account: key })
    return { some, rest, again, after }
  },
  '/refund/twice': async (env, key) => {
    const calls = [1, 2, 3].map(() => env.LIMITS.limit('mails', { account: key }))
    const [first] = await Promise.all(calls)
    await env.LIMITS.refund(first!.receipt)
    await env.LIMITS.refund(first!.receipt)
    return (await env.OTHER.peek('mails', { account: key })).rules[0]!.remaining
  },
  '/refund/units': async (env, key) => {
    using units = await env.LIMITS.acquire('drafts', { account: key }, { cost: { day: 3 } })
    return await env.OTHER.refund((await units.decision).receipt)
  },
  '/refund/of-peek': async (env, key) => {
    const { receipt } = await env.LIMITS.peek('mails', { account: key })
    return [receipt.costs, (await env.OTHER.refund(receipt)).rules]
  },
  '/refund/wrong': async (env, key) => {
    const { receipt } = await env.LIMITS.limit('mails', { account: key })
    return await env.OTHER.refund({ ...receipt, costs: { day: -1 } })
  },
  '/refund/old': async (env, key) => {
    const { receipt } = await env.LIMITS.limit('mails', { account: key }, { cost: 4 })
    const { identity, costs } = receipt
    return await env.OTHER.refund({
      ...receipt,
      identity: { ...identity, region: 'eu' },
      costs: { ...costs, removed: 2 },
    })
  },
  '/settle/old': async (env, key) => {
    const { receipt } = await env.LIMITS.reserve('llm', { team: key }, { amounts: { tokens: 200 } })
    const old = { ...receipt, reserved: { ...receipt.reserved, removed: 9 } }
    return await env.OTHER.settle(old, { tokens: 50, usd: 3 })
  },
  '/reserve': async (env, key) => {
    const { allowed, receipt } = await env.LIMITS.reserve('llm', { team: key }, { amounts: { tokens: 200 } })
    const settled = await env.OTHER.settle(JSON.parse(JSON.stringify(receipt)), { tokens: 731 })
    const again = await env.LIMITS.settle(receipt, { tokens: 731 })
    return { allowed, reserved: receipt.reserved, settled, again }
  },
  '/settle/wrong': async (env, key) => {
    const { receipt } = await env.LIMITS.reserve('llm', { team: key }, { amounts: { tokens: 200 } })
    return await env.LIMITS.settle(receipt, { tokens: -1 })
  },
  '/acquire': async (env, key) => {
    const statuses: unknown[] = []
    {
      using one = await env.LIMITS.acquire('exports', { account: key })
      using two = await env.LIMITS.acquire('exports', { account: key })
      statuses.push(await one.allowed, await two.allowed)
      using three = await env.LIMITS.acquire('exports', { account: key }, { timeoutMs: 1 })
      statuses.push(await three.allowed)
    }
    using four = await env.LIMITS.acquire('exports', { account: key }, { timeoutMs: 20_000 })
    statuses.push(await four.allowed)
    return statuses
  },
  // Each end has an account of its own.
  '/acquire/twice': async (env, end) =>
    await acquireTwice(
      end as UnitEnd,
      timeoutMs => env.LIMITS.acquire('exports', { account: end }, { timeoutMs }),
      units => units[Symbol.dispose](),
    ),
  // The callee throws: there are no units.
  '/acquire/throws': async env => await env.LIMITS.acquire('nothing'),
  // The units are not disposed of. They are freed when the context of this request ends.
  '/acquire/forget': async (env, key) => {
    const units = await env.LIMITS.acquire('exports', { account: key }, { timeoutMs: 10_000 })
    return (await units.decision).allowed
  },
}

export default {
  async fetch(request, env) {
    const { pathname, searchParams } = new URL(request.url)
    try {
      return Response.json(await CALLS[pathname]!(env, searchParams.get('key') ?? 'key'))
    } catch (error) {
      return Response.json({ error: (error as Error).message }, { status: 500 })
    }
  },
} satisfies ExportedHandler<Env>
