/** A third party that notes when each request arrives, and counts by exact sliding windows. */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'

/** At most `limit` arrivals in any `periodMs`, wherever it begins. */
export interface VendorLimit {
  limit: number
  periodMs: number
}

export interface Arrival {
  account: string
  /** By `monotonicMs`. */
  at: number
  /** When the worker had to begin the call. */
  sendBy: number
  isRefused: boolean
  /** What the call has cost. */
  tokens: number
}

/** Replies with 429 and Retry-After to an account, from its next request on. */
export interface Refusal {
  account: string
  seconds: number
}

export interface Vendor {
  url: string
  /** Also those that were refused. */
  arrivals(account: string): readonly Arrival[]
  refuse(refusal: Refusal): void
  close(): Promise<unknown>
}

/** The clock (ms) that Python's time.monotonic() reads as well. */
export const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6

export async function startVendor(limits: readonly VendorLimit[]): Promise<Vendor> {
  const thread = new Worker(new URL('./vendor-thread.ts', import.meta.url), { workerData: limits })
  const [port] = await once(thread, 'message')
  const arrivals: Arrival[] = []
  thread.on('message', arrival => arrivals.push(arrival))
  return {
    url: `http://127.0.0.1:${port}`,
    arrivals: account => arrivals.filter(arrival => arrival.account === account),
    refuse: refusal => thread.postMessage(refusal),
    close: () => thread.terminate(),
  }
}

/** How many arrivals there are at most in a period, wherever it begins. */
export function mostWithin(arrivals: readonly Arrival[], periodMs: number): number {
  let first = 0
  let most = 0
  for (const [last, { at }] of arrivals.entries()) {
    while (arrivals[first]!.at <= at - periodMs) first++
    most = Math.max(most, last - first + 1)
  }
  return most
}

/** The times between each arrival and the one that is `limit` later (ms): never less than the period, if the limit is not exceeded. */
export const timesOfLimit = (arrivals: readonly Arrival[], limit: number): readonly number[] =>
  arrivals.slice(limit).map(({ at }, i) => at - arrivals[i]!.at)

/**
 * The share of a limit that is used once it is full: the time in which the limit admits `limit` calls, divided by the time that they took.
 * @returns 0 if there are not more arrivals than the limit admits at once
 */
export function shareUsed(arrivals: readonly Arrival[], { limit, periodMs }: VendorLimit): number {
  const times = timesOfLimit(arrivals, limit)
  return times.length === 0 ? 0 : (periodMs * times.length) / times.reduce((sum, time) => sum + time, 0)
}
