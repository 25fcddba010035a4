/**
 * The prices that Sluice states, with their date, and the arithmetic with them: for `explain` and `doctor`. A test computes the prices of
 * README.md and docs/deploy.md with them.
 */

export const PRICES = {
  /** As the pages say it. They were read on 2026-09-20. */
  date: 'autumn 2026',
  /** https://upstash.com/docs/redis/overall/billing: pay as you go, and a fixed plan. USD. */
  upstash: {
    per100kCommands: 0.2,
    fixedPlan: { monthly: 100, commandsPerSecond: 10_000, bandwidthGigabytes: 500, dataGigabytes: 5 },
  },
  /** https://developers.cloudflare.com/workers/platform/pricing/. USD. */
  cloudflare: {
    monthly: 5,
    includedRequests: 10e6,
    perMillionRequests: 0.3,
    includedCpuMs: 30e6,
    perMillionCpuMs: 0.02,
  },
} as const

const MONTH_SECONDS = 30 * 86_400

/** USD for this many commands of a store that bills each (Upstash, pay as you go). */
export const dollarsOf = (commands: number): number => (commands * PRICES.upstash.per100kCommands) / 100_000

/** USD in whole cents for a million requests with this many commands each. */
export const dollarsPerMillion = (commands: number): number => toCents(dollarsOf(commands * 1e6))

/** USD in whole cents for 30 days in which commands are sent every so many seconds. */
export const dollarsPerMonth = (commands: number, everySeconds: number): number =>
  toCents(dollarsOf((commands * MONTH_SECONDS) / everySeconds))

/** USD in whole cents for a month of requests to a Worker. */
export function dollarsOfWorker(requests: number, cpuMsPerRequest: number): number {
  const { monthly, includedRequests, perMillionRequests, includedCpuMs, perMillionCpuMs } = PRICES.cloudflare
  const ofRequests = (Math.max(0, requests - includedRequests) / 1e6) * perMillionRequests
  const ofCpu = (Math.max(0, requests * cpuMsPerRequest - includedCpuMs) / 1e6) * perMillionCpuMs
  return toCents(monthly + ofRequests + ofCpu)
}

const toCents = (dollars: number) => Math.round(dollars * 100) / 100
